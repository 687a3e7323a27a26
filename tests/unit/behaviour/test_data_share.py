"""Data shares against the forward pass with single sources put in the stream, loops over destinations, and draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.behaviour.data_share import composition_data_share
from headway.errors import CannotCompose, UnknownName, UsageError
from headway.model.forward import run
from headway.model.process import fold_norms
from headway.model.recording import Recording
from headway.model.weights import Weights
from headway.sources.handmade import induction_model, pointer_model, rotary_induction_model
from headway.sources.handmade.built import Built
from support.composed import among_others, rotations
from support.random_models import FEATURES, feature_name, padding, random_tokens, random_weights
from support.unchecked import as_users_run_it

USABLE = [f for f in FEATURES if f.get("n_layers") != 0]


def recorded(weights: Weights, side: str = "none") -> Recording:
    tokens = random_tokens(weights)
    return run(weights, tokens, keep=None if side == "none" else padding(3, 9, side), results=True)


def term(recording: Recording, head: str, via: str, stream: Tensor) -> Tensor:
    """The part of a head's scores that comes from this part of the stream alone, by the forward pass itself."""
    layer, index = int(head[1]), int(head[3:])
    found: list[Tensor] = []
    for put in (stream, stream * 0):
        norms = None if recording.norm_scales is None else recording.frozen(patterns=False)
        edit: Any = {f"{head}.{via}": put}
        again = run(recording.weights, recording.tokens, keep=recording.keep, freeze=norms, edit=edit)
        found.append(again.scores[layer][:, index].masked_fill(~recording.allowed, 0))
    return found[0] - found[1]


def share_by_loops(recording: Recording, head: str, part: Tensor) -> float:
    """The formula, one destination at a time."""
    scores = recording.scores[int(head[1])][:, int(head[3:])]
    allowed = recording.allowed.expand_as(scores)
    above = below = 0.0
    for b in range(len(scores)):
        for i in range(scores.shape[1]):
            sources = allowed[b, i]
            if bool(sources.any()):
                s, h = scores[b, i, sources], part[b, i, sources]
                above += float(((s - s.mean()) * (h - h.mean())).mean())
                below += float(((s - s.mean()) ** 2).mean())
    return above / below


def shares(recording: Recording, reader: str | None = None) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = composition_data_share(recording, reader).rows()
    return {(row["reader"], row["via"], row["source"]): row for row in rows}


@pytest.mark.parametrize("side", ["none", "left", "right", "both"])
@pytest.mark.parametrize("features", USABLE, ids=feature_name)
def test_shares_of_each_side_add_up_to_one(features: dict[str, Any], side: str):
    recording = recorded(random_weights(**features), side)
    rows = composition_data_share(recording)
    totals: dict[tuple[str, str], float] = {}
    for row in rows.rows():
        key = row["reader"], row["via"]
        totals[key] = totals.get(key, 0.0) + row["share"]
    assert len(totals) == 2 * recording.weights.config.n_heads * recording.weights.config.n_layers
    assert all(total == pytest.approx(1, abs=1e-9) for total in totals.values())
    assert rows.meta["remainder"] < 1e-9


