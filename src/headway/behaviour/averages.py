"""Averages over the queries of many texts, with standard errors over the texts, added up batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headway.errors import ShapeProblem


@dataclass(frozen=True, eq=False)
class Averages:
    """Pooled means of quantities that each text gives as a sum over some count of places.

        mean = sum_r x_r / sum_r c_r,   se = sqrt(n/(n-1) sum_r (x_r - mean c_r)^2) / sum_r c_r

    x_r: the sum over text r, c_r: its number of places, n: texts. Texts are the independent draws, not their positions,
    so the error is taken over texts (the ratio estimator; with equal counts it is the sd of the texts' means / sqrt n).
    What is kept are the means of x and c and their centred second moments, so that memory does not grow with the texts
    and a constant quantity has an error of exactly 0. Add two to pool them. NaN where nothing was counted, or, for the
    error, with fewer than two texts.

    >>> total = Averages.of(torch.tensor([2.0, 4.0]), torch.tensor([2.0, 2.0]))
    >>> total.mean.item(), total.se.item()
    (1.5, 0.5)
    """

    n: int
    x: Tensor
    c: Tensor
    xx: Tensor
    xc: Tensor
    cc: Tensor

    @classmethod
    def of(cls, sums: Float[Tensor, "*quantity row"], counts: Float[Tensor, "*#quantity row"]) -> Averages:
        """The averages of one batch of texts; the last axis runs over the texts."""
        if sums.shape[-1] == 0:
            raise ShapeProblem("averages of no text", expected="at least one row", got=tuple(sums.shape))
        values, places = sums.detach().cpu().double(), counts.detach().cpu().double()
        x, c = values.mean(-1), places.mean(-1)
        dx, dc = values - x[..., None], places - c[..., None]
        return cls(sums.shape[-1], x, c, dx.square().sum(-1), (dx * dc).sum(-1), dc.square().sum(-1))

    def __add__(self, other: Averages) -> Averages:
        """Both together: second moments about the common means (Chan, Golub and LeVeque's update)."""
        n = self.n + other.n
        dx, dc, share = other.x - self.x, other.c - self.c, other.n / n
        weight = self.n * share
        return Averages(
            n,
            self.x + share * dx,
            self.c + share * dc,
            self.xx + other.xx + weight * dx.square(),
            self.xc + other.xc + weight * dx * dc,
            self.cc + other.cc + weight * dc.square(),
        )

    @property
    def mean(self) -> Tensor:
        """The pooled means, float64."""
        return self.x / self.c.where(self.c > 0, math.nan)

    @property
    def se(self) -> Tensor:
        """Standard errors of the means over texts."""
        if self.n < 2:
            return torch.full_like(self.x, math.nan)
        spread = (self.xx - 2 * self.mean * self.xc + self.mean.square() * self.cc).clamp_min(0)
        return (spread / (self.n - 1) / self.n).sqrt() / self.c.where(self.c > 0, math.nan)

    def widened(self, width: int) -> Averages:
        """With zeros for quantities that the last axis had no room for: what longer texts have and these had not."""
        x, xx, xc = (F.pad(t, (0, width - t.shape[-1])) for t in (self.x, self.xx, self.xc))
        return Averages(self.n, x, self.c, xx, xc, self.cc)
