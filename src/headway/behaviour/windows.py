"""Held-out text cut to windows behind BOS, and what a model does on them, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headway.errors import TextProblem, TokenProblem, UsageError
from headway.model.config import ModelConfig
from headway.model.forward import logits, run
from headway.model.recording import Recording
from headway.model.weights import Weights, check_weights
from headway.shapes import as_tensor, whole_ids

Progress = Callable[[int, int], object]
Ids = Sequence[int] | np.ndarray | Tensor


def text_windows(ids: Ids, config: ModelConfig, *, limit: int | None = None) -> Int[Tensor, "window pos"]:
    """Windows of a text, [window, n_ctx + 1]: a model reads all but a row's last token and predicts all but its first.

    With a BOS every row is BOS and n_ctx tokens of the text; without, n_ctx + 1 tokens, the last of which starts the
    next row. Either way each token is predicted once; a rest shorter than a window is left out. limit: that many rows,
    evenly spread over the text. Raises TextProblem when there is not one window, TokenProblem for unknown ids.

    >>> c = ModelConfig(n_layers=0, n_heads=0, d_model=2, d_head=1, d_vocab=9, n_ctx=3, bos=0)
    >>> text_windows([1, 2, 3, 4, 5, 6, 7], c).tolist()
    [[0, 1, 2, 3], [0, 4, 5, 6]]
    """
    row = whole_ids(as_tensor(ids, "token ids of a text"), "token ids of a text", "pos")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise UsageError("a number of windows", expected="a whole limit >= 1, or None for all", got=repr(limit))
    needed = config.n_ctx + (config.bos is None)
    if len(row) < needed:
        raise TextProblem(
            "text too short for one window",
            expected=f"at least {needed} tokens (n_ctx={config.n_ctx})",
            got=f"{len(row)} tokens",
            next_step="Give more text",
        )
    _check_ids(row, config)
    windows = row.unfold(0, needed, config.n_ctx)
    if limit is not None and limit < len(windows):
        windows = windows[torch.arange(limit) * len(windows) // limit]
    if config.bos is None:
        return windows.contiguous()
    return torch.cat((windows.new_full((len(windows), 1), config.bos), windows), dim=1)


def record_windows(
    weights: Weights, windows: Tensor, *, rows: int = 8, progress: Progress | None = None
) -> Iterator[Recording]:
    """A recording of each batch of windows' inputs (all tokens but the last of each row), one at a time."""
    windows = checked_windows(windows, weights).to(weights.device)
    for part in batches(len(windows), rows, progress):
        yield run(weights, windows[part, :-1])


@torch.no_grad()
def window_losses(
    weights: Weights, windows: Tensor, *, rows: int = 8, progress: Progress | None = None
) -> Float[Tensor, "window pos"]:
    """Next-token loss in nats at every position of every window, float64: entry [r, i] is -ln p(token i+1 | 0 .. i).

    windows: [window, pos] ids, BOS included. rows: windows at a time. progress: called with (done, total).
    """
    windows = checked_windows(windows, weights).to(weights.device)
    parts = batches(len(windows), rows, progress)
    return torch.cat([token_losses(logits(weights, windows[part, :-1]), windows[part, 1:]) for part in parts])


def token_losses(
    predicted: Float[Tensor, "window pos vocab"], targets: Int[Tensor, "window pos"]
) -> Float[Tensor, "window pos"]:
    """-ln softmax(predicted)[target] in nats, float64; the softmax is taken in float32 at least."""
    wide = predicted if predicted.dtype == torch.float64 else predicted.float()
    return F.cross_entropy(wide.transpose(1, 2), targets, reduction="none").double()


def checked_windows(windows: Tensor, weights: Weights) -> Int[Tensor, "window pos"]:
    """The windows as int64. Raises unless they are rows of at least two known ids that begin as the model's texts do."""
    check_weights(weights)
    windows = whole_ids(windows, "windows", "window pos")
    if not len(windows) or windows.shape[1] < 2:
        expected = "at least one window of two tokens: one to read, one to predict"
        raise TextProblem("nothing to predict", expected=expected, got=tuple(windows.shape))
    _check_ids(windows, weights.config)
    bos = weights.config.bos
    if bos is not None and bool((windows[:, 0] != bos).any()):
        raise TokenProblem(
            "windows do not begin with BOS",
            expected=f"BOS, id {bos}, in front of every window: the model has read none without",
            got=f"{int((windows[:, 0] != bos).sum())} of {len(windows)} windows without",
            next_step="Cut the text with text_windows(ids, weights.config)",
        )
    return windows


def batches(total: int, rows: int, progress: Progress | None = None) -> Iterator[slice]:
    """Slices of `rows` out of `total`; progress is told after each has been used."""
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise UsageError("a batch has rows", expected="a whole number of rows >= 1", got=repr(rows))
    for start in range(0, total, rows):
        yield slice(start, min(start + rows, total))
        if progress is not None:
            progress(min(start + rows, total), total)


def _check_ids(ids: Tensor, config: ModelConfig) -> None:
    low, high = (int(i) for i in ids.aminmax())
    if low < 0 or high >= config.d_vocab:
        raise TokenProblem(
            "token ids outside the vocabulary",
            expected=f"0 .. d_vocab-1={config.d_vocab - 1}",
            got=f"{low} .. {high}",
            next_step="Use the tokenizer the model was trained with",
        )