@pytest.mark.parametrize("side", ["none", "left", "both"])
@pytest.mark.parametrize("features", USABLE, ids=feature_name)
def test_each_share_is_that_of_the_score_from_its_source_alone(features: dict[str, Any], side: str):
    weights = random_weights(**features)
    recording, c = recorded(weights, side), weights.config
    reader = f"L{c.n_layers - 1}H{c.n_heads - 1}"
    found = shares(recording, reader)
    places = torch.arange(9).expand(3, -1)
    places = places if recording.keep is None else (recording.keep.cumsum(-1) - 1).clamp_min(0)
    streams: dict[tuple[str, ...], Tensor] = {("token",): weights.W_E.T[recording.tokens]}
    if weights.W_pos is not None:
        streams["position",] = weights.W_pos.T[places]
    assert recording.results is not None
    for layer in range(c.n_layers - 1):
        for head in range(c.n_heads):
            name = f"L{layer}H{head}"
            streams[name, f"{name} bias"] = recording.results[layer][:, head]
            constant = weights.head(name).ov_bias
            if weights.norm_bias is not None:
                constant = constant + weights.head(name).ov @ weights.norm_bias[layer]
            streams[f"{name} bias",] = recording.patterns[layer][:, head].sum(-1, keepdim=True) * constant
        if weights.b_O is not None:
            streams[f"L{layer} b_O",] = weights.b_O[layer].expand(3, 9, -1)
    for via in ("Q", "K"):
        for names, stream in streams.items():
            exact = share_by_loops(recording, reader, term(recording, reader, via, stream))
            share = sum(found[reader, via, name]["share"] for name in names if (reader, via, name) in found)
            assert share == pytest.approx(exact, abs=1e-9)


def test_what_joins_after_the_norm_is_the_rest_and_constants_count_for_nothing():
    weights = random_weights(norm="layer", positions="none")
    found = shares(recorded(weights), "L1H0")
    # On the K side a constant adds one number to all scores of a destination; on the Q side it does not.
    assert all(abs(found["L1H0", "K", name]["share"]) < 1e-12 for name in ("b_K", "W_K beta"))
    assert all(abs(found["L1H0", "Q", name]["share"]) > 1e-4 for name in ("b_Q", "W_Q beta"))
    assert found["L1H0", "K", "b_K"]["z"] is None and "joins after the norm" in found["L1H0", "K", "b_K"]["flag"]
    turned = shares(recorded(random_weights(positions="rotary")), "L1H0")
    assert abs(turned["L1H0", "K", "b_K"]["share"]) > 1e-4
    plain = shares(recorded(random_weights(positions="none")), "L1H0")
    assert abs(plain["L1H0", "K", "L0 b_O"]["share"]) < 1e-12
    assert plain["L1H0", "K", "L0 b_O"]["z"] is None and "no rotation" in plain["L1H0", "K", "L0 b_O"]["flag"]


@pytest.mark.parametrize("positions", ["shortformer", "rotary"])
def test_folding_norms_moves_no_share_of_a_source_in_the_stream(positions: str):
    weights = random_weights(norm="layer", positions=positions)
    before, after = (shares(recorded(w), "L1H2") for w in (weights, fold_norms(weights)))
    for key, row in before.items():
        if key[2][:2] not in {"b_", "W_"}:
            assert after[key]["share"] == pytest.approx(row["share"], abs=1e-9)
    for via in ("Q", "K"):
        constants = sum(before["L1H2", via, name]["share"] for name in (f"b_{via}", f"W_{via} beta"))
        assert after["L1H2", via, f"b_{via}"]["share"] == pytest.approx(constants, abs=1e-9)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_z_is_against_random_rotations_of_what_was_written(norm: str):
    weights = random_weights(norm=norm, d_model=7, n_heads=2, affine="none")
    recording = recorded(weights)
    assert recording.results is not None
    for via in ("Q", "K"):
        row = shares(recording, "L1H1")["L1H1", via, "L0H0"]
        bias = recording.patterns[0][:, 0].sum(-1, keepdim=True) * weights.head("L0H0").ov_bias
        wrote = recording.results[0][:, 0] - bias
        drawn = [
            share_by_loops(recording, "L1H1", term(recording, "L1H1", via, wrote @ turn.T))
            for turn in rotations(250, 7, centred=norm == "layer")
        ]
        found = torch.tensor(drawn)
        assert abs(float(found.mean())) < 3.5 * float(found.std()) / len(drawn) ** 0.5
        assert float(found.std()) == pytest.approx(abs(row["share"] / row["z"]), rel=0.15)


