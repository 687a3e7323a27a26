"""The direct path against the forward pass with silenced heads, and the study against loops and a Markov chain."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.circuits.bigrams import direct_path_log_probs, direct_path_study, text_pairs, without_heads
from headway.errors import ShapeProblem, TextProblem, TokenProblem, TooLarge
from headway.model.config import ModelConfig
from headway.model.forward import run
from headway.model.process import processed
from headway.model.weights import Weights
from support.random_models import FEATURES, feature_name, random_weights
from support.unchecked import as_users_run_it

NO_POSITIONS_IN_THE_STREAM = [f for f in FEATURES if f.get("positions") != "learned"]


@pytest.mark.parametrize("features", NO_POSITIONS_IN_THE_STREAM, ids=feature_name)
def test_it_is_what_the_model_says_when_every_head_writes_nothing(features: dict[str, Any]):
    weights = random_weights(**features)
    tokens = torch.randint(weights.config.d_vocab, (2, 7))
    silent = {f"{head}.result": torch.zeros(2, 7, weights.config.d_model).double() for head in weights.head_ids()}
    expected = run(weights, tokens, edit=silent).logits.log_softmax(-1)
    assert torch.allclose(direct_path_log_probs(weights)[tokens], expected, atol=1e-9)


@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_it_is_the_formula_and_folding_does_not_change_it(features: dict[str, Any]):
    weights = random_weights(**features)
    stream = weights.W_E.T if weights.b_O is None else weights.W_E.T + weights.b_O.sum(0)
    if weights.config.norm == "layer":
        stream = stream - stream.mean(-1, keepdim=True)
    if weights.config.norm != "none":
        stream = stream / (stream.square().mean(-1, keepdim=True) + weights.config.norm_eps).sqrt()
    for name in ("final_gain", "final_bias"):
        tensor = getattr(weights, name)
        if tensor is not None:
            stream = stream * tensor if name == "final_gain" else stream + tensor
    scores = stream @ weights.W_U.T
    expected = (scores if weights.b_U is None else scores + weights.b_U).log_softmax(-1)
    found = direct_path_log_probs(weights)
    assert torch.allclose(found, expected, atol=1e-9)
    assert torch.allclose(direct_path_log_probs(processed(weights, "folded")), found, atol=1e-9)
    assert not found.requires_grad


def test_rows_are_first_tokens():
    weights = random_weights(norm="none", biases="none", d_vocab=300)  # more than one block of rows
    assert torch.allclose(
        direct_path_log_probs(weights)[299], (weights.W_U @ weights.W_E[:, 299]).log_softmax(0), atol=1e-12
    )


def test_leaving_out_heads_is_recorded():
    bare = without_heads(random_weights(positions="learned"))
    assert bare.config.n_layers == 0 and bare.W_pos is None
    assert bare.provenance.processing == "heads left out"


def test_a_vocabulary_above_the_guard_is_refused():
    c = ModelConfig(n_layers=0, n_heads=0, d_model=1, d_head=1, d_vocab=9000, n_ctx=4)
    none, wide = torch.zeros(0, 0, 1, 1), torch.ones(1, 9000)
    weights = Weights(config=c, W_E=wide, W_U=wide.T.clone(), W_Q=none, W_K=none, W_V=none, W_O=none)
    with pytest.raises(TooLarge):
        direct_path_log_probs(weights)
    with pytest.raises(TooLarge):
        direct_path_study(weights, torch.ones(2, 2), np.arange(9), np.arange(9))


@pytest.mark.parametrize("bos", [0, None])
def test_pairs_are_those_of_whole_windows(bos: int | None):
    c = ModelConfig(n_layers=0, n_heads=0, d_model=1, d_head=1, d_vocab=50, n_ctx=4, bos=bos)
    ids = np.arange(10, 21)
    expected: list[tuple[int, int]] = []
    for start in (0, 4):
        window = ids[start : start + 4].tolist()
        row = window if bos is None else [bos, *window]
        expected += itertools.pairwise(row)
    assert text_pairs(ids, c).pairs.T.tolist() == [list(pair) for pair in expected]


@pytest.mark.parametrize(
    "ids", [[1] * 40, None, np.ones(40), np.ones((40, 2), int), np.ones(40, bool), "text"], ids=repr
)
def test_what_are_no_ids_is_refused_and_not_rounded(ids: Any):
    config = random_weights().config
    with as_users_run_it(), pytest.raises(ShapeProblem, match=r"ids of the text; expected an array.*\(n,\)"):
        text_pairs(ids, config)


def test_texts_that_cannot_be_judged_are_refused():
    c = ModelConfig(n_layers=0, n_heads=0, d_model=1, d_head=1, d_vocab=50, n_ctx=4)
    with pytest.raises(TextProblem, match="n_ctx=4"):
        text_pairs(np.arange(3), c)
    with pytest.raises(TextProblem):  # one token and no BOS: nothing is predicted
        text_pairs(np.arange(3), ModelConfig.from_dict(c.to_dict() | {"n_ctx": 1}))
    for bad in (50, -1):
        with pytest.raises(TokenProblem):
            text_pairs(np.array([1, 2, 3, bad]), c)


@pytest.fixture(scope="module")
def chain() -> Tensor:
    """log p(next | first) of rank 3 logits over 13 tokens."""
    random = torch.Generator().manual_seed(5)
    left, right = (torch.randn(13, 3, dtype=torch.float64, generator=random) for _ in range(2))
    return (left @ right.T).log_softmax(1)


def walk(chain: Tensor, n: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    steps, ids = chain.exp().cumsum(1).numpy(), [0]
    for u in random.random(n - 1):
        ids.append(min(int(np.searchsorted(steps[ids[-1]], u)), 12))
    return np.array(ids)


def counts_of(ids: np.ndarray) -> Tensor:
    counts = torch.zeros(13, 13, dtype=torch.float64)
    np.add.at(counts.numpy(), (ids[:-1], ids[1:]), 1)
    return counts


def perfect(chain: Tensor) -> Weights:
    """A model whose direct path is the chain itself."""
    u, s, vh = torch.linalg.svd(chain)
    weights = random_weights(biases="none", d_model=13, bos=None)
    return weights.replace(W_U=(vh.T * s).contiguous(), W_E=u.T.contiguous())


def test_the_study_of_a_model_that_is_the_chain(chain: Tensor):
    weights = perfect(chain)
    training, validation, heldout = (walk(chain, n, seed) for seed, n in enumerate((40_000, 4000, 8000)))
    table = direct_path_study(weights, counts_of(training), validation, heldout)
    direct, smoothed, low_rank, unigram = table.rows()
    assert [direct["table"], low_rank["table"], unigram["table"]] == ["direct path", "rank-13 bigrams", "unigram"]
    stationary = torch.linalg.matrix_power(chain.exp(), 500)[0]
    entropy = -float((stationary * (chain.exp() * chain).sum(1)).sum())
    assert abs(direct["heldout_loss"] - entropy) < 3 * direct["heldout_se"]
    # 13 * 12 numbers estimated from 40,000 pairs cost about 156 / 80,000 nats.
    for row in (smoothed, low_rank):
        assert row["heldout_loss"] == pytest.approx(direct["heldout_loss"], abs=0.01)
    assert direct["kl_to_smoothed"] == pytest.approx(156 / 80_000, rel=0.5)
    assert smoothed["kl_to_smoothed"] == 0
    assert low_rank["kl_to_smoothed"] < 1e-4
    assert unigram["heldout_loss"] > direct["heldout_loss"] + 0.3
    assert unigram["kl_to_smoothed"] == pytest.approx(unigram["heldout_loss"] - smoothed["heldout_loss"], abs=0.05)


@pytest.mark.parametrize("bos", [0, None])
def test_losses_are_means_over_windows_with_their_standard_error(chain: Tensor, bos: int | None):
    weights = random_weights(bos=bos)
    heldout = walk(chain, 16 * 6 + 5, 7)
    table = direct_path_study(weights, counts_of(walk(chain, 500, 1)), walk(chain, 200, 2), heldout)
    log_probs = direct_path_log_probs(weights)
    losses: list[float] = []
    for start in range(0, 96, 16):
        row = ([] if bos is None else [bos]) + heldout[start : start + 16].tolist()
        losses.append(-sum(float(log_probs[a, b]) for a, b in itertools.pairwise(row)) / (len(row) - 1))
    row = table.rows()[0]
    assert row["heldout_loss"] == pytest.approx(float(np.mean(losses)), abs=1e-9)
    assert row["heldout_se"] == pytest.approx(float(np.std(losses, ddof=1)) / 6**0.5, abs=1e-9)
    assert table.meta["windows"] == 6 and table.meta["tokens"] == 96 - 6 * (bos is None)


def test_one_window_has_no_standard_error(chain: Tensor):
    ids = walk(chain, 20, 1)
    rows = direct_path_study(random_weights(), counts_of(ids), ids, ids).rows()
    assert all(row["heldout_se"] is None and "one window" in row["flag"] for row in rows)


def test_the_table_says_how_it_smoothed_and_what_it_left_out(chain: Tensor):
    ids = walk(chain, 100, 1)
    weights = random_weights(positions="learned", dtype=torch.float32)
    table = direct_path_study(weights, counts_of(ids), ids, ids)
    assert set(table.meta["smoothing"]) == {"discounts", "concentration", "base", "validation_loss"}
    assert table.meta["positions"] == "position term of the direct path left out"
    assert table.provenance.weights == weights.content_hash()


def test_counts_of_another_vocabulary_are_refused(chain: Tensor):
    ids = walk(chain, 100, 1)
    with pytest.raises(ShapeProblem, match="d_vocab=13"):
        direct_path_study(random_weights(), torch.ones(12, 12), ids, ids)
