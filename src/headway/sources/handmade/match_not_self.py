"""The head that looks for earlier copies of its token, but not at itself (exercise 2d)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import linprog

from headway.errors import UsageError
from headway.sources.handmade.parts import Rows, kernel_rows, sink_rows
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space


# Why it works.  Contents are orthonormal; b = sum_f b_f is the size of a penalty on near positions, d = i - j:
#   score    s_ij / T = c_{t_i} . c_{t_j} - sum_f b_f cos(a_f d) = [equal tokens] - phi(d),      phi(0) = b
# stacked, not added: contents and positions have rows of their own, so there are no cross terms (exercises.md C12).
# With M and m the largest and smallest phi(d) over the offsets 1 .. n-1,
#   an earlier match is at least  1 - M,    the query itself exactly  1 - b,    any other at most  -m
#   match above itself            b - M  >= g
#   match above any other    1 - M + m   >= g
# b is thus in a window: 0 < b < about 1/R (C8; for fixed weights w, b = 1/(G + R) is best, with margin G/(G + R), where G
# and R are the kernel's gap and range at d >= 1). All b_f, M, m and g together are a linear programme: the best penalty.
# With a BOS that has no position (phi = 0 there, and no content) a query without a copy can be sent there, by a query bias
# s on `start`, which costs half the margin:
#   match above BOS   1 - M - s >= g       BOS above itself   s - (1 - b) >= g      BOS above others   s + m >= g
# If BOS had a position, its phi would move between m and M with the query, and no s would do unless b - M > M - m.
# Several copies: T g decides against rivals, not among copies. The one with the smallest phi wins if it stands apart by
# log(1/leak)/T, else they share (C9).
@dataclass(frozen=True)
class MatchNotSelf:
    """Attends to earlier copies of the query's token; where there is none to a BOS without position, else to anything.

    W_QK = T (content^+T content^+ - P diag(b_f / r_f^2) P^+), P the columns of `position`.
    """

    def reads(self, plan: Plan) -> tuple[str, ...]:
        """Contents and positions."""
        return ("content", plan.place)

    def gap(self, plan: Plan, _: Mapping[str, float]) -> float:
        """The margin g of the best penalty."""
        return best_penalty(plan.angles, plan.n_ctx, sink=plan.bare_bos)[2]

    def rows(self, space: Space, plan: Plan, sharpness: float) -> Rows:
        """Two rows a pair, one a content dim, one for the sink."""
        penalty, score, _ = best_penalty(plan.angles, plan.n_ctx, sink=plan.bare_bos)
        rows = kernel_rows(space, plan, tuple(-sharpness * b for b in penalty))
        rows = rows.and_rows(Rows(Q=sharpness * space.read("content"), K=space.read("content")))
        return rows.and_rows(sink_rows(space, sharpness * score)) if plan.bare_bos else rows


@lru_cache(maxsize=64)
def best_penalty(
    frequencies: tuple[float, ...], n_ctx: int, *, sink: bool = False
) -> tuple[tuple[float, ...], float, float]:
    """The penalty b_f on each pair, the score s of BOS, and the margin g that they reach, for contents of length 1.

    sink: whether a BOS without position takes queries that have no copy. Dimensionless; g between 0 and 1. Exact up to the
    programme's tolerance: g is computed from the b_f it returns, and is 0 when some offset looks like 0, so that no
    penalty parts the query from a copy there. Raises UsageError without frequencies.
    """
    if not frequencies or n_ctx < 2:
        raise UsageError("a penalty on near positions", expected="positions and two places", got=(frequencies, n_ctx))
    waves = np.cos(np.outer(np.arange(1, n_ctx), np.asarray(frequencies)))  # phi(d) = waves @ b
    k, ones, zeros = len(frequencies), np.ones(len(waves)), np.zeros(len(waves))
    # Unknowns: b_f, M, m, s, g; every row says  row . unknowns <= bound.
    extremes = np.vstack((np.c_[waves, -ones, zeros, zeros, zeros], np.c_[-waves, zeros, ones, zeros, zeros]))
    parted = np.asarray(_parted(sink), float)
    rows = np.vstack((extremes, np.c_[np.outer(parted[:, 0], np.ones(k)), parted[:, 1:5]]))
    solved = linprog(
        np.r_[np.zeros(k + 3), -1.0],
        A_ub=rows,
        b_ub=np.r_[zeros, zeros, parted[:, 5]],
        bounds=[(0, None)] * k + [(None, None)] * 4,
    )
    b, s = np.clip(solved.x[:k], 0, None), float(solved.x[k + 2])
    phi = waves @ b
    margins = parted[:, 5] - parted[:, :4] @ np.r_[b.sum(), phi.max(), phi.min(), s]
    return tuple(float(x) for x in b), s, float(margins.min())


def _parted(sink: bool) -> list[tuple[int, ...]]:
    """What must stay apart by g: coefficients of sum b, M, m, s, g, and the bound, as in the proof above."""
    if sink:
        return [(0, 1, 0, 1, 1, 1), (-1, 0, 0, -1, 1, -1), (0, 0, -1, -1, 1, 0)]
    return [(-1, 1, 0, 0, 1, 0), (0, 1, -1, 0, 1, 1)]