@pytest.mark.parametrize(
    ("model", "via"), [(induction_model, "K"), (rotary_induction_model, "K"), (pointer_model, "Q")]
)
def test_planted_composition_stands_out_and_is_gone_without_its_part(model: Callable[..., Built], via: str):
    weights = among_others(model(d_vocab=9, n_ctx=16).weights)
    tokens = torch.tensor([[0, 3, 5, 1, 3, 2, 7, 5], [0, 4, 4, 6, 8, 6, 1, 4]])
    rows = [row for row in composition_data_share(run(weights, tokens), "L1H0").rows() if row["via"] == via]
    heads = [row for row in rows if row["source"].startswith("L0H")]  # beside them stands the pull of BOS
    assert heads[0]["source"] == "L0H0" and all(heads[0]["share"] > 2 * abs(row["share"]) for row in heads[1:])
    W_O = weights.W_O.clone()
    W_O[0, 0] = 0
    without = composition_data_share(run(weights.replace(W_O=W_O), tokens), "L1H0").rows()
    gone = [row for row in without if row["source"] == "L0H0" and row["via"] == via]
    assert [row["share"] for row in gone] in ([0.0], [None])


def test_scores_that_do_not_vary_are_flagged():
    weights = random_weights(positions="none", n_kv_heads=4)
    W_K = weights.W_K.clone()
    W_K[1, 1] = 0  # b_Q . b_K is left, the same for every source
    rows = composition_data_share(recorded(weights.replace(W_K=W_K))).rows()
    for row in rows:
        still = row["reader"] == "L1H1"
        assert (row["share"] is None) == still and (row["flag"] == "the scores do not vary over sources") == still


def test_one_text_has_no_standard_error_and_several_have_that_of_the_ratio():
    weights = random_weights()
    tokens = random_tokens(weights, rows=5)
    one = composition_data_share(run(weights, tokens[:1]), "L1H0").rows()
    assert all(row["share_se"] is None and "one text" in row["flag"] for row in one)
    row = shares(run(weights, tokens), "L1H0")["L1H0", "K", "token"]
    x, v = list[float](), list[float]()
    for text in tokens:
        recording = run(weights, text[None])
        own = shares(recording, "L1H0")["L1H0", "K", "token"]["share"]
        scores = recording.scores[1][0, 0]
        v.append(sum(float(scores[i, : i + 1].var(correction=0)) for i in range(len(text))))
        x.append(own * v[-1])
    mean = sum(x) / sum(v)
    spread = sum((a - mean * b) ** 2 for a, b in zip(x, v, strict=True))
    assert row["share"] == pytest.approx(mean) and row["n"] == 5
    assert row["share_se"] == pytest.approx((5 / 4 * spread) ** 0.5 / sum(v))


def test_edited_scores_leave_a_remainder():
    weights = random_weights()
    tokens = random_tokens(weights)
    edited = run(weights, tokens, edit={"L1H0.scores": lambda s: s + torch.randn(3, 9, 9, dtype=torch.float64)})
    assert composition_data_share(edited, "L1H0").meta["remainder"] > 0.01
    assert composition_data_share(edited, "L1H1").meta["remainder"] < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_is_close(dtype: torch.dtype):
    weights = random_weights(dtype=dtype, norm="layer", positions="shortformer")
    table = composition_data_share(run(weights, random_tokens(weights)))
    assert table.meta["dtype"] == "float32" and table.meta["remainder"] < (1e-4 if dtype == torch.float32 else 0.2)


def test_bad_input_is_refused():
    weights = random_weights()
    recording = run(weights, random_tokens(weights))
    with pytest.raises(UnknownName):
        composition_data_share(recording, "L2H0")
    none = random_weights(n_layers=0, n_heads=0, n_kv_heads=0)
    headless = run(none, random_tokens(none))
    with pytest.raises(CannotCompose):
        composition_data_share(headless)
    with as_users_run_it(), pytest.raises(UsageError, match="a Recording"):
        composition_data_share(weights)  # type: ignore[arg-type]
