"""Loss along the context: what a model gains from having read more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.behaviour.averages import Averages
from headway.behaviour.windows import Progress, checked_windows, window_losses
from headway.errors import ShapeProblem, TextProblem, UsageError
from headway.model.weights import Weights
from headway.tables.table import Column, Table

# The indices of Olsson et al. 2022: the 500th and 50th of 512 tokens. Shorter contexts take the same shares.
LATE, EARLY, OF = 500, 50, 512
Where = int | tuple[int, int]

POSITION_COLUMNS = {
    "position": Column("index of the token that predicts, BOS at 0: its target is the next token", "positions", 0),
    "loss": Column("next-token loss, mean over windows", "nats", 0),
    "se": Column("standard error of loss over windows", "nats", 0),
    "n": Column("windows", "windows", 1),
    "flag": Column("why a value of this row is missing"),
}
SCORE_COLUMNS = {
    "in_context_score": Column("loss_late - loss_early: negative when reading more helps", "nats"),
    "in_context_score_se": Column("standard error of the difference over windows, paired", "nats", 0),
    "late_first": Column("first late position (index of the token that predicts, BOS at 0)", "positions", 0),
    "late_last": Column("last late position", "positions", 0),
    "early_first": Column("first early position", "positions", 0),
    "early_last": Column("last early position", "positions", 0),
    "loss_late": Column("loss at the late positions, mean over them and over windows", "nats", 0),
    "loss_early": Column("loss at the early positions, mean over them and over windows", "nats", 0),
    "n": Column("windows", "windows", 1),
    "flag": Column("why a value of this row is missing"),
}


def loss_by_position(
    weights: Weights, windows: Tensor, *, losses: Tensor | None = None, progress: Progress | None = None
) -> Table:
    """Mean next-token loss at each position of a context, with standard errors over windows; one row a position.

    windows: [window, pos] ids from `text_windows`. losses: those of `window_losses` on them, when already computed.

    >>> from headway.sources.handmade import induction_model
    >>> table = loss_by_position(induction_model().weights, torch.tensor([[0, 1, 2, 1, 2], [0, 3, 4, 3, 4]]))
    >>> table.rows()[3]["loss"] < table.rows()[1]["loss"]
    True
    """
    losses = _losses(weights, windows, losses, progress)
    averages = Averages.of(losses.T, torch.ones(len(losses)))
    rows = [
        {"position": position, "loss": mean, "se": se, "n": len(losses), "flag": _one_window(losses)}
        for position, (mean, se) in enumerate(zip(averages.mean, averages.se, strict=True))
    ]
    return Table.from_rows(rows, POSITION_COLUMNS, replace(weights.provenance, weights=weights.content_hash()))


def in_context_score(
    weights: Weights,
    windows: Tensor,
    *,
    late: Where | None = None,
    early: Where | None = None,
    losses: Tensor | None = None,
    progress: Progress | None = None,
) -> Table:
    """Loss late in the context minus loss early in it, averaged over windows: one row, with the indices in it.

    late, early: a position, or (first, last) for the mean over a stretch; a position is the index of the token that
    predicts, BOS at 0. Default: the paper's 500 and 50 of 512, in proportion for another context of n positions
    (500 n // 512 and 50 n // 512). Standard errors are over windows, paired. losses: as in `loss_by_position`. Raises
    TextProblem when the windows are too short for the indices.
    """
    losses = _losses(weights, windows, losses, progress)
    n = losses.shape[1]
    late_at = _stretch("late", LATE * n // OF if late is None else late, n)
    early_at = _stretch("early", EARLY * n // OF if early is None else early, n)
    if early_at[1] >= late_at[0]:
        raise UsageError("early positions come before late ones", expected="early < late", got=f"{early_at}, {late_at}")
    at = [losses[:, first : last + 1].mean(-1) for first, last in (late_at, early_at)]
    averages = Averages.of(torch.stack([at[0] - at[1], *at]), torch.ones(len(losses)))
    score, loss_late, loss_early = averages.mean.tolist()
    row: dict[str, Any] = {"in_context_score": score, "in_context_score_se": float(averages.se[0])}
    row |= {"late_first": late_at[0], "late_last": late_at[1], "early_first": early_at[0], "early_last": early_at[1]}
    row |= {"loss_late": loss_late, "loss_early": loss_early, "n": len(losses), "flag": _one_window(losses)}
    origin = replace(weights.provenance, weights=weights.content_hash())
    return Table.from_rows([row], SCORE_COLUMNS, origin.with_options(late=list(late_at), early=list(early_at)))


def _losses(
    weights: Weights, windows: Tensor, losses: Tensor | None, progress: Progress | None
) -> Float[Tensor, "window pos"]:
    if losses is None:
        return window_losses(weights, windows, progress=progress)
    n, length = checked_windows(windows, weights).shape
    if not isinstance(losses, Tensor) or tuple(losses.shape) != (n, length - 1):
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ShapeProblem("losses", expected=f"a tensor (window={n}, pos={length - 1})", got=got)
    return losses


def _stretch(name: str, where: Where, n: int) -> tuple[int, int]:
    ends = where if isinstance(where, tuple | list) else (where, where)
    whole = len(ends) == 2 and all(isinstance(end, int) and not isinstance(end, bool) for end in ends)
    if not whole or not 0 <= ends[0] <= ends[1]:
        expected = "a position >= 0, or (first, last) with first <= last"
        raise UsageError(f"{name} positions", expected=expected, got=repr(where))
    first, last = ends
    if last >= n:
        raise TextProblem(
            f"windows too short for the {name} positions",
            expected=f"more than {last} positions that predict",
            got=f"{n}",
            next_step=f"Give longer windows, or {name} positions up to {n - 1}",
        )
    return first, last


def _one_window(losses: Tensor) -> str | None:
    return "one window: no standard error" if len(losses) == 1 else None
