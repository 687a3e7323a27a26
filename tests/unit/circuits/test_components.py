"""Composition by singular component against a dense SVD, blocks of repeated singular values, and random rotations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.circuits.components import COLUMNS, component_composition_scores
from headway.circuits.composition import composition_scores
from headway.errors import CannotCompose, UsageError
from headway.model.process import processed
from headway.model.weights import Weights
from headway.sources.handmade import induction_model, pointer_model, rotary_induction_model
from headway.sources.handmade.built import Built
from headway.tables.table import Table
from support.composed import Key, agrees_with_draws, among_others, circuits, rotations
from support.random_models import FEATURES, feature_name, random_weights


def by_component(table: Table) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    return {(r["via"], r["reader"], r["writer"], r["component"]): r for r in table.rows()}


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_every_score_equals_the_dense_singular_vectors(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    seen = processed(weights, processing)
    dense = {str(head): circuits(seen.head(head), 3) for head in seen.head_ids()}
    rows = by_component(component_composition_scores(weights, processing=processing, offset=3))
    rank = min(weights.config.d_head, weights.config.d_model)
    assert len(rows) == len(composition_scores(weights)) * rank
    for (via, reader, writer, number), row in rows.items():
        U, S, _ = torch.linalg.svd(dense[writer]["V"])
        reads = dense[reader][via]
        exact = float(torch.linalg.vector_norm(reads @ U[:, number - 1]) / torch.linalg.matrix_norm(reads))
        assert row["score"] == pytest.approx(exact, abs=1e-9)
        assert row["share"] == pytest.approx(float(S[number - 1].square() / S.square().sum()), abs=1e-9)
        assert row["dims"] == 1 and row["flag"] is None


def test_shares_of_squares_add_up_to_the_whole_score():
    weights = random_weights(norm="layer", n_layers=3)
    parts: dict[Key, float] = {}
    for (via, reader, writer, _), row in by_component(component_composition_scores(weights)).items():
        parts[via, reader, writer] = parts.get((via, reader, writer), 0.0) + row["share"] * row["score"] ** 2
    for row in composition_scores(weights).rows():
        assert parts[row["via"], row["reader"], row["writer"]] == pytest.approx(row["score"] ** 2, abs=1e-9)


def with_spectrum(sizes: Tensor, turn: Tensor | None = None) -> Weights:
    """Random heads, W_OV of L0H0 with these singular values; `turn` is another basis for equal ones."""
    weights = random_weights(n_kv_heads=4, d_model=11)
    k = len(sizes)
    left, right = (torch.linalg.qr(weights.W_V[1, i].T).Q[:, :k] for i in (0, 1))
    if turn is not None:
        left, right = left @ turn, right @ turn
    W_O, W_V = weights.W_O.clone(), weights.W_V.clone()
    W_O[0, 0], W_V[0, 0] = 0, 0
    W_O[0, 0, :, :k], W_V[0, 0, :k] = left * sizes, right.T
    return weights.replace(W_O=W_O, W_V=W_V)


def test_repeated_singular_values_are_one_block_whatever_their_basis():
    sizes = torch.tensor([2.0, 1.0, 1.0, 1.0, 0.25], dtype=torch.float64)
    turn = torch.eye(5, dtype=torch.float64)
    turn[1:4, 1:4] = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    found = [by_component(component_composition_scores(with_spectrum(sizes, t))) for t in (None, turn)]
    rows = {key: row for key, row in found[0].items() if key[2] == "L0H0"}
    assert {(key[3], row["dims"]) for key, row in rows.items()} == {(1, 1), (2, 3), (3, 1)}
    for key, row in rows.items():
        for name in ("score", "share", "z"):
            assert found[1][key][name] == pytest.approx(row[name], abs=1e-9)
    # The block's score is the root mean square over any orthonormal basis of it.
    weights = with_spectrum(sizes)
    W_QK = weights.head("L1H2").qk().dense()
    block = torch.linalg.svd(weights.head("L0H0").ov.dense()).U[:, 1:4]
    exact = float(torch.linalg.matrix_norm(W_QK @ block) / math.sqrt(3) / torch.linalg.matrix_norm(W_QK))
    assert rows["K", "L1H2", "L0H0", 2]["score"] == pytest.approx(exact, abs=1e-9)


def test_values_of_zero_are_no_components():
    rows = by_component(component_composition_scores(with_spectrum(torch.tensor([2.0, 1.0], dtype=torch.float64))))
    assert {key[3] for key in rows if key[2] == "L0H0"} == {1, 2}
    assert sum(row["share"] for key, row in rows.items() if key[:3] == ("K", "L1H0", "L0H0")) == pytest.approx(1)


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("component", [1, 2])
def test_the_null_is_that_of_random_rotations(norm: str, component: int):
    weights = random_weights(norm=norm, d_model=7, d_head=3, n_heads=2, n_kv_heads=1)
    left, _, V = torch.linalg.svd(weights.W_O[0, 0] @ weights.W_V[0, 0])
    W_O, W_V = weights.W_O.clone(), weights.W_V.clone()
    W_O[0, 0], W_V[0, 0] = left[:, :3] * torch.tensor([3.0, 1.0, 1.0], dtype=torch.float64), V[:3]
    weights = weights.replace(W_O=W_O, W_V=W_V)
    if weights.norm_gain is not None:
        weights = weights.replace(norm_gain=torch.ones_like(weights.norm_gain))
    seen = processed(weights, "folded")
    row = by_component(component_composition_scores(weights))["K", "L1H1", "L0H0", component]
    if norm == "none":
        assert row["dims"] == component and row["null_rms"] == pytest.approx(1 / math.sqrt(7))
    U, S, _ = torch.linalg.svd(seen.head("L0H0").ov.dense())
    block = U[:, :3][:, (S[:3] - S[0]).abs() < 1e-6] if component == 1 else U[:, 1 : 1 + row["dims"]]
    reads = seen.head("L1H1").qk().dense()
    turned = reads @ rotations(8000, 7, centred=norm == "layer") @ block
    squares = turned.square().sum((-2, -1)) / block.shape[1] / reads.square().sum()
    assert agrees_with_draws(squares, row)


def test_a_change_of_basis_inside_d_head_changes_nothing():
    weights = random_weights(n_kv_heads=4)
    basis = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    moved = weights.replace(W_V=basis @ weights.W_V, W_O=weights.W_O @ torch.linalg.inv(basis))
    before, after = (by_component(component_composition_scores(w)) for w in (weights, moved))
    assert set(before) == set(after)
    assert all(after[key]["score"] == pytest.approx(row["score"], abs=1e-7) for key, row in before.items())


def test_zero_circuits_have_one_flagged_row_and_no_component():
    weights = random_weights(n_kv_heads=4)
    W_O, W_K = weights.W_O.clone(), weights.W_K.clone()
    W_O[0, 2] = 0
    W_K[1, 1] = 0
    rows = component_composition_scores(weights.replace(W_O=W_O, W_K=W_K)).rows()
    silent = [row for row in rows if row["writer"] == "L0H2"]
    assert len(silent) == 3 * 4
    for row in silent:
        assert (row["component"], row["dims"], row["share"], row["score"], row["z"]) == (None,) * 5
        assert "zero circuit: L0H2 OV" in row["flag"]
    for row in rows:
        if row["reader"] == "L1H1" and row["via"] != "V" and row["writer"] != "L0H2":
            assert row["score"] is None and row["component"] is not None
            assert row["flag"] == "zero circuit: L1H1 QK"


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
    rows = component_composition_scores(weights, via=planted[0], reader=planted[1]).rows()
    mine = [row for row in rows if row["writer"] == planted[2]]
    theirs = [row for row in rows if row["writer"] != planted[2]]
    # Every component of the planted writer is read, the largest of any other is read less than their mean.
    assert sum(r["share"] * r["score"] ** 2 for r in mine) > max(r["score"] ** 2 for r in theirs)
    W_O = weights.W_O.clone()
    W_O[0, 0] = 0
    rows = component_composition_scores(weights.replace(W_O=W_O), via=planted[0]).rows()
    assert all(row["score"] is None for row in rows if row["writer"] == "L0H0")


def test_single_precision_and_models_without_pairs():
    exact = by_component(component_composition_scores(random_weights()))
    single = by_component(component_composition_scores(random_weights(dtype=torch.float32)))
    assert set(single) == set(exact)
    assert all(row["score"] == pytest.approx(exact[key]["score"], abs=1e-4) for key, row in single.items())
    empty = component_composition_scores(random_weights(biases="none", n_layers=1))
    assert len(empty) == 0 and list(empty.columns) == list(COLUMNS) and empty.meta["empty"]


def test_bad_input_is_refused():
    with pytest.raises(CannotCompose):
        component_composition_scores(random_weights(), reader="L0H1")
    with pytest.raises(UsageError):
        component_composition_scores(random_weights(), via="k")
