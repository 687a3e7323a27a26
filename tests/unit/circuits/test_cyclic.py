"""The cyclic score equals the erratum's dense formula, and not composition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.circuits.composition import composition_scores
from headway.circuits.cyclic import cyclic_scores
from headway.errors import CannotCompose, UsageError
from headway.model.head import Head
from headway.model.positions import rotation
from headway.model.process import processed
from headway.sources.handmade import induction_model, pointer_model, rotary_induction_model
from headway.sources.handmade.built import Built
from support.composed import Key, agrees_with_draws, among_others, by_pair, rotations, stands_out
from support.random_models import FEATURES, feature_name, random_weights

norm = torch.linalg.matrix_norm


def ends(reader: Head, via: str, offset: int = 0) -> tuple[Tensor, Tensor]:
    """What stands left and right of W_OV, from the definitions."""
    if via == "V":
        return reader.W_V, reader.W_O
    turn = torch.eye(len(reader.W_Q), dtype=torch.float64)
    if reader.turns is not None:
        turn = rotation(-offset, reader.turns)
    return (turn.T @ reader.W_Q, reader.W_K.T) if via == "Q" else (turn @ reader.W_K, reader.W_Q.T)


def by_hand(reader: Head, writer: Head, via: str, offset: int = 0) -> float:
    left, right = ends(reader, via, offset)
    W_OV = writer.W_O @ writer.W_V
    return float(norm(left @ W_OV @ right) / (norm(right @ left) * norm(W_OV)))


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_every_score_equals_the_dense_formula(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    seen = processed(weights, processing)
    heads = {str(head): seen.head(head) for head in seen.head_ids()}
    for (via, reader, writer), row in by_pair(cyclic_scores(weights, processing=processing, offset=3)).items():
        assert row["score"] == pytest.approx(by_hand(heads[reader], heads[writer], via, 3), abs=1e-9)
        assert row["reverse_score"] == pytest.approx(by_hand(heads[writer], heads[reader], via, 3), abs=1e-9)
        assert row["flag"] is None


def test_it_is_not_composition_though_its_eigenvalues_are():
    weights = random_weights()
    real, other = by_pair(composition_scores(weights)), by_pair(cyclic_scores(weights))
    assert min(abs(other[key]["score"] - row["score"]) for key, row in real.items()) > 1e-3
    reader, writer = weights.head("L1H1"), weights.head("L0H2")
    left, right = ends(reader, "K")
    whole = torch.linalg.eigvals(right @ left @ writer.ov.dense())
    small = torch.linalg.eigvals(left @ writer.ov.dense() @ right)
    assert float(small.sum().real) == pytest.approx(float(whole.sum().real), abs=1e-9)


def test_it_changes_with_the_basis_inside_d_head_where_composition_does_not():
    weights = random_weights(n_kv_heads=4, positions="none")
    A = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    moved = weights.replace(W_Q=A.mT @ weights.W_Q, W_K=torch.linalg.inv(A) @ weights.W_K)
    before, after = (by_pair(cyclic_scores(w, via="K")) for w in (weights, moved))
    assert max(abs(after[key]["score"] - row["score"]) for key, row in before.items()) > 0.05
    before, after = (by_pair(composition_scores(w, via="K")) for w in (weights, moved))
    assert max(abs(after[key]["score"] - row["score"]) for key, row in before.items()) < 1e-9


@pytest.mark.parametrize("via", ["K", "V"])
@pytest.mark.parametrize("kind", ["none", "layer"])
def test_the_null_is_that_of_two_independent_rotations(kind: str, via: str):
    weights = random_weights(norm=kind, d_model=7, d_head=3, n_heads=2, n_kv_heads=1)
    seen = processed(weights, "folded")
    row = by_pair(cyclic_scores(weights))[via, "L1H1", "L0H0"]
    left, right = ends(seen.head("L1H1"), via)
    W_OV = seen.head("L0H0").ov.dense()
    first, second = (rotations(20_000, 7, centred=kind == "layer", seed=seed) for seed in (1, 2))
    squares = (left @ first @ W_OV @ second @ right).square().sum((-2, -1))
    assert agrees_with_draws(squares / (norm(right @ left) * norm(W_OV)).square(), row)


@pytest.mark.parametrize(
    ("model", "planted"),
    [
        (induction_model, ("K", "L1H0", "L0H0")),
        (rotary_induction_model, ("K", "L1H0", "L0H0")),
        (pointer_model, ("Q", "L1H0", "L0H0")),
    ],
)
def test_planted_composition_stands_out_and_is_gone_without_its_part(model: Callable[..., Built], planted: Key):
    weights = among_others(model(d_vocab=9, n_ctx=16).weights)
    assert stands_out(cyclic_scores(weights, via=planted[0]), planted)
    W_O = weights.W_O.clone()
    W_O[0, 0] = 0
    without = by_pair(cyclic_scores(weights.replace(W_O=W_O)))[planted]
    assert without["score"] is None and without["flag"].startswith("zero circuit: L0H0 OV")


def test_zero_heads_one_dimension_and_models_without_pairs():
    weights = random_weights(n_kv_heads=4)
    W_K = weights.W_K.clone()
    W_K[1, 1] = 0
    for (via, reader, _), row in by_pair(cyclic_scores(weights.replace(W_K=W_K))).items():
        assert (row["score"] is None) == (reader == "L1H1" and via != "V") == (row["flag"] is not None)
    thin = by_pair(cyclic_scores(random_weights(d_model=1, d_head=2)))["V", "L1H0", "L0H0"]
    assert thin["score"] is not None and thin["null_rms"] is None and thin["flag"] == "z: the null does not vary"
    assert len(cyclic_scores(random_weights(biases="none", n_layers=1))) == 0


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scale_neither_overflows_nor_underflows(scale: float):
    weights = random_weights(dtype=torch.float32)
    scaled: dict[str, Any] = {n: getattr(weights, n) * scale for n in ("W_Q", "W_K", "W_V", "W_O")}
    before, after = by_pair(cyclic_scores(weights)), by_pair(cyclic_scores(weights.replace(**scaled)))
    assert all(after[key]["score"] == pytest.approx(row["score"], rel=1e-4) for key, row in before.items())
    assert all(after[key]["z"] == pytest.approx(row["z"], rel=1e-2, abs=1e-2) for key, row in before.items())


def test_bad_input_is_refused():
    with pytest.raises(CannotCompose):
        cyclic_scores(random_weights(), reader="L0H1")
    with pytest.raises(UsageError):
        cyclic_scores(random_weights(), offset=-1)
