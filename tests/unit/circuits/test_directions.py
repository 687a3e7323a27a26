"""Singular directions against dense SVDs, planted spectra, and every freedom of basis there is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from headway.circuits.as_read import tokens_as_read
from headway.circuits.directions import CLOSE, SIDES, block_slices, circuit_directions
from headway.errors import UnknownName, UsageError
from headway.model.config import ModelConfig
from headway.model.process import processed
from headway.model.weights import Weights
from headway.sources.handmade.skip_trigram import skip_trigram_model
from support.random_models import FEATURES, feature_name, random_weights
from support.unchecked import as_users_run_it

D_MODEL, D_HEAD, D_VOCAB = 9, 6, 11
GENERATOR = torch.Generator().manual_seed(5)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


def frame(rows: int, columns: int) -> Tensor:
    return torch.linalg.qr(random(rows, columns)).Q


U, V, READ, WRITTEN = frame(D_MODEL, D_HEAD), frame(D_MODEL, D_HEAD), random(D_MODEL, D_VOCAB), random(D_VOCAB, D_MODEL)


def with_spectrum(values: list[float], inside: Tensor | None = None) -> Weights:
    """One head whose W_OV and W_QK both are U diag(values) V^T, factors in the given basis of d_head."""
    basis = torch.eye(D_HEAD, dtype=torch.float64) if inside is None else inside
    scaled = U * torch.tensor(values, dtype=torch.float64)
    left, right = scaled @ basis, torch.linalg.inv(basis) @ V.T
    config = ModelConfig(
        n_layers=1, n_heads=1, d_model=D_MODEL, d_head=D_HEAD, d_vocab=D_VOCAB, n_ctx=4, attn_scale=1.0
    )
    Q, K, V_, O = (part[None, None] for part in (left.T, right, right, left))
    return Weights(config=config, W_E=READ, W_U=WRITTEN, W_Q=Q, W_K=K, W_V=V_, W_O=O)


def lists(table: Any, block: int, side: str) -> dict[int, tuple[int, float]]:
    """rank -> (token, value) of one block and side."""
    rows = [row for row in table.rows() if row["block"] == block and row["side"] == side]
    return {row["rank"]: (row["token_id"], row["value"]) for row in rows}


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("circuit", ["ov", "qk"])
@pytest.mark.parametrize("features", [f for f in FEATURES if f.get("n_layers") != 0], ids=feature_name)
def test_every_row_is_that_of_the_dense_svd(features: dict[str, Any], circuit: str, processing: str):
    weights = random_weights(**features)
    seen, last = processed(weights, "folded"), f"L{weights.config.n_layers - 1}H0"
    head, offset = seen.head(last), 2
    dense = head.ov.dense() if circuit == "ov" else weights.config.attn_scale * head.qk(offset).dense()
    left, values, right = torch.linalg.svd(dense)
    read = tokens_as_read(seen, weights.config.n_layers - 1).T
    centred = read - read.mean(0)
    first, second = (
        (read @ right.T, (seen.W_U - seen.W_U.mean(0)) @ left)
        if circuit == "ov"
        else (
            read @ left,
            centred @ right.T,
        )
    )
    table = circuit_directions(processed(weights, processing), last, circuit, k=20, offset=offset)
    rank = int((values > 1e-9).sum())
    assert table.meta["directions"] == rank == table.meta["blocks_found"]
    for i in range(rank):
        sign = 1.0 if first[first[:, i].abs().argmax(), i] > 0 else -1.0
        for side, dense_side in zip(SIDES[circuit], (first, second), strict=True):
            column = sign * dense_side[:, i]
            found = lists(table, i + 1, side)
            assert len(found) == weights.config.d_vocab  # each token once, at the end where it is
            for rank_, (token, value) in found.items():
                assert value == pytest.approx(float(column[token]), abs=1e-8)
                nearer = (column > column[token]).sum() if rank_ > 0 else (column < column[token]).sum()
                assert int(nearer) == abs(rank_) - 1
    shares = {row["block"]: row["share"] for row in table.rows()}
    assert sum(shares.values()) == pytest.approx(1)
    assert [row["singular"] for row in table.rows()] == sorted((row["singular"] for row in table.rows()), reverse=True)


def test_both_sides_and_the_singular_value_make_the_entry():
    weights = with_spectrum([5, 4, 3, 2, 1, 0.5])
    table = circuit_directions(weights, "L0H0", "ov", k=D_VOCAB)
    dense = (WRITTEN - WRITTEN.mean(0)) @ weights.head("L0H0").ov.dense() @ READ
    out, source, total = 7, 3, 0.0
    for block in range(1, 7):
        reads = dict(lists(table, block, "reads").values())
        writes = dict(lists(table, block, "writes").values())
        singular = next(row["singular"] for row in table.rows() if row["block"] == block)
        total += singular * writes[out] * reads[source]
    assert total == pytest.approx(float(dense[out, source]), abs=1e-9)


def rotated_inside(values: list[float]) -> Tensor:
    """A rotation of d_head that mixes only the singular directions with equal values."""
    out = torch.eye(D_HEAD, dtype=torch.float64)
    for value in set(values):
        at = [i for i, other in enumerate(values) if other == value]
        out[torch.tensor(at)[:, None], torch.tensor(at)] = frame(len(at), len(at))
    return out


@pytest.mark.parametrize("circuit", ["ov", "qk"])
@pytest.mark.parametrize("values", [[3, 2, 2, 2, 1, 1], [2, 2, 2, 2, 2, 2], [3, 2, 1, 0.5, 0, 0]])
def test_repeated_values_are_one_block_under_any_basis(values: list[float], circuit: str):
    plain = circuit_directions(with_spectrum(values), "L0H0", circuit, k=4)
    dims = [sum(v == value for v in values) for value in sorted({v for v in values if v}, reverse=True)]
    assert [dims for _, dims in sorted({(row["block"], row["dims"]) for row in plain.rows()})] == dims
    for inside in (rotated_inside(values), random(D_HEAD, D_HEAD) + 3 * torch.eye(D_HEAD, dtype=torch.float64)):
        other = circuit_directions(with_spectrum(values, inside), "L0H0", circuit, k=4)
        for a, b in zip(plain.rows(), other.rows(), strict=True):
            same = ("block", "dims", "side", "rank", "token_id", "flag")
            assert [a[name] for name in same] == [b[name] for name in same]
            for name in ("value", "singular", "singular_least", "share"):
                assert a[name] == pytest.approx(b[name], abs=1e-9)


def test_a_block_gives_lengths_of_projections_and_says_so():
    table = circuit_directions(with_spectrum([3, 2, 2, 2, 1, 1]), "L0H0", "ov", k=3)
    lengths = (READ.T @ V[:, 1:4]).norm(dim=-1)
    rows = lists(table, 2, "reads")
    assert set(rows) == {1, 2, 3}
    assert [rows[rank][0] for rank in (1, 2, 3)] == lengths.topk(3).indices.tolist()
    assert [rows[rank][1] for rank in (1, 2, 3)] == pytest.approx(lengths.topk(3).values.tolist())
    flags = {row["flag"] for row in table.rows() if row["block"] == 2}
    assert flags == {"3 near-equal singular values: only lengths of projections have a meaning"}
    assert {row["flag"] for row in table.rows() if row["block"] == 1} == {None}


def test_near_equal_is_a_stated_gap():
    apart, near = 1 - 2 * CLOSE, 1 - CLOSE / 2
    assert block_slices(torch.tensor([1.0, apart, apart * near]), 1e-16) == [slice(0, 1), slice(1, 3)]
    assert block_slices(torch.tensor([1.0, 0.01, 0.00995]), 1e-16) == [slice(0, 1), slice(1, 2), slice(2, 3)]
    # In float32 the vectors of the last two are not certain: rounding of the first one turns them.
    assert block_slices(torch.tensor([1.0, 0.01, 0.00995]), 1.2e-7) == [slice(0, 1), slice(1, 3)]
    assert block_slices(torch.tensor([]), 1e-16) == []


@pytest.mark.parametrize("zero", ["W_V", "W_O"])
def test_a_zero_head_is_an_empty_table_with_its_reason(zero: str):
    weights = random_weights(norm="layer")
    silent: dict[str, Any] = {zero: torch.zeros_like(getattr(weights, zero))}
    weights = weights.replace(**silent)
    table = circuit_directions(weights, "L1H2", "ov")
    assert len(table) == 0 and table.meta["empty"] == "zero circuit: L1H2 OV" and "flag" in table.columns
    assert len(circuit_directions(weights, "L1H2", "qk")) > 0


def test_the_scale_is_in_the_singular_values_of_qk():
    zero = random_weights(attn_scale=0.0)
    assert circuit_directions(zero, "L0H0", "qk").meta["empty"] == "zero circuit: L0H0 QK"
    one, two = (circuit_directions(random_weights(attn_scale=s), "L0H0", "qk").rows()[0] for s in (1.0, -2.0))
    assert two["singular"] == pytest.approx(2 * one["singular"]) and two["value"] == pytest.approx(one["value"])


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_any_size_of_weights(size: float):
    weights = random_weights()
    other = weights.replace(W_V=weights.W_V * size, W_O=weights.W_O * size)
    for a, b in zip(*(circuit_directions(w, "L0H0").rows() for w in (weights, other)), strict=True):
        assert a["token_id"] == b["token_id"] and b["value"] == pytest.approx(a["value"], abs=1e-9)
        assert b["singular"] / size / size == pytest.approx(a["singular"])


def test_a_planted_rule_is_its_own_direction():
    model = skip_trigram_model([(3, 7, 5)], d_vocab=9).weights
    ov = circuit_directions(model, "L0H0", "ov", k=1)
    assert lists(ov, 1, "reads")[1][0] == 3 and lists(ov, 1, "writes")[1][0] == 5
    qk = circuit_directions(model, "L0H0", "qk", k=2)
    assert {rank: token for rank, (token, _) in lists(qk, 1, "destination").items()} == {1: 7}  # others are not on it
    assert lists(qk, 1, "source")[1][0] == 3
    gone = model.replace(W_V=torch.zeros_like(model.W_V))
    assert len(circuit_directions(gone, "L0H0", "ov")) == 0


def test_few_blocks_and_few_tokens():
    weights = random_weights()
    assert {row["block"] for row in circuit_directions(weights, "L0H1", blocks=2).rows()} == {1, 2}
    none = circuit_directions(weights, "L0H1", blocks=0)
    assert len(none) == 0 and "empty" not in none.meta and none.meta["blocks_found"] == 5
    assert len(circuit_directions(weights, "L0H1", k=0)) == 0
    options = circuit_directions(weights, "L0H1", "qk", k=3, offset=1).provenance.options
    assert options == {"head": "L0H1", "circuit": "qk", "k": 3, "offset": 1}


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"head": "L9H0"}, UnknownName, "no head L9H0"),
    ({"circuit": "vo"}, UnknownName, "no circuit 'vo'; expected ov or qk"),
    ({"circuit": None}, UnknownName, "no circuit None"),
    ({"k": -1}, UsageError, "k tokens; expected a whole number >= 0, got -1"),
    ({"k": 2.0}, UsageError, "k tokens"),
    ({"blocks": -2}, UsageError, "blocks"),
    ({"circuit": "qk", "offset": -1}, UsageError, "offset"),
]


@pytest.mark.parametrize(("odd", "error", "says"), BAD)
def test_bad_input_is_one_sentence(odd: dict[str, Any], error: type[Exception], says: str):
    given: dict[str, Any] = {"head": "L0H0", **odd}
    with as_users_run_it(), pytest.raises(error, match=says):
        circuit_directions(random_weights(), **given)
