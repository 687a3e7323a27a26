"""Term importance: how much of the loss each order of paths takes off (papers.md 1.4)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.behaviour.averages import Averages
from headway.behaviour.windows import Progress, checked_windows, record_windows, token_losses
from headway.model.weights import Weights
from headway.paths.expand import order_logits
from headway.tables.table import Column, Table

COLUMNS = {
    "order": Column("heads on a path: 0 is the direct path, 2 are virtual heads of two", "heads", 0),
    "n_terms": Column("paths of this order, C(n_layers, order) n_heads^order; biases not counted", "paths", 0),
    "loss": Column("next-token loss of all paths of at most this order, patterns and norm scales frozen", "nats", 0),
    "reduction": Column("loss of the order before (order 0: of the uniform prediction, ln d_vocab) minus loss", "nats"),
    "reduction_se": Column("standard error of reduction over windows, paired", "nats", 0),
    "reduction_per_term": Column("reduction / n_terms", "nats"),
    "flag": Column("why a value of this row is missing"),
}
_LARGEST_INTEGER = 2**63 - 1


def term_importance(
    weights: Weights,
    windows: Tensor,
    *,
    max_order: int | None = None,
    rows: int = 8,
    progress: Progress | None = None,
) -> Table:
    """Marginal loss reduction by path order, nats a token: one row an order, 0 .. max_order (default n_layers).

    The model runs once for its patterns and norm scales; with these frozen, the loss of the paths of order <= k is
    taken for each k. The patterns are the true ones throughout, so only paths through values are counted by order.
    windows: [window, pos] ids from `text_windows`; rows: how many at a time. Standard errors are over windows, paired.
    With every order the last loss is the model's own: meta has `clean_loss`, `remainder` (the largest |logits of the
    last order - clean logits|) and `unexplained` (last loss - clean loss).

    >>> from headway.sources.handmade import induction_model
    >>> table = term_importance(induction_model().weights, torch.tensor([[0, 1, 2, 1, 2], [0, 3, 4, 3, 4]]))
    >>> [(row["order"], row["n_terms"]) for row in table.rows()], table.meta["remainder"] < 1e-9
    ([(0, 1), (1, 2), (2, 1)], True)
    """
    parts: list[Tensor] = []
    windows = checked_windows(windows, weights).to(weights.device)
    remainder, done = 0.0, 0
    for recording in record_windows(weights, windows, rows=rows, progress=progress):
        targets = windows[done : done + len(recording.tokens), 1:]
        done += len(targets)
        means = [token_losses(recording.logits, targets).mean(-1)]  # the clean loss first, then one for each order
        last = recording.logits
        for last in order_logits(recording, max_order=max_order):
            means.append(token_losses(last, targets).mean(-1))
        parts.append(torch.stack(means).cpu())
        remainder = max(remainder, float((last - recording.logits).abs().max()))
    losses = torch.cat(parts, -1)
    uniform = torch.full_like(losses[:1], math.log(weights.config.d_vocab))
    reductions = Averages.of(torch.cat((uniform, losses[1:-1])) - losses[1:], torch.ones(done))
    clean, *by_order = losses.mean(-1).tolist()
    numbers = {"clean_loss": clean, "remainder": remainder, "unexplained": by_order[-1] - clean}
    meta = {name: value if math.isfinite(value) else None for name, value in numbers.items()} | {"windows": done}
    origin = replace(weights.provenance, weights=weights.content_hash()).with_options(max_order=len(by_order) - 1)
    return Table.from_rows(_rows(weights, by_order, reductions), COLUMNS, origin, meta)


def _rows(weights: Weights, losses: list[float], reductions: Averages) -> list[dict[str, Any]]:
    c = weights.config
    counts = [math.comb(c.n_layers, k) * c.n_heads**k for k in range(len(losses))]
    exact = max(counts) <= _LARGEST_INTEGER
    rows: list[dict[str, Any]] = []
    for order, (loss, n_terms) in enumerate(zip(losses, counts, strict=True)):
        reduction = float(reductions.mean[order])
        flags = ["one window: no standard error"] if reductions.n == 1 else []
        flags += [] if n_terms else ["no path of this order"]
        rows.append(
            {
                "order": order,
                "n_terms": n_terms if exact else float(n_terms),
                "loss": loss,
                "reduction": reduction,
                "reduction_se": float(reductions.se[order]),
                "reduction_per_term": reduction / n_terms if n_terms else None,
                "flag": "; ".join(flags) or None,
            }
        )
    return rows
