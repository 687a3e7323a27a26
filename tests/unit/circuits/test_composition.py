"""Composition against dense matrices, random rotations and hand-made weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.circuits.composition import composition_score, composition_scores, tight_composition_scores
from headway.circuits.pairs import VIAS
from headway.errors import BadInput, CannotCompose, ShapeProblem, UnknownName, UsageError
from headway.model.config import ModelConfig
from headway.model.head import Head
from headway.model.process import processed
from headway.model.weights import Weights
from headway.sources.handmade import induction_model, pointer_model, rotary_induction_model
from headway.sources.handmade.built import Built
from headway.tables.table import Table
from support.composed import Key, agrees_with_draws, among_others, by_pair, circuits, rotations, stands_out
from support.random_models import FEATURES, feature_name, random_weights


def by_hand(reader: dict[str, Tensor], writer: dict[str, Tensor], via: str) -> float:
    """The published formula on multiplied-out matrices."""
    reads, W_OV = reader[via], writer["V"]
    norm = torch.linalg.matrix_norm
    return float(norm(reads @ W_OV) / (norm(reads) * norm(W_OV)))


def scores_of(weights: Weights, **options: Any) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = composition_scores(weights, **options).rows()
    return {(row["via"], row["reader"], row["writer"]): row for row in rows}


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_every_score_and_reverse_score_equals_the_dense_formula(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    seen = processed(weights, processing)
    rows = scores_of(weights, processing=processing, offset=3)
    c = weights.config
    assert len(rows) == 3 * c.n_heads**2 * math.comb(c.n_layers, 2)
    heads = {str(head): seen.head(head) for head in seen.head_ids()}
    dense = {name: circuits(head, 3) for name, head in heads.items()}
    for (via, reader, writer), row in rows.items():
        assert reader[:2] > writer[:2]
        assert row["score"] == pytest.approx(by_hand(dense[reader], dense[writer], via), abs=1e-9)
        assert row["reverse_score"] == pytest.approx(by_hand(dense[writer], dense[reader], via), abs=1e-9)
        assert row["flag"] is None
    for via, reader, writer in list(rows)[::11]:
        one = composition_score(heads[reader], heads[writer], via, offset=3)
        assert one == pytest.approx(rows[via, reader, writer]["score"], abs=1e-9)


def test_the_offset_matters_with_rotary_positions_and_only_to_q_and_k():
    turned = random_weights(positions="rotary", rotary_dims=4)
    plain = random_weights(positions="shortformer")
    for weights, moves in ((turned, {"Q", "K"}), (plain, set())):
        here, there = scores_of(weights), scores_of(weights, offset=5)
        moved = {key[0] for key, row in here.items() if abs(row["score"] - there[key]["score"]) > 1e-6}
        assert moved == moves


def test_a_head_wider_than_the_stream():
    weights = random_weights(d_head=13, d_model=6)
    dense = {str(head): circuits(weights.head(head)) for head in weights.head_ids()}
    for (via, reader, writer), row in scores_of(weights).items():
        assert row["score"] == pytest.approx(by_hand(dense[reader], dense[writer], via), abs=1e-9)


def test_a_change_of_basis_inside_d_head_changes_nothing():
    weights = random_weights(n_kv_heads=4, norm="layer")
    c = weights.config
    basis, other = (torch.randn(c.n_layers, c.n_heads, c.d_head, c.d_head, dtype=torch.float64) for _ in range(2))
    moved = weights.replace(
        W_Q=basis.mT @ weights.W_Q,
        W_K=torch.linalg.inv(basis) @ weights.W_K,
        W_V=other @ weights.W_V,
        W_O=weights.W_O @ torch.linalg.inv(other),
    )
    before, after = scores_of(weights), scores_of(moved)
    for key, row in before.items():
        assert after[key]["score"] == pytest.approx(row["score"], abs=1e-9)
        assert after[key]["z"] == pytest.approx(row["z"], abs=1e-6)


def test_known_answers_on_blocks():
    # d_model 6 in three blocks of 2. The writer moves block 0 to block 1; the readers' keys, queries and values look at
    # block 1, block 2, and block 1: K and V read all of it (rank 2 on rank 2: 1/sqrt 2), Q none.
    eye = torch.eye(6, dtype=torch.float64)
    blocks = eye[0:2], eye[2:4], eye[4:6]
    writer = Head(W_Q=blocks[0], W_K=blocks[0], W_V=blocks[0], W_O=blocks[1].T)
    reader = Head(W_Q=blocks[2], W_K=blocks[1], W_V=blocks[1], W_O=blocks[2].T)
    found = [composition_score(reader, writer, via) for via in VIAS]
    assert found == pytest.approx([0, math.sqrt(0.5), math.sqrt(0.5)], abs=1e-12)
    rows = scores_of(assembled([writer], [reader]))
    assert [rows[via, "L1H0", "L0H0"]["score"] for via in VIAS] == pytest.approx(found, abs=1e-12)
    # The other way round nothing is read: the reader of layer 1 writes block 2, which layer 0 does not read.
    assert [rows[via, "L1H0", "L0H0"]["reverse_score"] for via in VIAS] == [0, 0, 0]


def assembled(*layers: list[Head]) -> Weights:
    """Weights of a model with these heads; its embedding does not matter here."""
    first = layers[0][0]
    d_head, d_model = first.W_Q.shape
    c = ModelConfig(
        n_layers=len(layers), n_heads=len(layers[0]), d_model=d_model, d_head=d_head, d_vocab=3, n_ctx=4, attn_scale=1.0
    )
    stacked: dict[str, Any] = {
        n: torch.stack([torch.stack([getattr(h, n) for h in row]) for row in layers]) for n in MATRICES
    }
    W_E = torch.randn(d_model, 3, dtype=first.W_Q.dtype)
    return Weights(config=c, W_E=W_E, W_U=W_E.T.clone(), **stacked)


MATRICES = ("W_Q", "W_K", "W_V", "W_O")


def rotation_statistics(reads: Tensor, writes: Tensor, free: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    """Mean of s^2 with its standard error, and its variance with its, over rotations inside the columns of `free`."""
    d = free.shape[1]
    q, r = torch.linalg.qr(torch.randn(draws, d, d, dtype=torch.float64))
    q = q * torch.sign(r.diagonal(dim1=-2, dim2=-1))[:, None, :]
    rest = torch.eye(len(free), dtype=torch.float64) - free @ free.T
    turned = reads @ (free @ q @ free.T + rest) @ writes
    squares = turned.square().sum((-2, -1)) / (reads.square().sum() * writes.square().sum())
    mean, variance = squares.mean(), squares.var()
    fourth = (squares - mean).pow(4).mean()
    errors = (variance / draws).sqrt(), ((fourth - variance**2) / draws).sqrt()
    return torch.stack((mean, variance)), torch.stack(errors)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_the_null_is_that_of_random_rotations(norm: str):
    weights = random_weights(norm=norm, d_model=7, d_head=3, n_heads=2, n_kv_heads=1)
    fade = torch.logspace(0, -1.5, 3, dtype=torch.float64)  # decaying spectra, as trained heads have
    weights = weights.replace(W_O=weights.W_O * fade, W_Q=weights.W_Q * fade[:, None])
    seen = processed(weights, "folded")
    row = scores_of(weights)["K", "L1H1", "L0H0"]
    reads, writes = seen.head("L1H1").qk().dense(), seen.head("L0H0").ov.dense()
    free = torch.eye(7, dtype=torch.float64)
    if norm == "layer":  # rotations that leave the all-ones direction alone
        ones = torch.full((7, 1), 1 / math.sqrt(7), dtype=torch.float64)
        free = torch.linalg.svd(free - ones @ ones.T).U[:, :6]
    found, errors = rotation_statistics(reads, writes, free, 10_000)
    mean = row["null_rms"] ** 2
    variance = ((row["score"] ** 2 - mean) / row["z"]) ** 2
    assert abs(float(found[0]) - mean) < 3 * float(errors[0])
    assert abs(float(found[1]) - variance) < 3 * float(errors[1])


def test_the_null_without_norm_is_one_over_root_d():
    rows = composition_scores(random_weights(positions="rotary")).rows()
    assert [row["null_rms"] for row in rows] == pytest.approx([1 / math.sqrt(10)] * len(rows))


def test_centred_reads_never_see_what_a_head_adds_to_the_mean():
    # Writing more of the all-ones direction changes no prediction: the score falls, since it divides by all that is
    # written, and so does its null; z stays.
    weights = random_weights(norm="layer")
    ones = torch.ones(10, 1, dtype=torch.float64)
    louder = weights.replace(W_O=weights.W_O + ones * torch.randn(2, 4, 1, 5, dtype=torch.float64))
    before, after = scores_of(weights), scores_of(louder)
    assert max(abs(after[key]["score"] - row["score"]) for key, row in before.items()) > 0.1
    for key, row in before.items():
        if key[0] != "V":  # a louder reader of values has another W_OV: its own score moves
            assert after[key]["score"] / after[key]["null_rms"] == pytest.approx(row["score"] / row["null_rms"])
            assert after[key]["z"] == pytest.approx(row["z"])


def test_percentiles_rank_among_the_allowed_pairs_of_one_via():
    rows = composition_scores(random_weights(n_layers=3)).rows()
    for via in VIAS:
        mine = [row for row in rows if row["via"] == via]
        scores = [row["score"] for row in mine]
        for row in mine:
            below = sum(s <= row["score"] for s in scores)
            assert row["percentile"] == pytest.approx(100 * below / len(scores))


def test_rows_are_sorted_and_a_reader_keeps_its_percentiles():
    weights = random_weights(n_layers=3)
    everything = composition_scores(weights)
    scores = [row["score"] for row in everything.rows()]
    assert scores == sorted(scores, reverse=True)
    mine = composition_scores(weights, reader="L1H2", via="K").rows()
    assert mine == [row for row in everything.rows() if row["reader"] == "L1H2" and row["via"] == "K"]
    assert {row["writer"] for row in mine} == {f"L0H{h}" for h in range(4)}


def test_a_zero_head_gives_null_and_a_flag_and_leaves_the_others_alone():
    weights = random_weights(n_kv_heads=4)
    before = scores_of(weights)
    W_O, W_K = weights.W_O.clone(), weights.W_K.clone()
    W_O[0, 2] = 0
    W_K[1, 1] = 0
    after = scores_of(weights.replace(W_O=W_O, W_K=W_K))
    for (via, reader, writer), row in after.items():
        reasons = []
        if reader == "L1H1" and via != "V":
            reasons.append("zero circuit: L1H1 QK")
        if writer == "L0H2":
            reasons.append("zero circuit: L0H2 OV")
        missing = [name for name in ("score", "null_rms", "z", "percentile") if row[name] is None]
        assert len(missing) == (4 if reasons else 0)
        if not reasons:
            assert row["score"] == pytest.approx(before[via, reader, writer]["score"], abs=1e-12)
        # Exchanged, L0H2 reads through its OV and L1H1 writes with the OV it still has.
        if writer == "L0H2" and via == "V":
            reasons.append("reverse: zero circuit: L0H2 OV")
            assert row["reverse_score"] is None
        else:
            assert row["reverse_score"] is not None
        assert row["flag"] == ("; ".join(reasons) or None)
    live = [row["percentile"] for row in after.values() if row["via"] == "K" and row["percentile"] is not None]
    assert len(live) == 9 and max(live) == 100


def test_a_zero_layer_is_flagged_everywhere_and_never_not_a_number():
    weights = random_weights()
    empty: dict[str, Any] = {n: getattr(weights, n) * torch.tensor([0, 1])[:, None, None, None] for n in MATRICES}
    rows = composition_scores(weights.replace(**empty)).rows()
    assert len(rows) == 48
    assert all(row["score"] is None and row["flag"] for row in rows)


def test_a_circuit_that_is_zero_up_to_rounding_counts_as_zero():
    # W_O W_V is zero because they meet in orthogonal directions of d_head, which rounding does not show exactly.
    weights = random_weights(n_heads=1, n_kv_heads=1)
    turn = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
    W_O, W_V = weights.W_O.clone(), weights.W_V.clone()
    W_O[0, 0] = torch.randn(10, 2, dtype=torch.float64) @ turn[:2]
    W_V[0, 0] = turn[2:].T @ torch.randn(3, 10, dtype=torch.float64)
    assert float((W_O[0, 0] @ W_V[0, 0]).abs().max()) > 0
    row = scores_of(weights.replace(W_O=W_O, W_V=W_V))["K", "L1H0", "L0H0"]
    assert row["score"] is None and row["flag"] == "zero circuit: L0H0 OV"


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scale_neither_overflows_nor_underflows(scale: float):
    weights = random_weights(dtype=torch.float32)
    scaled: dict[str, Any] = {n: getattr(weights, n) * scale for n in MATRICES}
    before, after = scores_of(weights), scores_of(weights.replace(**scaled))
    assert all(after[key]["score"] == pytest.approx(row["score"], rel=1e-4) for key, row in before.items())


def test_half_precision_is_computed_in_single():
    table = composition_scores(random_weights(dtype=torch.bfloat16))
    assert table.meta["dtype"] == "float32"
    exact = scores_of(random_weights(dtype=torch.bfloat16).to(torch.float64))
    for row in table.rows():
        assert row["score"] == pytest.approx(exact[row["via"], row["reader"], row["writer"]]["score"], abs=1e-5)


def test_an_isotropic_circuit_has_a_score_but_no_z():
    turn = torch.linalg.qr(torch.randn(4, 4, 4, dtype=torch.float64)).Q
    head = Head(W_Q=turn[0], W_K=turn[1], W_V=turn[2], W_O=turn[3])
    row = scores_of(assembled([head], [head]))["Q", "L1H0", "L0H0"]
    assert row["score"] == pytest.approx(0.5) and row["z"] is None and row["flag"] == "z: the null does not vary"


def test_one_dimension_has_scores_without_a_null():
    row = scores_of(random_weights(d_model=1, d_head=2))["V", "L1H0", "L0H0"]
    assert row["score"] == pytest.approx(1) and row["null_rms"] is None and row["flag"]


@pytest.mark.parametrize("shape", [{"n_layers": 1}, {"n_layers": 0}, {"n_heads": 0, "n_kv_heads": 0}])
def test_a_model_without_pairs_gives_an_empty_table_that_says_why(shape: dict[str, Any]):
    table = composition_scores(random_weights(biases="none", **shape))
    assert len(table) == 0 and list(table.columns)[:4] == ["reader", "writer", "via", "score"]
    assert "no head has an earlier head" in table.meta["empty"]


def test_the_table_says_what_the_scores_were_taken_from():
    weights = random_weights(norm="layer", positions="rotary", rotary_dims=2)
    table = composition_scores(weights, via="K", reader="L1H0", offset=2)
    assert table.provenance.weights == weights.content_hash()
    assert table.provenance.processing == "norms folded + reads centred"
    assert table.provenance.options == {"via": "K", "offset": 2, "reader": "L1H0"}
    assert "d=9" in table.meta["null"] and table.meta["positions"] == "rotary"
    assert composition_scores(weights, processing="raw").provenance.processing == "raw"


def test_readers_that_read_nobody_are_refused_with_those_that_do():
    with pytest.raises(CannotCompose, match=r"L1H0 to L1H3"):
        composition_scores(random_weights(), reader="L0H1")
    with pytest.raises(CannotCompose, match="two layers or more"):
        composition_scores(random_weights(n_layers=1), reader="L0H1")
    with pytest.raises(UnknownName):
        composition_scores(random_weights(), reader="L1H9")


@pytest.mark.parametrize(
    "options", [{"via": "k"}, {"via": ""}, {"via": "QK"}, {"processing": "clean"}, {"offset": -1}, {"offset": True}]
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]):
    with pytest.raises(UsageError):
        composition_scores(random_weights(), **options)


def test_one_pair_is_checked_too():
    weights = random_weights()
    early, late = weights.head("L0H0"), weights.head("L1H0")
    with pytest.raises(CannotCompose):
        composition_score(early, late, "K")
    with pytest.raises(CannotCompose):
        composition_score(late, weights.head("L1H1"), "V")
    with pytest.raises(UsageError):
        composition_score(late, early, "O")
    with pytest.raises(BadInput, match="W_OV is zero"):
        composition_score(late, replace(early, W_O=early.W_O * 0), "K")
    with pytest.raises(BadInput, match="reader's circuit is zero"):
        composition_score(replace(late, W_Q=late.W_Q * 0), early, "K")
    with pytest.raises(ShapeProblem):
        composition_score(late, random_weights(d_model=7).head("L0H0"), "V")
    with pytest.raises(UsageError):
        composition_score(late, early, "K", offset=-1)


def tight_by_hand(reader: dict[str, Tensor], writer: dict[str, Tensor], via: str) -> float:
    """The norm of the product over what sorted singular values allow."""
    reads, W_OV = reader[via], writer["V"]
    s, t = (torch.linalg.svdvals(m) for m in (reads, W_OV))
    return float(torch.linalg.matrix_norm(reads @ W_OV) / (s.square() * t.square()).sum().sqrt())


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_the_tight_score_equals_the_dense_formula(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    seen = processed(weights, processing)
    dense = {str(head): circuits(seen.head(head), 3) for head in seen.head_ids()}
    plain = scores_of(weights, processing=processing, offset=3)
    rows = by_pair(tight_composition_scores(weights, processing=processing, offset=3))
    assert list(rows) == list(dict.fromkeys(rows)) and set(rows) == set(plain)
    for (via, reader, writer), row in rows.items():
        assert row["score"] == pytest.approx(tight_by_hand(dense[reader], dense[writer], via), abs=1e-9)
        assert row["reverse_score"] == pytest.approx(tight_by_hand(dense[writer], dense[reader], via), abs=1e-9)
        assert row["z"] == pytest.approx(plain[via, reader, writer]["z"], abs=1e-6)
        assert row["flag"] is None


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_the_tight_null_is_that_of_random_rotations(norm: str):
    weights = random_weights(norm=norm, d_model=7, d_head=3, n_heads=2, n_kv_heads=1)
    seen = processed(weights, "folded")
    row = by_pair(tight_composition_scores(weights))["V", "L1H1", "L0H0"]
    reads, writes = seen.head("L1H1").ov.dense(), seen.head("L0H0").ov.dense()
    most = (torch.linalg.svdvals(reads).square() * torch.linalg.svdvals(writes).square()).sum()
    squares = (reads @ rotations(8000, 7, centred=norm == "layer") @ writes).square().sum((-2, -1)) / most
    assert agrees_with_draws(squares, row)


def test_the_tight_score_is_one_where_strongest_meets_strongest_and_falls_when_they_are_exchanged():
    turn = torch.linalg.qr(torch.randn(7, 7, dtype=torch.float64)).Q
    sizes = torch.tensor([4.0, 2.0, 0.5], dtype=torch.float64)
    writer = Head(W_Q=turn[:3], W_K=turn[:3], W_V=turn[:3], W_O=turn[3:6].T * sizes)
    reader = Head(W_Q=turn[:3], W_K=turn[3:6] * sizes[:, None], W_V=turn[3:6] * sizes.flip(0)[:, None], W_O=turn[:3].T)
    rows = by_pair(tight_composition_scores(assembled([writer], [reader])))
    assert rows["K", "L1H0", "L0H0"]["score"] == pytest.approx(1)
    least = float((sizes.square() * sizes.square().flip(0)).sum() / (sizes**4).sum())
    assert rows["V", "L1H0", "L0H0"]["score"] == pytest.approx(math.sqrt(least))
    plain = composition_scores(assembled([writer], [reader]), via="K").rows()[0]["score"]
    assert plain == pytest.approx(
        float((sizes**4).sum().sqrt() / sizes.square().sum())
    )  # 0.81 over the product of norms


def test_a_tight_score_of_a_zero_head_is_null_and_flagged():
    weights = random_weights()
    W_O = weights.W_O.clone()
    W_O[0, 2] = 0
    for (_, _, writer), row in by_pair(tight_composition_scores(weights.replace(W_O=W_O))).items():
        assert (row["score"] is None) == (writer == "L0H2")
        assert ("zero circuit: L0H2 OV" in (row["flag"] or "")) == (writer == "L0H2")


PLANTED = [
    (induction_model, ("K", "L1H0", "L0H0")),
    (rotary_induction_model, ("K", "L1H0", "L0H0")),
    (pointer_model, ("Q", "L1H0", "L0H0")),
]


@pytest.mark.parametrize(("model", "planted"), PLANTED)
@pytest.mark.parametrize("measure", [composition_scores, tight_composition_scores])
def test_planted_composition_stands_out_and_is_gone_without_its_part(
    model: Callable[..., Built], planted: Key, measure: Callable[..., Table]
):
    weights = among_others(model(d_vocab=9, n_ctx=16).weights)
    assert stands_out(measure(weights, via=planted[0]), planted)
    W_O = weights.W_O.clone()
    W_O[0, 0] = 0
    without = by_pair(measure(weights.replace(W_O=W_O)))[planted]
    assert without["score"] is None and "zero circuit: L0H0 OV" in without["flag"]
    others = [row for row in measure(model(d_vocab=9, n_ctx=16).weights).rows() if row["via"] != planted[0]]
    assert [row["score"] for row in others] == pytest.approx([0, 0], abs=1e-12)
