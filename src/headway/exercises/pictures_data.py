"""The picture of a verdict as plain arrays: score against offset, or attention on one sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from headway.exercises.kernel import Kernel
from headway.exercises.proof import Rule, States
from headway.exercises.scoring import sharpened
from headway.exercises.verdict import Picture


def kernel_picture(yours: Kernel, wanted: Kernel, back: int, n: int) -> Picture:
    """Score against offset, each scaled to run from 0 to 1 (scale is not graded); where yours is near or above the target
    is marked.
    """
    offsets = range(n)
    mine, theirs = (_unit(kernel.at(offsets)) for kernel in (yours, wanted))
    return Picture(
        kind="kernel",
        yours=mine.numpy(),
        wanted=theirs.numpy(),
        difference=(mine - theirs).numpy(),
        rows=("score",),
        columns=tuple(map(str, offsets)),
        marks=yours.near(back, n),
    )


def pattern_picture(states: States, rule: Rule, tokens: Sequence[int]) -> Picture:
    """Attention on one sequence of tokens: see `attention_picture`."""
    chosen = torch.tensor(tokens)

    def row(i: int) -> tuple[Tensor, Tensor]:
        keys = torch.arange(i + 1)
        scores = states.K[keys, chosen[: i + 1]] @ states.Q[i, chosen[i]]
        return scores, rule(states, i)[0][chosen[i], keys, chosen[: i + 1]]

    return attention_picture(tokens, row)


def attention_picture(tokens: Sequence[int], row: Callable[[int], tuple[Tensor, Tensor]]) -> Picture:
    """Attention on one sequence of tokens: yours (sharpened as a counterexample is), wanted (targets share a row equally;
    a query without a target has a row of NaN, which is not drawn), and their difference.

    row(i): scores of query i over keys 0 .. i, and which of these are targets.
    """
    n = len(tokens)
    yours, wanted = (torch.full((n, n), torch.nan, dtype=torch.float64) for _ in range(2))
    for i in range(n):
        scores, hits = row(i)
        yours[i, : i + 1] = sharpened(scores)[0]
        if bool(hits.any()):
            wanted[i, : i + 1] = hits.double() / hits.sum()
    labels = tuple(f"{m}:{t}" for m, t in enumerate(tokens))
    return Picture("matrix", yours.numpy(), wanted.numpy(), (yours - wanted).numpy(), labels, labels)


def example_tokens(n: int, n_tokens: int) -> tuple[int, ...]:
    """A short sequence with copies near and far, for the picture of an answer that passed."""
    pattern = (0, 1, 2, 0, 3, 1, 4, 2, 2, 5)
    return tuple(t % n_tokens for t in pattern[: min(n, len(pattern))])


def _unit(scores: Tensor) -> Tensor:
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if bool(high > low) else torch.zeros_like(scores)
