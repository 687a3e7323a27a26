"""The protocol by its words, prefix matching by loops, the gain by a copying model made by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.behaviour.observed import Observed
from headway.behaviour.patterns import pattern_scores
from headway.behaviour.repeated import (
    induction_gain,
    prefix_matching,
    prefix_matching_scores,
    repeated_tokens,
    token_pool,
)
from headway.errors import ShapeProblem, TokenProblem, UsageError
from headway.model.forward import logits, run
from headway.model.weights import Weights
from support.random_models import FEATURES, feature_name, padding, random_weights


def by_hand(A: Tensor, length: int, start: int) -> float:
    """The formula of papers.md 2.2 for one row of one head, positions from 0."""
    n, total, queries = len(A), 0.0, 0
    for j in range(start + length, n):
        queries += 1
        m = 1
        while j - m * length >= start:
            total += float(A[j, j - m * length + 1])
            m += 1
    return total / queries


def test_rows_follow_the_protocol():
    weights = random_weights(d_vocab=30, bos=4)
    tokens = repeated_tokens(weights.config, length=7, copies=3, rows=50, seed=2)
    assert tokens.shape == (50, 22) and bool((tokens[:, 0] == 4).all())
    for row in tokens[:, 1:].reshape(50, 3, 7):
        assert torch.equal(row[0], row[1]) and torch.equal(row[0], row[2])
        assert len(set(row[0].tolist())) == 7
    drawn = np.bincount(tokens[:, 1:8].flatten(), minlength=30)
    assert drawn[4] == 0 and (np.delete(drawn, 4) > 0).all()
    # 350 draws over 29 tokens: 12.1 each; without replacement the variance is below the multinomial's 11.7.
    assert np.abs(np.delete(drawn, 4) - 350 / 29).max() < 4 * math.sqrt(11.7)


def test_rows_are_a_function_of_the_seed():
    config = random_weights().config
    same = [repeated_tokens(config, length=5, copies=2, seed=s) for s in (3, 3, 4)]
    assert torch.equal(same[0], same[1]) and not torch.equal(same[0], same[2])


def test_without_bos_rows_start_at_once():
    assert repeated_tokens(6, length=6, copies=2, rows=1).shape == (1, 12)


def test_the_pool_leaves_out_bos_exclusions_and_both_ends_of_the_frequencies():
    config = random_weights(d_vocab=50, bos=0).config
    counts = np.arange(50)[::-1]  # token 0 is the most common
    pool = token_pool(config, exclude=[10], frequencies=counts)
    assert pool.tolist() == [i for i in range(2, 48) if i != 10]  # int(.04 * 50) = 2 at each end
    assert token_pool(config).tolist() == list(range(1, 50))
    ties = np.zeros(50)
    assert token_pool(50, frequencies=ties).tolist() == list(range(2, 48))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"length": 13}, UsageError, "length is at most 12 here"),
        ({"length": 3, "pool": torch.tensor([5, 5, 6])}, UsageError, "got 2 .different ids in the pool"),
        ({"pool": torch.zeros(0, dtype=torch.int64)}, UsageError, "pool that holds tokens"),
        ({"pool": torch.tensor([1, 13])}, TokenProblem, "d_vocab-1=12"),
        ({"length": 0}, UsageError, "length"),
        ({"length": 3, "copies": 1}, UsageError, "copies.*>= 2"),
        ({"length": 3, "rows": 0}, UsageError, "rows.*>= 1"),
    ],
)
def test_impossible_protocols_are_refused(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        repeated_tokens(random_weights().config, **options)


def test_impossible_pools_are_refused():
    with pytest.raises(ShapeProblem, match="d_vocab=13"):
        token_pool(random_weights().config, frequencies=np.ones(12))
    with pytest.raises(TokenProblem, match="leave out"):
        token_pool(5, exclude=[5])
    with pytest.raises(UsageError, match="vocabulary size"):
        token_pool(0)


@pytest.mark.parametrize("features", FEATURES[:12:3], ids=feature_name)
@pytest.mark.parametrize(("length", "copies"), [(4, 3), (7, 2), (1, 5)])
def test_prefix_matching_is_the_papers_sum(features: dict[str, Any], length: int, copies: int):
    weights = random_weights(**features)
    start = 0 if weights.config.bos is None else 1
    tokens = repeated_tokens(weights.config, length=length, copies=copies, rows=3)
    recording = run(weights, tokens)
    scores = prefix_matching(recording, length)
    assert scores.shape == (weights.config.n_layers, weights.config.n_heads, 3)
    for head in weights.head_ids():
        for row in range(3):
            expected = by_hand(recording.pattern(head)[row], length, start)
            assert float(scores[head.layer, head.head, row]) == pytest.approx(expected, abs=1e-12)


def test_on_repeats_it_is_prefix_matching_on_text():
    weights = random_weights()
    recording = run(weights, repeated_tokens(weights.config, length=5, copies=3, rows=4))
    table = pattern_scores([recording]).rows()
    for row, mean in zip(table, prefix_matching(recording, 5).mean(-1).flatten(), strict=True):
        assert row["prefix_matching_text"] == pytest.approx(float(mean), abs=1e-9)


def test_the_table_averages_over_rows():
    weights = random_weights(norm="layer")
    table = prefix_matching_scores(weights, length=6, copies=2, rows=11, seed=5)
    tokens = repeated_tokens(weights.config, length=6, copies=2, rows=11, seed=5)
    values = prefix_matching(run(weights, tokens), 6).flatten(0, 1)
    for row, head, of_rows in zip(table.rows(), weights.head_ids(), values, strict=True):
        assert row["head"] == str(head) and row["n"] == 11 and row["flag"] is None
        assert row["prefix_matching"] == pytest.approx(float(of_rows.mean()), abs=1e-9)
        assert row["prefix_matching_se"] == pytest.approx(float(of_rows.std()) / math.sqrt(11), abs=1e-9)
    assert table.provenance.seed == 5 and table.provenance.options["length"] == 6
    one = prefix_matching_scores(weights, length=6, copies=2, rows=1).rows()[0]
    assert one["prefix_matching_se"] is None and "no standard error" in one["flag"]


def test_a_model_without_heads_gives_an_empty_table():
    weights = random_weights(n_layers=0, n_heads=0, n_kv_heads=0)
    assert len(prefix_matching_scores(weights, length=5, copies=2)) == 0


def observed(tokens: list[list[int]], bos: int | None = None, keep: Tensor | None = None) -> Observed:
    n = len(tokens[0])
    uniform = torch.ones(n, n).tril().double() / torch.arange(1, n + 1)[:, None]
    return Observed((uniform.expand(len(tokens), 1, n, n),), torch.tensor(tokens), keep, bos)


@pytest.mark.parametrize(
    ("seen", "length", "message"),
    [
        (observed([[1, 2, 3, 1, 2, 4]]), 3, "not rows of repeated tokens"),
        (observed([[1, 2, 3, 1, 2]]), 3, "two or more copies of length=3"),
        (observed([[1, 2, 3]]), 3, "not rows"),
        (observed([[1, 2, 1, 2]], bos=0), 2, "BOS and two or more"),
        (observed([[5, 1, 2, 1, 2]], bos=0), 2, "BOS and two or more"),
        (observed([[1, 1, 1, 1]]), 2, "twice in one copy"),
        (observed([[1, 2, 1, 2]], keep=padding(2, 4, "right")[1:]), 2, "without padding"),
    ],
)
def test_other_tokens_are_refused(seen: Observed, length: int, message: str):
    with pytest.raises(ShapeProblem, match=message):
        prefix_matching(seen, length)


def test_a_length_that_is_no_length_is_refused():
    with pytest.raises(UsageError, match=">= 1"):
        prefix_matching(observed([[1, 2, 1, 2]]), 0)


@pytest.mark.parametrize("bos", [None, 0])
def test_the_gain_by_its_words(bos: int | None):
    weights = random_weights(norm="rms", positions="rotary", bos=bos, d_vocab=30)
    length, rows, start = 6, 10, 0 if bos is None else 1
    row = induction_gain(weights, length=length, rows=rows, seed=8).rows()[0]
    repeated = repeated_tokens(weights.config, length=length, copies=2, rows=rows, seed=8)
    random = np.random.Generator(np.random.PCG64([8, 1]))
    gains, repeats = [], []
    for text in repeated.tolist():
        half = text[start : start + length]
        other = text[: start + length] + [half[i] for i in random.permutation(length)]
        assert sorted(other[-length:]) == sorted(half)
        losses = []
        for ids in (text, other):
            log_p = logits(weights, torch.tensor([ids])).log_softmax(-1)[0]
            wanted = range(start + length + 1, start + 2 * length)  # all of the second half but its first token
            losses.append(-sum(float(log_p[i - 1, ids[i]]) for i in wanted) / (length - 1))
        gains.append(losses[1] - losses[0])
        repeats.append(losses[0])
    assert row["induction_gain"] == pytest.approx(np.mean(gains), abs=1e-9)
    assert row["induction_gain_se"] == pytest.approx(np.std(gains, ddof=1) / math.sqrt(rows), abs=1e-9)
    assert row["loss_repeated"] == pytest.approx(np.mean(repeats), abs=1e-9)
    assert row["loss_shuffled"] == pytest.approx(np.mean(gains) + np.mean(repeats), abs=1e-9)


def bag_of_words() -> Weights:
    """One head that averages over the context and copies: it knows how often each token came before, not in which order."""
    eye = torch.eye(200, dtype=torch.float64)
    return Weights.from_tensors(
        {"W_E": eye, "W_Q": 0 * eye[None, None], "W_K": 0 * eye[None, None], "W_V": eye[None, None]}
        | {"W_O": 30 * eye[None, None], "W_U": eye},
        n_ctx=64,
        bos=0,
    )


def test_copying_without_order_gains_nothing():
    """It does far better than chance on the second half, which by itself is no evidence of induction.

    The gain is exactly 0: at the same place of both texts the same number of tokens has come once and twice, the query's
    own has come twice, and the next token is one of those that came once.
    """
    row = induction_gain(bag_of_words(), length=10, rows=8).rows()[0]
    assert row["loss_repeated"] < math.log(200) - 0.5
    assert row["induction_gain"] == pytest.approx(0, abs=1e-9)
    assert row["induction_gain_se"] == pytest.approx(0, abs=1e-9)


def test_a_model_that_says_nothing_gains_exactly_nothing():
    weights = random_weights(biases="none")
    weights = weights.replace(W_U=torch.zeros_like(weights.W_U))
    row = induction_gain(weights, length=8, rows=4).rows()[0]
    assert row["induction_gain"] == pytest.approx(0, abs=1e-12)
    assert row["loss_repeated"] == pytest.approx(math.log(13), abs=1e-12)


def test_one_row_has_no_error_and_one_token_no_second_half():
    weights = random_weights()
    row = induction_gain(weights, length=8, rows=1).rows()[0]
    assert row["induction_gain_se"] is None and "no standard error" in row["flag"]
    with pytest.raises(UsageError, match=">= 2"):
        induction_gain(weights, length=1)
    with pytest.raises(UsageError, match="at most 12"):
        induction_gain(weights, length=13)
