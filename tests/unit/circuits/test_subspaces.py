"""Spaces, shares of the stream and erasing heads, against dense matrices, random rotations, and hand-made answers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from headway.algebra.subspace import overlap
from headway.circuits.as_read import tokens_as_read
from headway.circuits.kernel import projection_kernel
from headway.circuits.memory import memory_scores
from headway.circuits.stream_use import dims_holding, stream_components
from headway.circuits.subspaces import SPACES, head_spaces, space_overlaps, write_shares
from headway.errors import BadInput, UnknownName
from headway.model.process import processed
from headway.sources.handmade.induction import induction_model
from support.composed import rotations
from support.random_models import FEATURES, feature_name, random_weights

USABLE = [f for f in FEATURES if f.get("n_layers") != 0]


@pytest.mark.parametrize("feature", USABLE, ids=feature_name)
def test_spaces_hold_exactly_what_the_dense_circuits_read_and_write(feature: dict[str, Any]):
    weights = random_weights(**feature)
    seen = processed(weights, "folded")
    for id_ in weights.head_ids():
        spaces, head = head_spaces(weights, id_), seen.head(id_)
        qk, ov = head.qk(1).dense(), head.ov.dense()
        ov = ov - ov.mean(0) if "reads centred" in seen.provenance.steps else ov
        for basis, matrix in ((spaces.query, qk), (spaces.key, qk.T), (spaces.value, ov.T), (spaces.write, ov)):
            torch.testing.assert_close(basis.T @ basis, torch.eye(basis.shape[1], dtype=torch.float64))
            torch.testing.assert_close(basis @ (basis.T @ matrix), matrix, atol=1e-9, rtol=0)
            assert basis.shape[1] == torch.linalg.matrix_rank(matrix)


def test_overlaps_of_writes_and_reads_are_the_projection_kernel():
    weights = random_weights(norm="rms", positions="none")
    kernel = {(r["writer"], r["reader"], r["via"]): r for r in projection_kernel(weights).rows()}
    found = 0
    for via, name in (("Q", "query"), ("K", "key"), ("V", "value")):
        for row in space_overlaps(weights, space="write", other_space=name).rows():
            if (pair := (row["head"], row["other"], via)) in kernel:
                found += 1
                assert row["overlap"] == pytest.approx(kernel[pair]["score"], abs=1e-9)
                assert row["z"] == pytest.approx(kernel[pair]["z"], abs=1e-6)
    assert found == len(kernel)


def test_overlap_of_random_directions_is_as_expected():
    weights = random_weights(norm="none", n_heads=2, n_kv_heads=2, n_layers=1, d_model=9, d_head=3)
    row = space_overlaps(weights, space="value", other_space="key").rows()[0]
    a, b = head_spaces(weights, row["head"]).value, head_spaces(weights, row["other"]).key
    drawn = overlap(rotations(8000, 9) @ a, b.expand(8000, -1, -1))
    error = float(drawn.std()) / math.sqrt(8000)
    assert float(drawn.mean()) == pytest.approx(row["expected"], abs=4 * error)
    assert (row["overlap"] - row["expected"]) / row["z"] == pytest.approx(float(drawn.std()), rel=0.05)


def test_every_two_spaces_of_different_heads_once():
    weights = random_weights(n_layers=1)
    rows = space_overlaps(weights).rows()
    assert (
        len(rows) == 6 * 16
        and len({frozenset({(r["head"], r["space"]), (r["other"], r["other_space"])}) for r in rows}) == 96
    )
    assert {r["space"] for r in rows} == set(SPACES)


def test_zero_heads_have_no_spaces():
    weights = random_weights()
    W_O = weights.W_O.clone()
    W_O[0, 0] = 0
    weights = weights.replace(W_O=W_O)
    assert head_spaces(weights, "L0H0").write.shape == (10, 0)
    rows = [r for r in space_overlaps(weights, space="write").rows() if r["head"] == "L0H0"]
    assert rows and all(r["share"] is None and r["flag"] == "zero circuit" for r in rows)
    assert next(r for r in write_shares(weights).rows() if r["writer"] == "L0H0")["flag"] == "writes nothing"
    assert next(r for r in memory_scores(weights).rows() if r["head"] == "L0H0")["flag"] == "zero circuit: L0H0 OV"


def test_the_planted_pair_shares_its_whole_space_and_nobody_else_does():
    weights = induction_model(d_vocab=6).weights
    share = {
        (r["head"], r["other"], r["other_space"]): r["share"] for r in space_overlaps(weights, space="write").rows()
    }
    assert share["L0H0", "L1H0", "key"] == pytest.approx(1)
    assert share["L0H0", "L1H0", "query"] == pytest.approx(0, abs=1e-9)
    alone = write_shares(weights).rows()
    assert {r["writer"]: round(r["largest"], 6) for r in alone} == {"token": 1, "position": 1, "L0H0": 1, "L1H0": 1}
    with pytest.raises(UnknownName, match="query or key or value or write"):
        space_overlaps(weights, space="keys")


@pytest.mark.parametrize("feature", USABLE, ids=feature_name)
def test_shares_of_writers_add_up_and_are_those_of_dense_moments(feature: dict[str, Any]):
    weights = random_weights(**feature)
    table = write_shares(weights)
    rows, seen = {r["writer"]: r for r in table.rows()}, processed(weights, "folded")
    assert sum(r["dims"] for r in rows.values()) == pytest.approx(table.meta["dimensions_written"], abs=1e-6)
    assert sum(r["energy"] for r in rows.values()) == pytest.approx(1)
    moments = {"token": seen.W_E @ seen.W_E.T / seen.config.d_vocab}
    if seen.W_pos is not None:
        moments["position"] = seen.W_pos @ seen.W_pos.T / seen.W_pos.shape[1]
    for id_ in seen.head_ids():
        written = seen.head(id_).ov.dense() @ tokens_as_read(seen, id_.layer)
        moments[str(id_)] = written @ written.T / seen.config.d_vocab
    total = torch.stack(list(moments.values())).sum(0)
    for name, moment in moments.items():
        values = torch.linalg.eigvals(moment @ torch.linalg.pinv(total)).real
        assert rows[name]["dims"] == pytest.approx(float(values.sum()), abs=1e-6)
        assert rows[name]["largest"] == pytest.approx(float(values.max()), abs=1e-6)
        assert rows[name]["mostly"] == int((values > 0.5).sum())


def test_shares_do_not_know_the_basis_of_the_stream():
    weights = random_weights(norm="none", positions="none")
    T = torch.randn(10, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    back = torch.linalg.inv(T)
    moved = weights.replace(
        W_E=T @ weights.W_E, W_U=weights.W_U @ back, W_O=T @ weights.W_O,
        W_Q=weights.W_Q @ back, W_K=weights.W_K @ back, W_V=weights.W_V @ back,
    )  # fmt: skip
    for a, b in zip(write_shares(weights).rows(), write_shares(moved).rows(), strict=True):
        assert (a["dims"], a["largest"]) == pytest.approx((b["dims"], b["largest"]), abs=1e-6)
    for a, b in zip(memory_scores(weights).rows(), memory_scores(moved).rows(), strict=True):
        assert (a["head"], a["ratio"]) == (b["head"], pytest.approx(b["ratio"], abs=1e-9))


def test_joint_components_are_those_of_the_dense_concatenation():
    weights = random_weights(norm="layer")
    seen = processed(weights, "folded")
    parts = [m - m.mean(1, keepdim=True) for m in (seen.W_E, seen.W_U.T)]
    both = torch.cat([m / m.norm() / math.sqrt(2) for m in parts], dim=1)
    values = torch.linalg.svdvals(both).square()
    rows = stream_components(weights).rows()
    assert [r["variance"] for r in rows] == pytest.approx(values[values > 1e-12].tolist(), abs=1e-9)
    for r in rows:
        assert (r["embedding"] + r["unembedding"]) / 2 == pytest.approx(r["variance"], abs=1e-9)
    assert sum(r["embedding"] for r in rows) == pytest.approx(1) == sum(r["unembedding"] for r in rows)


def test_separate_spaces_are_exclusive_and_one_space_is_mixed():
    weights = random_weights(norm="none", d_model=8, d_vocab=30)
    halves = torch.eye(8, dtype=torch.float64)
    apart = weights.replace(W_E=halves[:, :4] @ weights.W_E[:4], W_U=weights.W_U[:, :4] @ halves[4:])
    assert all(abs(abs(r["mix"]) - 1) < 1e-9 for r in stream_components(apart).rows())
    same = weights.replace(W_U=weights.W_E.T.clone())
    assert all(abs(r["mix"]) < 1e-9 for r in stream_components(same).rows())
    with pytest.raises(BadInput, match="W_U is constant"):
        stream_components(weights.replace(W_U=torch.ones_like(weights.W_U)))
    assert dims_holding(torch.tensor([1.0, 1.0, 1.0, 1.0]), 0.5) == 2


@pytest.mark.parametrize("feature", USABLE, ids=feature_name)
def test_erasing_is_of_the_dense_eigenvalues(feature: dict[str, Any]):
    weights = random_weights(**feature)
    seen = processed(weights, "folded")
    rows = memory_scores(weights).rows()
    assert [r["ratio"] for r in rows] == sorted(r["ratio"] for r in rows)
    for r in rows:
        values = torch.linalg.eigvals(seen.head(r["head"]).ov.dense())
        size = float(values.abs().sum())
        assert r["ratio"] == pytest.approx(float(values.sum().real) / size, abs=1e-9)
        assert r["negative"] == pytest.approx(float(values.abs()[values.real < -1e-9].sum()) / size, abs=1e-9)
        assert r["most_negative"] == pytest.approx(float(values.real.min()), abs=1e-9)


def test_a_head_that_takes_away_what_it_reads():
    weights = random_weights(norm="none", n_layers=1, n_heads=1, n_kv_heads=1)
    eraser = weights.replace(W_O=-torch.linalg.pinv(weights.W_V[0, 0])[None, None])
    (row,) = memory_scores(eraser).rows()
    assert (row["ratio"], row["negative"], row["most_negative"]) == pytest.approx((-1, 1, -1))
