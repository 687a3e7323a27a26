"""Windows by hand, and losses one token at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from headway.behaviour.windows import batches, record_windows, text_windows, token_losses, window_losses
from headway.errors import ShapeProblem, TextProblem, TokenProblem, UsageError
from headway.model.config import ModelConfig
from headway.model.forward import logits, run
from support.random_models import random_tokens, random_weights


def config(bos: int | None, n_ctx: int = 4) -> ModelConfig:
    return ModelConfig(n_layers=0, n_heads=0, d_model=2, d_head=1, d_vocab=50, n_ctx=n_ctx, bos=bos)


@pytest.mark.parametrize("bos", [None, 7])
@pytest.mark.parametrize("length", [5, 8, 9, 12, 13, 40])
def test_every_token_of_the_text_is_predicted_once(bos: int | None, length: int):
    ids = np.arange(length)
    windows = text_windows(ids, config(bos))
    assert windows.shape[1] == 5
    first = 0 if bos is not None else 1  # without a BOS nothing predicts the first token
    assert windows[:, 1:].flatten().tolist() == list(range(first, first + 4 * len(windows)))
    assert length - (first + 4 * len(windows)) < 4
    starts = [bos] * len(windows) if bos is not None else [4 * i for i in range(len(windows))]
    assert windows[:, 0].tolist() == starts


def test_a_limit_spreads_over_the_text():
    windows = text_windows(list(range(40)), config(0), limit=3)
    assert windows[:, 1].tolist() == [0, 12, 24]
    assert len(text_windows(list(range(40)), config(0), limit=99)) == 10


@pytest.mark.parametrize(
    ("ids", "bos", "limit", "error", "message"),
    [
        ([], 0, None, TextProblem, "at least 4 tokens"),
        ([1, 2, 3], 0, None, TextProblem, "got 3 tokens"),
        ([1, 2, 3, 4], None, None, TextProblem, "at least 5 tokens"),
        ([1, 2, 3, 50], 0, None, TokenProblem, "d_vocab-1=49"),
        ([1, 2, -3, 5], 0, None, TokenProblem, "-3 .. 5"),
        ([[1, 2, 3, 4]], 0, None, ShapeProblem, "pos"),
        ([1.0, 2.0, 3.0, 4.0], 0, None, ShapeProblem, "whole-number ids"),
        ([1, 2, 3, 4], 0, 0, UsageError, "limit >= 1"),
        ([1, 2, 3, 4], 0, True, UsageError, "limit >= 1"),
    ],
)
def test_texts_that_give_no_window_are_refused(ids: Any, bos: Any, limit: Any, error: type[Exception], message: str):
    array = torch.tensor(ids, dtype=torch.float32 if ids and isinstance(ids[0], float) else torch.int64)
    with pytest.raises(error, match=message):
        text_windows(array, config(bos), limit=limit)


def test_losses_are_those_of_each_token_in_turn():
    weights = random_weights(norm="layer", positions="rotary")
    windows = random_tokens(weights, rows=3, n=6)
    losses = window_losses(weights, windows, rows=2)
    assert losses.dtype == torch.float64
    for r in range(3):
        for i in range(5):
            last = logits(weights, windows[r : r + 1, : i + 1])[0, -1]
            exps = [math.exp(v) for v in last.tolist()]
            assert float(losses[r, i]) == pytest.approx(-math.log(exps[int(windows[r, i + 1])] / sum(exps)), abs=1e-9)


def test_half_precision_logits_are_summed_in_single():
    predicted = torch.tensor([[[8.0, 0.0, 0.0]]], dtype=torch.float16)
    expected = math.log(1 + 2 * math.exp(-8))
    assert float(token_losses(predicted, torch.tensor([[0]]))) == pytest.approx(expected, rel=1e-4)


def test_recordings_cover_the_inputs_in_order():
    weights = random_weights()
    windows, seen = random_tokens(weights, rows=5, n=6), []
    recordings = list(record_windows(weights, windows, rows=2, progress=lambda done, total: seen.append((done, total))))
    assert torch.equal(torch.cat([r.tokens for r in recordings]), windows[:, :-1])
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert torch.equal(recordings[1].logits, run(weights, windows[2:4, :-1]).logits)


def test_batches():
    assert [(s.start, s.stop) for s in batches(5, 2)] == [(0, 2), (2, 4), (4, 5)]
    with pytest.raises(UsageError, match="whole number of rows >= 1"):
        list(batches(5, 0))


@pytest.mark.parametrize(
    ("windows", "error", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), ShapeProblem, "window, pos"),
        (torch.zeros(2, 3), ShapeProblem, "whole-number"),
        (torch.zeros(2, 1, dtype=torch.int64), TextProblem, "one to predict"),
        (torch.zeros(0, 5, dtype=torch.int64), TextProblem, "nothing to predict"),
        (torch.tensor([[0, 1, 13]]), TokenProblem, "d_vocab-1=12"),
    ],
)
def test_bad_windows_are_refused(windows: torch.Tensor, error: type[Exception], message: str):
    weights = random_weights()
    with pytest.raises(error, match=message):
        window_losses(weights, windows)
    with pytest.raises(error, match=message):
        next(record_windows(weights, windows))
