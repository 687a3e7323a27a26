"""Entries of circuits against dense matrices made from single pieces, planted pairs, and tokens asked for by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from headway.circuits.entries import both_ends, circuit_entries, circuit_of_token, token_id, token_label
from headway.errors import UnknownName, UsageError
from headway.model.forward import run
from headway.model.process import processed
from headway.model.weights import Weights
from headway.sources.handmade.skip_trigram import skip_trigram_model
from headway.sources.open import load
from headway.tokens.tokenizer import Tokenizer
from support.placeless import without_positions
from support.random_models import FEATURES, feature_name, random_weights
from support.unchecked import as_users_run_it

WITH_HEADS = [f for f in FEATURES if f.get("n_layers") != 0]
TOKENIZER = Tokenizer.from_json(
    '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "1": 4}, "merges": ["a b"]}}'
)


def dense_ov(weights: Weights, name: str) -> Tensor:
    """[out, source] one token at a time: normed alone, gain of the final norm on W_U, its mean read away."""
    c, head = weights.config, weights.head(name)
    assert head.id is not None
    columns = []
    for token in range(c.d_vocab):
        x = weights.W_E[:, token]
        if c.norm != "none":
            x = x - x.mean() if c.norm == "layer" else x
            x = x / (x.square().mean() + c.norm_eps).sqrt()
            x = x if weights.norm_gain is None else x * weights.norm_gain[head.id.layer]
        written = head.W_O @ head.W_V @ x
        written = written - written.mean() if c.norm == "layer" else written
        written = written if weights.final_gain is None else written * weights.final_gain
        logits = weights.W_U @ written
        columns.append(logits - logits.mean())
    return torch.stack(columns, dim=1)


def dense_qk(weights: Weights, head: int, offset: int) -> Tensor:
    """[destination, source] of a layer-0 head, from runs on two tokens with positions taken out; centred over sources."""
    c = weights.config
    every = torch.cartesian_prod(torch.arange(c.d_vocab), torch.arange(c.d_vocab))
    tokens = torch.zeros(len(every), offset + 1, dtype=torch.int64)
    assert offset > 0
    tokens[:, 0], tokens[:, -1] = every[:, 1], every[:, 0]
    scores = run(without_positions(weights), tokens).scores[0][:, head, -1, 0]
    table = scores.reshape(c.d_vocab, c.d_vocab)
    return table - table.mean(1, keepdim=True)


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", WITH_HEADS, ids=feature_name)
def test_all_entries_of_ov_are_the_dense_ones(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    name = f"L{weights.config.n_layers - 1}H0"
    dense = dense_ov(weights, name)
    table = circuit_entries(processed(weights, processing), name, "ov", top=1000)
    assert len(table) == dense.numel() == len({(row["source_id"], row["out_id"]) for row in table.rows()})
    for row in table.rows():
        assert row["value"] == pytest.approx(float(dense[row["out_id"], row["source_id"]]), abs=1e-9)
    highest = [row["value"] for row in table.rows() if row["rank"] > 0]
    lowest = [row["value"] for row in table.rows() if row["rank"] < 0]
    assert highest == sorted(highest, reverse=True) and lowest == sorted(lowest) and min(highest) >= max(lowest)
    assert {row["flag"] for row in table.rows() if "flag" in row} <= {None}


@pytest.mark.parametrize("features", WITH_HEADS, ids=feature_name)
def test_all_entries_of_qk_are_scores_of_two_tokens(features: dict[str, Any]):
    weights = random_weights(**features)
    dense = dense_qk(weights, 0, 3)
    table = circuit_entries(weights, "L0H0", "qk", top=1000, offset=3)
    assert len(table) == dense.numel()
    for row in table.rows():
        assert row["value"] == pytest.approx(float(dense[row["destination_id"], row["source_id"]]), abs=1e-9)


@pytest.mark.parametrize("top", [0, 1, 5])
def test_the_top_of_each_end(top: int):
    weights = random_weights(norm="layer")
    dense = dense_ov(weights, "L1H3").flatten().sort(descending=True).values
    rows = circuit_entries(weights, "L1H3", "ov", top=top).rows()
    assert [row["rank"] for row in rows] == [*range(1, top + 1), *(-rank for rank in range(1, top + 1))]
    assert [row["value"] for row in rows] == pytest.approx([*dense[:top].tolist(), *dense.flip(0)[:top].tolist()])


@pytest.mark.parametrize("features", WITH_HEADS[:12], ids=feature_name)
def test_one_token_is_a_column_of_ov_and_a_row_and_a_column_of_qk(features: dict[str, Any]):
    weights = random_weights(**features)
    for circuit, dense in (("ov", dense_ov(weights, "L0H0")), ("qk", dense_qk(weights, 0, 2))):
        rows = circuit_of_token(weights, "L0H0", circuit, 6, top=50, offset=2).rows()
        sides = {"source": dense[:, 6]} if circuit == "ov" else {"destination": dense[6], "source": dense[:, 6]}
        assert [row["as"] for row in rows] == [side for side in sides for _ in range(weights.config.d_vocab)]
        for row in rows:
            assert row["value"] == pytest.approx(float(sides[row["as"]][row["token_id"]]), abs=1e-9)


def test_planted_pairs_stand_first_and_go_with_their_part():
    model = skip_trigram_model([(3, 7, 5), (4, 8, 6)], d_vocab=12).weights
    says = circuit_entries(model, "L0H0", "ov", top=3).rows()
    assert {(row["source_id"], row["out_id"]) for row in says[:2]} == {(3, 5), (4, 6)}
    assert says[2]["value"] < 0.5 * says[1]["value"]
    seeks = circuit_entries(model, "L0H0", "qk", top=2).rows()
    assert {(row["destination_id"], row["source_id"]) for row in seeks[:2]} == {(7, 3), (8, 4)}
    assert circuit_of_token(model, "L0H0", "qk", 3, top=1).rows()[-2]["token_id"] == 7
    gone = model.replace(W_V=torch.zeros_like(model.W_V))
    table = circuit_entries(gone, "L0H0", "ov")
    assert len(table) == 0 and table.meta["empty"] == "zero circuit: L0H0 OV, centred over outs"
    assert circuit_of_token(gone, "L0H0", "ov", 3).meta["empty"] == table.meta["empty"]


def test_a_circuit_that_is_constant_over_sources_is_zero_once_centred():
    weights = random_weights(norm="none", biases=("b_K",))
    weights = weights.replace(W_K=torch.zeros_like(weights.W_K))
    assert circuit_entries(weights, "L0H0", "qk").meta["empty"].endswith("centred over sources")


def test_the_table_says_what_is_not_in_it():
    notes = circuit_entries(random_weights(positions="learned"), "L1H0", "qk").meta["notes"]
    assert "not comparable" in notes[0] and "earlier heads" in notes[1] and "Positions" in notes[2]
    turned = circuit_entries(random_weights(positions="rotary"), "L0H0", "qk", offset=3)
    assert turned.provenance.options == {"head": "L0H0", "circuit": "qk", "offset": 3, "top": 20}
    assert len(turned.meta["notes"]) == 1 and turned.meta["centred"] == "sources"
    ov = circuit_entries(random_weights(norm="layer"), "L0H0", "ov")
    assert ov.provenance.processing == "norms folded + reads centred" and "final norm" in ov.meta["notes"][0]


def test_tokens_by_text_label_and_id():
    weights = random_weights().replace(tokenizer=TOKENIZER)
    assert [token_id(weights, token) for token in ("ab", "#3", 3, torch.tensor(3), "1", "#12")] == [3, 3, 3, 3, 4, 12]
    assert token_label(weights, 3) == "ab" and token_label(weights, 12) is None  # the model has more than the tokenizer
    bare = random_weights()
    assert [token_id(bare, token) for token in ("7", "#7", 7)] == [7, 7, 7]
    rows = circuit_of_token(weights, "L0H0", "ov", "ab", top=1)
    assert (rows.meta["token"], rows.meta["token_id"]) == ("ab", 3)
    zoo = load("zoo:one-layer")
    assert zoo.tokenizer is not None and token_id(zoo, "\n") == token_id(zoo, "⏎")


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("abc", "'abc' is not one token"),
        ("#13", "0 .. d_vocab-1=12, got '#13'"),
        ("#" + "9" * 5000, "0 .. d_vocab"),
        (13, "0 .. d_vocab-1=12, got 13"),
        (-1, "got -1"),
        (1.5, "not a token; expected text or an id, got 1.5"),
        (None, "not a token"),
        (True, "got True"),
    ],
)
def test_a_token_that_is_none(token: Any, says: str):
    with as_users_run_it(), pytest.raises(UnknownName, match=says):
        token_id(random_weights().replace(tokenizer=TOKENIZER), token)


@pytest.mark.parametrize("token", ["word", "", "²", "9999", "#"])
def test_without_a_tokenizer_only_ids_name_tokens(token: str):
    with pytest.raises(UnknownName, match=r"0 \.\. "):
        token_id(random_weights(), token)


def test_both_ends_never_give_one_index_twice():
    values = torch.tensor([2.0, 5.0, 5.0, -1.0, 0.0])
    for top in range(7):
        found = list(both_ends(values, top))
        assert len({index for _, index, _ in found}) == len(found) == min(2 * top, 5)
    assert list(both_ends(values, 2)) == [(1, 1, 5.0), (2, 2, 5.0), (-1, 3, -1.0), (-2, 4, 0.0)]


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"head": "L9H0"}, UnknownName, "no head L9H0"),
    ({"circuit": "kq"}, UnknownName, "no circuit 'kq'; expected ov or qk"),
    ({"circuit": ["ov"]}, UnknownName, "no circuit"),
    ({"top": -1}, UsageError, "top; expected a whole number >= 0, got -1"),
    ({"offset": -1}, UsageError, "offset.*got -1"),
    ({"offset": 1.5}, UsageError, "offset"),
]


@pytest.mark.parametrize(("odd", "error", "says"), BAD)
def test_bad_input_is_one_sentence(odd: dict[str, Any], error: type[Exception], says: str):
    given: dict[str, Any] = {"head": "L0H0", "circuit": "ov", **odd}
    with as_users_run_it(), pytest.raises(error, match=says):
        circuit_entries(random_weights(), **given)
    with as_users_run_it(), pytest.raises(error, match=says):
        circuit_of_token(random_weights(), token=1, **given)
