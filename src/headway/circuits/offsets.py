"""The offset profile: how what position alone gives to a head's scores depends on how far back the source is.

Scores are defined up to a constant per destination (softmax), so with S the scores of position alone over i, j <= i, only
C S counts, C taking the mean over sources from each row. The function f of the offset that explains most of it minimises

    || C S - C F ||^2,   F_ij = f(i - j):      A f = b,   b_D = sum_i (C S)_{i,i-D},
                                               A_DE = (n - D) [D = E] - sum_{i >= max(D, E)} 1 / (i + 1)

and explains the share f.b / ||C S||^2. Centring F too is what makes it exact: rows near the beginning hold few offsets,
so that even scores which depend on the offset alone are none of it after centring.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.circuits.positional import positions_in
from headway.errors import UsageError
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

MOST = 2048  # positions: the profile holds and solves n x n numbers in float64
COLUMNS = {
    "offset": Column("destination minus source", "positions", 0),
    "pairs": Column("how many pairs of places have this offset", "pairs", 1),
    "score": Column(
        "mean over destinations of the score of position alone, centred over the sources of each destination", "nats"
    ),
    "fit": Column("the function of the offset that explains most of those scores, its mean over all pairs 0", "nats"),
    "share": Column(
        "share of the variance of those scores that `fit` explains, of all offsets together", "dimensionless", 0, 1
    ),
    "flag": Column("why a value of this row is missing"),
}
_WHAT = {
    "shortformer": "position x position; content and cross terms are not in it",
    "learned": "position x position of the position table; content and cross terms are not in it",
    "rotary": "the score of the average content with itself at each offset; a function of the offset by construction",
}
_NORMED = "each position divided by its norm scale averaged over tokens: the average over independent tokens"
_DEEPER = "positions as the embedding writes them; what earlier heads do with them is not in it"


def offset_profile(weights: Weights, head: str | HeadId, *, positions: int | None = None) -> Table:
    """How the score of position alone depends on the offset, one row an offset; with the share an offset explains.

    A difference of 1 nat is a factor e between attentions. positions: how many places, n_ctx when left out, 2048 at most.
    What stands for position is in `meta` ("what"): see `position_scores`. share: 1 when scores depend on the offset
    alone; for random W_QK and sinusoids 0.06 to 0.12 at the median, up to 0.47 (16 draws at each of 4 sizes); null and
    flagged when position alone prefers no source. Unchanged by a constant on a row of scores. Exact for shortformer heads
    in any layer; learned and rotary positions are taken as the embedding writes them. A model without positions gives an
    empty table whose meta says so. Raises UnknownName for a head that does not exist, UsageError for a number of
    positions that does not fit.

    >>> from headway.sources.handmade import previous_token_model
    >>> table = offset_profile(previous_token_model().weights, "L0H0")
    >>> best = table.sort("score", descending=True).rows()[0]
    >>> best["offset"], round(best["share"], 6)
    (1, 1.0)
    """
    check_weights(weights)
    id_, c = weights.head_id(head), weights.config
    n = _checked_number(positions, weights)
    seen = processed(weights.check_finite(), "folded")
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(None, head=str(id_), positions=n)
    meta: dict[str, Any] = {"dtype": "float64", "positions": c.positions}
    scores = positions_in(seen, id_, n)
    if scores is None:
        empty = "no positions: scores depend on contents alone"
        return Table.from_rows([], COLUMNS, origin, meta | {"empty": empty})
    notes = [_NORMED] if c.positions == "learned" and c.norm != "none" else []
    notes += [_DEEPER] if c.positions != "shortformer" and id_.layer else []
    centred = _centred(scores)
    mean, fit, share, variance = _explained(centred, floor=float(scores.abs().max()) * 1e-12)
    flag = None if share is not None else "share: position alone prefers no source"
    rows = [
        {"offset": D, "pairs": n - D, "score": float(mean[D]), "fit": float(fit[D]), "share": share, "flag": flag}
        for D in range(n)
    ]
    meta |= {"what": _WHAT[c.positions], "sd": variance**0.5, "notes": notes}
    return Table.from_rows(rows, COLUMNS, origin, meta)


def _centred(scores: Float[Tensor, "dst src"]) -> Float[Tensor, "dst src"]:
    """Each row less its mean over sources <= destination, zeros beyond."""
    allowed = torch.ones_like(scores).tril()
    kept = scores.masked_fill(allowed == 0, 0)
    return (kept - kept.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)) * allowed


def _explained(
    centred: Float[Tensor, "n n"], *, floor: float
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"], float | None, float]:
    """Mean per offset, the best function of the offset, the share it explains (None of nothing), and the variance."""
    n = len(centred)
    places = torch.arange(n, device=centred.device)
    offsets = (places[:, None] - places).clamp_min(0).flatten()
    sums = centred.new_zeros(n).index_add_(0, offsets, centred.flatten())  # beyond the diagonal it adds zeros
    pairs = (n - places).double()
    variance = float(centred.square().sum() / pairs.sum())
    if variance**0.5 <= floor:
        return centred.new_zeros(n), centred.new_zeros(n), None, 0.0
    tail = (1 / (places + 1).double()).flip(0).cumsum(0).flip(0)
    gram = pairs.diag() - tail[torch.maximum(places[:, None], places)]
    # Constants are all that A does not see; sums are orthogonal to them, and so is the solution then.
    fit = torch.linalg.solve(gram + 1.0, sums)
    share = float(fit @ sums / centred.square().sum())
    return sums / pairs, fit - fit @ pairs / pairs.sum(), min(share, 1.0), variance


def _checked_number(positions: int | None, weights: Weights) -> int:
    most = weights.config.n_ctx if weights.config.positions == "learned" else MOST
    if positions is None:
        return min(weights.config.n_ctx, MOST)
    if isinstance(positions, bool) or not isinstance(positions, int) or not 1 <= positions <= min(most, MOST):
        raise UsageError("positions", expected=f"a whole number from 1 to {min(most, MOST)}", got=repr(positions))
    return positions
