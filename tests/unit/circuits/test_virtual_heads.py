"""A virtual head is what the forward pass makes of two heads in a row: its terms, its pattern, its known answers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from headway.circuits.copying import copying_scores
from headway.circuits.entries import circuit_entries
from headway.circuits.virtual_heads import virtual
from headway.errors import CannotCompose, ShapeProblem, UnknownName, UsageError
from headway.model.forward import run
from headway.paths.frozen import Frozen
from headway.sources.handmade.two_back import two_back_model
from support.random_models import FEATURES, feature_name, random_tokens, random_weights
from support.unchecked import as_users_run_it

DEEP = [f for f in FEATURES if f.get("n_layers", 2) >= 2]


@pytest.mark.parametrize("feature", DEEP, ids=feature_name)
def test_pattern_times_ov_is_what_two_heads_in_a_row_write(feature: dict[str, Any]):
    weights = random_weights(**feature)
    recording = run(weights, random_tokens(weights))
    frozen, stream = Frozen(recording), recording.streams[0]
    last = weights.config.n_layers - 1
    for first, second in itertools.product(range(weights.config.n_heads), repeat=2):
        names = f"L0H{first}", f"L{last}H{second}"
        one = virtual(weights, "-".join(names))
        expected = frozen.through(names[1], frozen.through(names[0], stream))
        found = one.pattern(recording) @ stream @ one.ov.dense().T
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_three_heads_in_a_row():
    weights = random_weights(n_layers=3, norm="layer")
    recording = run(weights, random_tokens(weights))
    frozen, stream = Frozen(recording), recording.streams[0]
    one = virtual(weights, "L0H1-L1H0-L2H3")
    expected = frozen.through("L2H3", frozen.through("L1H0", frozen.through("L0H1", stream)))
    torch.testing.assert_close(one.pattern(recording) @ stream @ one.ov.dense().T, expected, atol=1e-9, rtol=0)


def test_without_norms_rows_sum_to_one_and_nothing_comes_from_later():
    weights = random_weights(norm="none")
    pattern = virtual(weights, "L0H1-L1H2").pattern(run(weights, random_tokens(weights)))
    torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
    assert not pattern.triu(1).any()


def test_the_two_back_head_is_two_back_and_copies():
    weights = two_back_model(d_vocab=12).weights
    one = virtual(weights, "L0H0-L1H0")
    pattern = one.pattern(run(weights, torch.tensor([[0, 3, 5, 7, 2, 9, 1]])))
    assert float(pattern[0].diagonal(-2).min()) > 1 - 2e-3
    (row,) = one.copying(draws=20).rows()
    assert row["head"] == "L0H0-L1H0" and row["copying"] == pytest.approx(1) and one.rank == 11
    for head in ("L0H0", "L1H0"):  # neither alone takes a token to a logit
        assert copying_scores(weights, draws=0).rows()[int(head[1])]["copying"] is None


def test_without_either_part_nothing_is_left():
    weights = two_back_model(d_vocab=12).weights
    for layer in range(2):
        W_O = weights.W_O.clone()
        W_O[layer] = 0
        one = virtual(weights.replace(W_O=W_O), "L0H0-L1H0")
        assert one.rank == 0 and "zero circuit" in one.copying(draws=0).rows()[0]["flag"]


@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_copying_is_of_the_dense_circuit(norm: str):
    weights = random_weights(norm=norm)
    one = virtual(weights, "L0H3-L1H1")
    dense = one.weights.W_U @ one.ov.dense() @ one.weights.W_E
    values = torch.linalg.eigvals(dense)
    (row,) = one.copying(draws=0).rows()
    assert row["copying"] == pytest.approx(float(values.sum().real / values.abs().sum()), abs=1e-9)
    torch.testing.assert_close(one.alone.head("L0H0").ov.dense(), one.ov.dense(), atol=1e-12, rtol=0)
    assert circuit_entries(one.alone, "L0H0", "ov", top=1).rows()[0]["rank"] == 1


def test_ranks_at_any_scale_and_of_a_basis_inside_d_head():
    weights = random_weights(n_kv_heads=4)
    basis = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    moved = weights.replace(W_V=basis @ weights.W_V, W_O=1e-9 * weights.W_O @ torch.linalg.inv(basis))
    a, b = virtual(weights, "L0H0-L1H0"), virtual(moved, "L0H0-L1H0")
    assert a.rank == b.rank == 5
    torch.testing.assert_close(b.ov.dense() * 1e18, a.ov.dense(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("L1H0-L0H0", CannotCompose, "must rise"),
        ("L0H0-L0H1", CannotCompose, "must rise"),
        ("L0H0", CannotCompose, "two heads or more"),
        ("direct", CannotCompose, "two heads or more"),
        ("L0H9-L1H0", UnknownName, "no head L0H9"),
        ("L0H0>L1H0", UnknownName, "not a head"),
        (7, UnknownName, "not a path"),
    ],
)
def test_paths_that_are_none(path: Any, kind: Any, words: str):
    with as_users_run_it(), pytest.raises(kind, match=words):
        virtual(random_weights(), path)


def test_recordings_of_other_models():
    one = virtual(random_weights(), "L0H0-L1H0")
    other = random_weights(n_layers=3)
    with pytest.raises(ShapeProblem, match="2 layers of 4 heads, got 3 layers"):
        one.pattern(run(other, random_tokens(other)))
    with as_users_run_it(), pytest.raises(UsageError, match="not a recording"):
        one.pattern(torch.ones(2, 2))  # pyright: ignore[reportArgumentType]
