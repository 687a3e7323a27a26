"""Olsson's copying score against explicit loops over sources and tokens, and heads whose score is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headway.behaviour.olsson import olsson_copying_scores
from headway.behaviour.repeated import repeated_tokens
from headway.errors import ShapeProblem, TokenProblem, UsageError
from headway.model.config import ModelConfig
from headway.model.weights import Weights
from headway.sources.handmade import copying_model, induction_model
from support.naive import naive_run
from support.random_models import FEATURES, feature_name, random_weights
from support.unchecked import as_users_run_it

LENGTH = 5


def looped(weights: Weights, layer: int, head: int, tokens: list[list[int]]) -> tuple[float, float, float]:
    """Score, chance and the attention that counts, one source and one token at a time, from the unfolded weights."""
    c = weights.config
    t = {name: tensor.numpy() for name, tensor in weights.tensors().items()}
    kv = head // c.group
    score = chance = counted = 0.0
    for row in tokens:
        seen = naive_run(weights, row)
        sample = list(range(len(row) - LENGTH, len(row)))
        for j in sample:
            x = seen.streams[layer][j]
            if c.norm != "none":
                x = x - (x.mean() if c.norm == "layer" else 0)
                x = x / np.sqrt((x**2).mean() + c.norm_eps)
                x = x * t["norm_gain"][layer] if "norm_gain" in t else x
                x = x + t["norm_bias"][layer] if "norm_bias" in t else x
            value = t["W_V"][layer, kv] @ x + (t["b_V"][layer, kv] if "b_V" in t else 0)
            written = t["W_O"][layer, head] @ value
            written = written - written.mean() if c.norm == "layer" else written
            written = written * t["final_gain"] if "final_gain" in t else written
            logits = t["W_U"] @ written
            raised = [max(logits[row[i]] - logits.mean(), 0.0) for i in sample]
            if sum(raised) == 0:
                continue
            ratios = [a / (a + sum(raised)) for a in raised]
            for i in sample:
                attention = seen.patterns[layer][head, i, j]
                score += attention * (4 * ratios[sample.index(j)] - 1)
                chance += attention * (4 * np.mean(ratios) - 1)
                counted += attention
    return score / counted, chance / counted, counted / (len(tokens) * LENGTH)


@pytest.mark.parametrize("features", [f for f in FEATURES if f.get("n_layers") != 0], ids=feature_name)
def test_scores_equal_loops_over_sources_and_tokens(features: dict[str, Any]):
    weights = random_weights(**features)
    table = olsson_copying_scores(weights, length=LENGTH, rows=2, seed=3)
    tokens = repeated_tokens(weights.config, length=LENGTH, copies=2, rows=2, seed=3)[:, :-LENGTH].tolist()
    for row, head in zip(table.rows(), weights.head_ids(), strict=True):
        assert row["head"] == str(head)
        if head.head in {0, weights.config.n_heads - 1}:
            wanted = looped(weights, head.layer, head.head, tokens)
            found = [row[name] for name in ("copying_olsson", "copying_olsson_null", "attention_counted")]
            assert found == pytest.approx(wanted, abs=1e-9)


def plain(W_OV: torch.Tensor, **changes: Any) -> Weights:
    """One head with this W_OV between unit embeddings, attending to all positions alike."""
    d = len(W_OV)
    eye = torch.eye(d, dtype=torch.float64)
    c = ModelConfig(n_layers=1, n_heads=1, d_model=d, d_head=d, d_vocab=d, n_ctx=d)
    zero = torch.zeros(1, 1, d, d, dtype=torch.float64)
    weights = Weights(config=c, W_E=eye, W_U=eye, W_Q=zero, W_K=zero, W_V=eye[None, None], W_O=W_OV[None, None])
    return weights.replace(**changes)


def test_a_head_that_copies_all_it_sees_scores_one_though_it_looks_at_many():
    (row,) = olsson_copying_scores(copying_model().weights).rows()
    assert row["copying_olsson"] == pytest.approx(1, abs=1e-9) and row["copying_olsson_se"] < 1e-9
    # BOS takes a share 1/(i+1) of query i, i = 1 .. 25; the rest goes to sources that count.
    assert row["attention_counted"] == pytest.approx(1 - sum(1 / (i + 1) for i in range(1, 26)) / 25)
    # By chance: each of 25 tokens for the attended one, of which one has r = 1/2 and the others 0.
    assert row["copying_olsson_null"] == pytest.approx(4 * (0.5 / 25) - 1)


def test_the_induction_head_copies_and_the_previous_token_head_does_not():
    rows = {row["head"]: row for row in olsson_copying_scores(induction_model().weights, length=8).rows()}
    assert rows["L1H0"]["copying_olsson"] == pytest.approx(1, abs=1e-6)
    assert rows["L0H0"]["copying_olsson"] is None
    assert rows["L0H0"]["flag"] == "no source that it attends to raises a token of the sample"


def test_a_head_that_lowers_what_it_sees_scores_minus_one():
    (row,) = olsson_copying_scores(plain(-torch.eye(9, dtype=torch.float64)), length=4).rows()
    # Lowering one token raises all others above the mean: a ratio there is, and it is 0.
    assert row["copying_olsson"] == pytest.approx(-1) and row["attention_counted"] == pytest.approx(1)
    # By chance one of the three others is the attended one, three times of four: r = 1/4.
    assert row["copying_olsson_null"] == pytest.approx(4 * (0.75 / 4) - 1)


def test_a_head_that_raises_all_tokens_alike_raises_none():
    (row,) = olsson_copying_scores(plain(torch.ones(9, 9, dtype=torch.float64)), length=4).rows()
    assert row["copying_olsson"] is None and row["attention_counted"] == 0
    assert row["flag"] == "no source that it attends to raises a token of the sample"


def test_sources_that_raise_only_tokens_outside_the_sample_are_left_out():
    # Token b raises b + 1: only where both are in the sample is there a ratio, and then it is 0.
    shift = torch.eye(9, dtype=torch.float64).roll(1, 0)
    (row,) = olsson_copying_scores(plain(shift), length=4, rows=1).rows()
    (tokens,) = repeated_tokens(9, length=4, copies=2, rows=1)[:, :4].tolist()
    there = [(token + 1) % 9 in tokens for token in tokens]
    assert 0 < sum(there) < 4
    assert row["copying_olsson"] == pytest.approx(-1)
    assert row["attention_counted"] == pytest.approx(sum(sum(there[: i + 1]) / (i + 1) for i in range(4)) / 4)


def test_a_zero_head_is_null_and_says_so():
    weights = random_weights(n_kv_heads=4, biases="none")
    W_O, W_V = weights.W_O.clone(), weights.W_V.clone()
    W_O[0, 1], W_V[1, 2] = 0, 0
    rows = {row["head"]: row for row in olsson_copying_scores(weights.replace(W_O=W_O, W_V=W_V), length=LENGTH).rows()}
    for head in ("L0H1", "L1H2"):
        assert rows[head]["copying_olsson"] is None and rows[head]["flag"] == f"zero circuit: {head} OV"
    assert all(row["flag"] is None for head, row in rows.items() if head not in {"L0H1", "L1H2"})


def test_a_head_of_no_matrix_but_a_bias_still_writes():
    weights = random_weights(norm="layer")
    rows = olsson_copying_scores(weights.replace(W_V=torch.zeros_like(weights.W_V)), length=LENGTH).rows()
    assert all(row["copying_olsson"] is not None for row in rows)


def test_a_constant_on_all_logits_and_the_scale_of_what_is_written_change_nothing():
    weights = random_weights(norm="rms")
    shifted = weights.replace(W_U=weights.W_U + 5 * torch.randn(10, dtype=torch.float64), W_O=weights.W_O * 1e40)
    plain_rows, shifted_rows = (olsson_copying_scores(w, length=LENGTH).rows()[:4] for w in (weights, shifted))
    for old, new in zip(plain_rows, shifted_rows, strict=True):  # layer 0: later ones read what was written
        assert new["copying_olsson"] == pytest.approx(old["copying_olsson"], abs=1e-9)


def test_the_error_is_that_of_the_mean_over_rows():
    weights = plain(torch.randn(9, 9, dtype=torch.float64))
    table = olsson_copying_scores(weights, length=9, rows=6).rows()[0]
    assert table["n"] == 6 and table["copying_olsson_se"] > 0
    parts = repeated_tokens(9, length=9, copies=2, rows=6)[:, :9].tolist()
    # Every row holds the whole vocabulary, so every attention counts and rows weigh alike.
    centred = weights.W_O[0, 0].T - weights.W_O[0, 0].mean(0)[:, None]
    raised = centred.clamp_min(0)
    score = 4 * raised.diagonal() / (raised.diagonal() + raised.sum(1)) - 1
    rows = torch.tensor([np.mean([float(score[row[: i + 1]].mean()) for i in range(9)]) for row in parts])
    assert table["copying_olsson"] == pytest.approx(float(rows.mean()), abs=1e-6)
    assert table["copying_olsson_se"] == pytest.approx(float(rows.std()) / 6**0.5, abs=1e-6)


def test_one_row_has_no_error_and_more_rows_come_in_batches():
    weights = random_weights(norm="layer")
    single = olsson_copying_scores(weights, length=LENGTH, rows=1).rows()
    assert {row["flag"] for row in single} == {"one row: no standard error"}
    table = olsson_copying_scores(weights, length=LENGTH, rows=11, seed=4)
    assert table == olsson_copying_scores(weights, length=LENGTH, rows=11, seed=4)
    assert table.provenance.seed == 4 and table.provenance.options["length"] == LENGTH
    assert table.provenance.weights == weights.content_hash()


def test_single_precision_gives_the_same_scores():
    weights = random_weights(norm="layer", positions="rotary")
    pairs = zip(
        *(olsson_copying_scores(w, length=LENGTH).rows() for w in (weights, weights.to(torch.float32))), strict=True
    )
    for exact, rounded in pairs:
        assert rounded["copying_olsson"] == pytest.approx(exact["copying_olsson"], abs=1e-4)


def test_a_model_without_heads_gives_no_rows():
    assert olsson_copying_scores(random_weights(n_layers=0, n_heads=0, n_kv_heads=0), length=LENGTH).rows() == []


def test_odd_input_is_refused():
    weights = random_weights()
    with pytest.raises(UsageError, match="too few tokens"):
        olsson_copying_scores(weights)  # 25 of 12
    with pytest.raises(TokenProblem, match="pool"):
        olsson_copying_scores(weights, length=2, pool=torch.tensor([1, 2, 99]))
    with as_users_run_it():
        odd: list[dict[str, Any]] = [{"length": 0}, {"length": True}, {"rows": 0}, {"seed": -1}]
        for options in odd:
            with pytest.raises(UsageError):
                olsson_copying_scores(weights, **options)
        with pytest.raises(ShapeProblem):
            olsson_copying_scores(weights, length=2, pool=torch.ones(3))
        with pytest.raises(UsageError, match="not a model"):
            olsson_copying_scores("zoo:one-layer")  # type: ignore[arg-type]
