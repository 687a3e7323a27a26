"""The picture of a verdict as plain arrays: score against offset, or attention on one sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.exercises.kernel import Kernel
from headway.exercises.proof import Rule, States
from headway.exercises.scoring import SPREAD
from headway.exercises.verdict import Picture


def kernel_picture(yours: Kernel, wanted: Kernel, back: int, n: int) -> Picture:
    """Score against offset, each scaled to run from 0 to 1 (scale is not graded); aliases of yours are marked."""
    offsets = range(n)
    mine, theirs = (_unit(kernel.at(offsets)) for kernel in (yours, wanted))
    return Picture(
        kind="kernel",
        yours=mine.numpy(),
        wanted=theirs.numpy(),
        difference=(mine - theirs).numpy(),
        rows=("score",),
        columns=tuple(map(str, offsets)),
        marks=yours.aliases(back, n),
    )


def pattern_picture(states: States, rule: Rule, tokens: Sequence[int]) -> Picture:
    """Attention on one sequence of tokens: yours (sharpened as a counterexample is), wanted (targets share a row equally;
    a query without a target has a row of NaN, which is not drawn), and their difference.
    """
    n = len(tokens)
    chosen = torch.tensor(tokens)
    yours, wanted = (torch.full((n, n), torch.nan, dtype=torch.float64) for _ in range(2))
    for i in range(n):
        keys = torch.arange(i + 1)
        row = states.K[keys, chosen[: i + 1]] @ states.Q[i, chosen[i]]
        width = float(row.max() - row.min())
        yours[i, : i + 1] = (row * (SPREAD / width if width > 0 else 1.0)).softmax(0)
        hits = rule(states, i)[0][chosen[i], keys, chosen[: i + 1]]
        if bool(hits.any()):
            wanted[i, : i + 1] = hits.double() / hits.sum()
    labels = tuple(f"{m}:{t}" for m, t in enumerate(tokens))
    return Picture(
        kind="matrix",
        yours=yours.numpy(),
        wanted=wanted.numpy(),
        difference=(yours - wanted).numpy(),
        rows=labels,
        columns=labels,
    )


def example_tokens(n: int, n_tokens: int) -> tuple[int, ...]:
    """A short sequence with copies near and far, for the picture of an answer that passed."""
    pattern = (0, 1, 2, 0, 3, 1, 4, 2, 2, 5)
    return tuple(t % n_tokens for t in pattern[: min(n, len(pattern))])


def _unit(scores: Tensor) -> Tensor:
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if bool(high > low) else torch.zeros_like(scores)
