"""The search for the largest effects of one head over all triples (source, destination, out): exact, and never V^3.

    effect(a, b, c) = w_ba O_ca,   w_ba = D_b e^{s_ba} / (e^{s_ba} + Z_b) > 0

Given a, the triple is a product of what b gives and what c gives: the best of a is its largest w times its largest O,
and its k best are pairs of places (i, j) in two sorted lists with (i + 1)(j + 1) <= k. Only sources whose best triple
reaches the k-th best of all are opened, about k of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.algebra.low_rank import LowRank
from headway.algebra.stream import row_best, tiles

Progress = Callable[[int, int], object]
_SOURCES = 64  # opened at a time
# Products of different shapes round differently: a bound from one is held against values of another with this in hand.
_SLACK = 0.05


@dataclass(frozen=True, eq=False)
class Triples:
    """Triples as places in the factors that were searched, by falling effect."""

    effect: Float[Tensor, " k"]
    source: Int[Tensor, " k"]
    destination: Int[Tensor, " k"]
    out: Int[Tensor, " k"]

    def best(self, k: int) -> Triples:
        """The k largest, ties by source, destination and out."""
        order = torch.arange(len(self.effect), device=self.effect.device)
        for key in (self.out, self.destination, self.source, -self.effect):  # stable sorts: the last one counts most
            order = order[key[order].argsort(stable=True)]
        return self._at(order[:k])

    def __add__(self, other: Triples) -> Triples:
        """Both together."""
        names = ("effect", "source", "destination", "out")
        return Triples(*(torch.cat((getattr(self, name), getattr(other, name))) for name in names))

    def _at(self, order: Int[Tensor, " n"]) -> Triples:
        return Triples(self.effect[order], self.source[order], self.destination[order], self.out[order])


@dataclass(frozen=True, eq=False)
class Factors:
    """What the effects of one head are made of.

    scores: s, [destination, source]. ov: O, [out, source], centred over outs. rest: log Z_b, what a destination gives to
    everything but the source. scale: D_b of the final norm, None where there is none.
    """

    scores: LowRank
    ov: LowRank
    rest: Float[Tensor, " destination"]
    scale: Float[Tensor, " destination"] | None

    def weight(self, sources: Int[Tensor, " s"]) -> Float[Tensor, "destination s"]:
        """w: the attention of each destination to each of these sources, times its D."""
        left, right = self.scores.pair()
        alpha = torch.sigmoid(left @ right[:, sources] - self.rest[:, None])
        return alpha if self.scale is None else alpha * self.scale[:, None]

    def moved(self, sources: Int[Tensor, " s"]) -> Float[Tensor, "out s"]:
        """O: what attending to each of these sources alone does to each logit."""
        left, right = self.ov.pair()
        return left @ right[:, sources]

    def values(
        self, source: Int[Tensor, " t"], destination: Int[Tensor, " t"], out: Int[Tensor, " t"]
    ) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"], Float[Tensor, " t"]]:
        """(alpha, D, O) of single triples, float64."""
        (q, k), (u, v) = (tuple(t.double() for t in m.pair()) for m in (self.scores, self.ov))
        s = (q[destination] * k[:, source].T).sum(1)
        alpha = torch.sigmoid(s - self.rest[destination].double())
        scale = torch.ones_like(alpha) if self.scale is None else self.scale[destination].double()
        return alpha, scale, (u[out] * v[:, source].T).sum(1)


def log_mean_exp(
    scores: LowRank, share: Float[Tensor, " source"], progress: Progress | None = None
) -> Float[Tensor, " destination"]:
    """log sum_a p(a) e^{s_ba} of every destination b, at any size of score; one tiled pass.

    share: p, not negative, summing to 1.

    >>> scores = LowRank(torch.tensor([[1000.0], [-1000.0]]), torch.tensor([[1.0, 1.0]]))
    >>> log_mean_exp(scores, torch.tensor([0.5, 0.5])).tolist()
    [1000.0, -1000.0]
    """
    left, right = scores.pair()
    p = share.to(left)
    if bool((p == 0).any()):  # a score that never occurs must not set the scale of the others
        right, p = right[:, p > 0], p[p > 0]
    most = left.new_full((len(left),), -math.inf)
    total = torch.zeros_like(most)
    for rows, columns, values in _passed(LowRank(left, right), progress):
        peak = torch.maximum(most[rows], values.amax(1))
        total[rows] = total[rows] * (most[rows] - peak).exp() + values.sub_(peak[:, None]).exp_() @ p[columns]
        most[rows] = peak
    return most + total.log()


def best_weights(factors: Factors, progress: Progress | None = None) -> Float[Tensor, " source"]:
    """The largest w over destinations, for each source; one tiled pass."""
    best = factors.rest.new_full((factors.scores.shape[1],), -math.inf)
    for rows, columns, values in _passed(factors.scores, progress):
        values.sub_(factors.rest[rows, None])
        if factors.scale is not None:
            values.sigmoid_().mul_(factors.scale[rows, None])
        best[columns] = torch.maximum(best[columns], values.amax(0))
    return best if factors.scale is not None else best.sigmoid()


def top_triples(factors: Factors, k: int, *, largest: bool = True, progress: Progress | None = None) -> Triples:
    """The k triples with the largest positive effects, or the most negative; fewer where there are no more.

    Exact up to rounding, which alone decides between triples that tie for the last place.
    """
    sign = 1 if largest else -1
    bound = best_weights(factors, progress) * row_best(factors.ov.T, 1, largest=largest).values[:, 0] * sign
    order = bound.argsort(descending=True, stable=True)
    order = order[bound[order] > 0]
    # The best triple of a source is a triple: the k-th largest of them is a floor under the k-th best of all.
    floor = float(bound[order[k - 1]]) * (1 - _SLACK) if len(order) >= k else 0.0
    found = Triples(bound[:0], order[:0], order[:0], order[:0])
    for sources in order.split(_SOURCES):
        if not len(sources) or float(bound[sources[0]]) * (1 + _SLACK) < floor:
            break
        found = (found + _opened(factors, sources, (k, sign), floor)).best(k)
        if len(found.effect) == k:
            floor = max(floor, float(found.effect[-1]))
    return Triples(found.effect * sign, found.source, found.destination, found.out)


def _opened(factors: Factors, sources: Int[Tensor, " s"], wanted: tuple[int, int], floor: float) -> Triples:
    """Triples of these sources with effects, times the sign, of at least `floor`: the k best of each among them."""
    k, sign = wanted
    weight, moved = factors.weight(sources), factors.moved(sources) * sign
    w, o = weight.topk(min(k, len(weight)), dim=0), moved.topk(min(k, len(moved)), dim=0)
    rows, columns = (
        int((mine * other[:1] >= floor).sum(0).max()) for mine, other in ((w.values, o.values), (o.values, w.values))
    )
    i, j = _places(k, rows, columns, weight.device)
    effect = w.values[i] * o.values[j]
    pair, s = ((effect >= floor) & (effect > 0)).nonzero(as_tuple=True)
    return Triples(effect[pair, s], sources[s], w.indices[i[pair], s], o.indices[j[pair], s])


def _places(k: int, rows: int, columns: int, device: torch.device) -> tuple[Int[Tensor, " p"], Int[Tensor, " p"]]:
    """Pairs (i, j) of places in two sorted lists, i < rows, j < columns, where the k best products can be.

    >>> [t.tolist() for t in _places(3, 3, 2, torch.device("cpu"))]
    [[0, 0, 1, 2], [0, 1, 0, 0]]
    """
    width = (k // torch.arange(1, rows + 1, device=device)).clamp_max(columns)
    i = torch.arange(rows, device=device).repeat_interleave(width)
    start = (width.cumsum(0) - width)[i]
    return i, torch.arange(len(i), device=device) - start


def _passed(product: LowRank, progress: Progress | None) -> Iterator[tuple[slice, slice, Tensor]]:
    """(rows, columns, values) of every tile; progress is told how many rows are done."""
    for tile in tiles(product):
        rows, columns = tile.values.shape
        yield slice(tile.row, tile.row + rows), slice(tile.column, tile.column + columns), tile.values
        if progress is not None:
            progress(tile.row + rows, product.shape[0])
