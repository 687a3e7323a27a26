"""Passes over all entries of a huge factored product, a tile at a time: exact, in bounded memory.

A product L R of 50,257 x 50,257 has 2.5e9 entries: 10 GB that nobody needs. What people ask of it is the largest entries,
the best of each row, how the diagonal stands in its columns, how values are spread; each is one pass over tiles, and the
largest entries need less than a pass: |M_ij| <= |a_i| |b_j| skips every tile that cannot hold one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.algebra.given import real_tensor, true_or_false, whole_number
from headway.algebra.low_rank import LowRank
from headway.errors import NotFinite, ShapeProblem, UsageError

Progress = Callable[[int, int], object]
ROWS, COLUMNS = 1024, 4096


class Tile(NamedTuple):
    """A dense block M[row : row + m, column : column + n] = values [m, n], valid until the next tile is asked for."""

    row: int
    column: int
    values: Float[Tensor, "m n"]


class RowBest(NamedTuple):
    """The k best entries of each row, best first: values [m, k] and their columns [m, k]."""

    values: Float[Tensor, "m k"]
    columns: Int[Tensor, "m k"]


@dataclass(frozen=True, eq=False)
class DiagonalRanks:
    """Of each column j of a square product: M[j, j] and how many entries of that column are above and below it.

    Entries nearer to M[j, j] than `slack`, what rounding leaves open, count as neither; the entry itself is one of them.
    """

    diagonal: Float[Tensor, " n"]
    slack: Float[Tensor, " n"]
    above: Int[Tensor, " n"]
    below: Int[Tensor, " n"]

    @property
    def tied(self) -> Int[Tensor, " n"]:
        """How many entries of each column are equal to the diagonal one within rounding, itself included."""
        return len(self.above) - self.above - self.below


def tiles(product: LowRank, *, rows: int = ROWS, columns: int = COLUMNS) -> Iterator[Tile]:
    """Every dense block of a product, row blocks outside, column blocks inside; the blocks share one buffer.

    A block may be changed in place. Raises ShapeProblem for a product with leading axes (use .at()), NotFinite for one
    with NaN or infinity.

    >>> [
    ...     (t.row, t.column, tuple(t.values.shape))
    ...     for t in tiles(LowRank(torch.ones(3, 1), torch.ones(1, 5)), columns=4)
    ... ]
    [(0, 0, (3, 4)), (0, 4, (3, 1))]
    """
    left, right = checked_pair(product)
    rows, columns = (whole_number(size, "size of a tile", least=1) for size in (rows, columns))
    return _blocks(left, right, rows, columns)


def _blocks(left: Tensor, right: Tensor, rows: int, columns: int) -> Iterator[Tile]:
    room = left.new_empty(min(rows, len(left)) * min(columns, right.shape[1]))
    for row in range(0, len(left), rows):
        part = left[row : row + rows]
        for column in range(0, right.shape[1], columns):
            block = right[:, column : column + columns]
            out = room[: len(part) * block.shape[1]].view(len(part), block.shape[1])
            yield Tile(row, column, torch.mm(part, block, out=out))


def row_best(product: LowRank, k: int, *, largest: bool = True, progress: Progress | None = None) -> RowBest:
    """The k largest (or smallest) entries of each row and where they stand; all of a row when it has no more than k.

    For columns pass product.T. Among entries that tie within rounding any may be given. progress is told (rows done,
    rows). Raises as `tiles` does, UsageError for a k that is no whole number >= 1.

    >>> row_best(LowRank(torch.eye(2), torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]])), 2).columns
    tensor([[1, 2],
            [2, 0]])
    """
    k, largest = whole_number(k, "k, entries of each row", least=1), true_or_false(largest, "largest")
    left, right = checked_pair(product)
    m, n = len(left), right.shape[1]
    k = min(k, n)
    values, columns = left.new_empty(m, k), torch.empty(m, k, dtype=torch.int64, device=left.device)
    best: RowBest | None = None
    for tile in _blocks(left, right, ROWS, COLUMNS):
        here = RowBest(*tile.values.topk(min(k, tile.values.shape[1]), dim=1, largest=largest))
        here = RowBest(here.values, here.columns + tile.column)
        if tile.column and best is not None:
            both = RowBest(*(torch.cat(pair, dim=1) for pair in zip(best, here, strict=True)))
            order = both.values.sort(dim=1, descending=largest, stable=True).indices[:, :k]
            here = RowBest(both.values.gather(1, order), both.columns.gather(1, order))
        best = here
        if tile.column + tile.values.shape[1] == n:
            rows = slice(tile.row, tile.row + len(tile.values))
            values[rows], columns[rows] = here
            if progress is not None:
                progress(rows.stop, m)
    return RowBest(values, columns)


def diagonal_ranks(product: LowRank, *, progress: Progress | None = None) -> DiagonalRanks:
    """How the diagonal stands in its columns: entries above and below M[j, j], exact up to the rounding in `slack`.

    progress is told (rows done, rows). Raises as `tiles` does, ShapeProblem when m != n.

    >>> ranks = diagonal_ranks(LowRank(torch.eye(2), torch.tensor([[1.0, 3.0], [2.0, 0.0]])))
    >>> ranks.above.tolist(), ranks.below.tolist()
    ([1, 1], [0, 0])
    """
    left, right = checked_pair(product)
    n, eps = right.shape[1], torch.finfo(left.dtype).eps
    if len(left) != n:
        raise ShapeProblem("ranks of a diagonal", expected="a square product", got=product.shape)
    diagonal = (left * right.mT).sum(-1)
    slack = 4 * max(left.shape[1], 1) * eps * _most(left.norm(dim=1)) * right.norm(dim=0)
    above, below = (torch.zeros(n, dtype=torch.float64, device=left.device) for _ in range(2))
    high, low = diagonal + slack, diagonal - slack
    for tile in _blocks(left, right, ROWS, COLUMNS):
        here = slice(tile.column, tile.column + tile.values.shape[1])
        # 0 and 1 as floats: counting them is then a product with ones, several times faster than a sum of truth values.
        hits, ones = torch.empty_like(tile.values), tile.values.new_ones(1, len(tile.values))
        above[here] += (ones @ torch.gt(tile.values, high[here], out=hits))[0]
        below[here] += (ones @ torch.lt(tile.values, low[here], out=hits))[0]
        if progress is not None and here.stop == n:
            progress(tile.row + len(tile.values), n)
    return DiagonalRanks(diagonal.double(), slack.double(), above.long(), below.long())


def histogram(
    product: LowRank, edges: Float[Tensor, " edges"], *, progress: Progress | None = None
) -> Int[Tensor, " bins"]:
    """How many entries lie below the first edge, in each [edge, next edge), and at or above the last: edges + 1 counts.

    The counts sum to m n. progress is told (rows done, rows). Raises as `tiles` does, UsageError for edges that do not
    rise, NotFinite for edges that are no numbers.

    >>> histogram(LowRank(torch.ones(2, 1), torch.tensor([[0.0, 1.0, 2.0]])), torch.tensor([1.0, 2.0])).tolist()
    [2, 2, 2]
    """
    left, right = checked_pair(product)
    edges = real_tensor(edges, "edges of a histogram", "[edges]").to(left)
    if edges.ndim != 1 or bool((edges.diff() <= 0).any()):
        raise UsageError("edges of a histogram", expected="one axis of rising numbers", got=tuple(edges.shape))
    if not bool(edges.isfinite().all()):
        raise NotFinite("edges of a histogram", expected="finite numbers")
    counts = torch.zeros(len(edges) + 1, dtype=torch.int64, device=left.device)
    for tile in _blocks(left, right, ROWS, COLUMNS):
        counts += torch.bincount(torch.bucketize(tile.values, edges, right=True).flatten(), minlength=len(counts))
        if progress is not None and tile.column + tile.values.shape[1] == right.shape[1]:
            progress(tile.row + len(tile.values), len(left))
    return counts


def centred(product: LowRank, axis: int) -> LowRank:
    """The product with its mean over rows (axis 0) or over columns (axis 1) taken out: still factored, no rank added.

    M - 1 mean_i(M) = (L - 1 mean_i(L)) R. Raises UsageError for another axis, ShapeProblem
    for what is no LowRank.

    >>> centred(LowRank(torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0, 2.0]])), 0).dense()
    tensor([[-1., -2.],
            [ 1.,  2.]])
    """
    if isinstance(axis, bool) or not isinstance(axis, int) or axis not in (0, 1):
        raise UsageError("axis to centre over", expected="0 (rows) or 1 (columns)", got=repr(axis)[:60])
    if not isinstance(product, LowRank):
        raise ShapeProblem("what to centre", expected="a LowRank [..., m, n]", got=type(product).__name__)
    first, last = product.factors[0], product.factors[-1]
    if axis == 0:
        return LowRank(first - first.mean(-2, keepdim=True), *product.factors[1:])
    return LowRank(*product.factors[:-1], last - last.mean(-1, keepdim=True))


def checked_pair(product: LowRank) -> tuple[Float[Tensor, "m r"], Float[Tensor, "r n"]]:
    """L [m, r] and R [r, n] of a product without leading axes, detached. Raises ShapeProblem, NotFinite.

    >>> [tuple(t.shape) for t in checked_pair(LowRank(torch.ones(3, 1), torch.ones(1, 5)))]
    [(3, 1), (1, 5)]
    """
    if not isinstance(product, LowRank) or len(product.shape) != 2:
        got = product.shape if isinstance(product, LowRank) else type(product).__name__
        raise ShapeProblem(
            "a pass over entries", expected="a LowRank [m, n]", got=got, next_step="Pick one with .at(i)"
        )
    left, right = (t.detach() for t in product.pair())
    # An infinity in a factor need not show in its norm's square root; a sum of absolute values shows both.
    if not all(math.isfinite(float(t.abs().amax())) for t in (left, right) if t.numel()):
        raise NotFinite("a pass over entries", expected="factors of finite numbers", got="NaN or infinity")
    return left.contiguous(), right


def _most(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0
