"""The projection kernel against principal angles of dense circuits, random rotations and spaces of known overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headway.algebra.subspace import column_basis, overlap, principal_angles
from headway.circuits.kernel import COLUMNS, projection_kernel
from headway.errors import CannotCompose, UsageError
from headway.model.process import processed
from headway.sources.handmade import induction_model, pointer_model, rotary_induction_model
from headway.sources.handmade.built import Built
from support.composed import Key, among_others, by_pair, circuits, rotations, stands_out
from support.random_models import FEATURES, feature_name, random_weights


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_it_is_the_overlap_of_dense_column_and_row_spaces(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    seen = processed(weights, processing)
    dense = {str(head): circuits(seen.head(head), 2) for head in seen.head_ids()}
    for (via, reader, writer), row in by_pair(projection_kernel(weights, processing=processing, offset=2)).items():
        written, read = column_basis(dense[writer]["V"], rtol=1e-9), column_basis(dense[reader][via].T, rtol=1e-9)
        assert row["score"] == pytest.approx(float(overlap(written, read)), abs=1e-9)
        assert row["score"] == pytest.approx(float(principal_angles(written, read).cos().square().sum()), abs=1e-6)
        assert (row["written"], row["read"]) == (written.shape[1], read.shape[1])
        assert row["share"] == pytest.approx(row["score"] / min(written.shape[1], read.shape[1]), abs=1e-9)
        back = column_basis(dense[reader]["V"], rtol=1e-9), column_basis(dense[writer][via].T, rtol=1e-9)
        assert row["reverse_score"] == pytest.approx(float(overlap(*back)), abs=1e-9)
        assert row["flag"] is None or row["flag"] == "z: the null does not vary"  # a space that is the whole stream


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_the_null_is_that_of_random_rotations(norm: str):
    weights = random_weights(norm=norm, d_model=7, d_head=3, n_heads=2, n_kv_heads=1)
    seen = processed(weights, "folded")
    row = by_pair(projection_kernel(weights))["K", "L1H1", "L0H0"]
    read, written = column_basis(seen.head("L1H1").qk().T), column_basis(seen.head("L0H0").ov)
    found = (read.T @ rotations(8000, 7, centred=norm == "layer") @ written).square().sum((-2, -1))
    spread = (row["score"] - row["null_mean"]) / row["z"]
    assert float(found.mean()) == pytest.approx(row["null_mean"], abs=3.5 * float(found.std()) / 8000**0.5)
    assert float(found.std()) == pytest.approx(spread, rel=0.05)
    if norm == "none":
        assert row["null_mean"] == pytest.approx(3 * 3 / 7)


def test_it_does_not_see_how_strongly_anything_is_written_or_read():
    weights = random_weights(n_kv_heads=4)
    fade = torch.logspace(0, -4, 5, dtype=torch.float64)
    faded = weights.replace(W_O=weights.W_O * fade, W_Q=weights.W_Q * fade[:, None])
    before, after = by_pair(projection_kernel(weights)), by_pair(projection_kernel(faded))
    for key, row in before.items():
        assert after[key]["score"] == pytest.approx(row["score"], abs=1e-8)
        assert after[key]["z"] == pytest.approx(row["z"], abs=1e-6)


def test_spaces_of_lower_rank_count_their_own_dimensions():
    weights = random_weights(n_kv_heads=4)
    W_O = weights.W_O.clone()
    W_O[0, 1] = W_O[0, 1, :, :2] @ torch.randn(2, 5, dtype=torch.float64)
    row = by_pair(projection_kernel(weights.replace(W_O=W_O)))["Q", "L1H0", "L0H1"]
    assert (row["written"], row["read"]) == (2, 5)
    assert row["null_mean"] == pytest.approx(1.0) and 0 <= row["score"] <= 2


def test_zero_heads_share_nothing_and_say_so():
    weights = random_weights(n_kv_heads=4)
    W_O, W_K = weights.W_O.clone(), weights.W_K.clone()
    W_O[0, 2] = 0
    W_K[1, 1] = 0
    for (via, reader, writer), row in by_pair(projection_kernel(weights.replace(W_O=W_O, W_K=W_K))).items():
        zero = writer == "L0H2" or (reader == "L1H1" and via != "V")
        assert (row["score"] is None) == (row["share"] is None) == (row["z"] is None) == zero
        assert row["written"] == (0 if writer == "L0H2" else 5)
        assert row["flag"] is not None or not zero


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
    table = projection_kernel(weights, via=planted[0])
    assert by_pair(table)[planted]["share"] == pytest.approx(1)
    assert stands_out(table, planted, lambda row: row["share"])
    W_O = weights.W_O.clone()
    W_O[0, 0] = 0
    assert by_pair(projection_kernel(weights.replace(W_O=W_O)))[planted]["score"] is None
    others = [row for row in projection_kernel(model(d_vocab=9, n_ctx=16).weights).rows() if row["via"] != planted[0]]
    assert [row["score"] for row in others] == pytest.approx([0, 0], abs=1e-12)


def test_single_precision_and_empty_models():
    exact = by_pair(projection_kernel(random_weights()))
    for key, row in by_pair(projection_kernel(random_weights(dtype=torch.float32))).items():
        assert row["score"] == pytest.approx(exact[key]["score"], abs=1e-4)
    empty = projection_kernel(random_weights(biases="none", n_layers=1))
    assert len(empty) == 0 and "no head has an earlier head" in empty.meta["empty"]
    assert list(empty.columns) == list(COLUMNS)


def test_bad_input_is_refused():
    with pytest.raises(CannotCompose):
        projection_kernel(random_weights(), reader="L0H1")
    with pytest.raises(UsageError):
        projection_kernel(random_weights(), via="O")
