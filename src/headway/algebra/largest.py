"""The largest entries of a huge factored product, exactly, without a close look at most of it.

M_ij = a_i . b_j <= |a_i| |b_j|, for any change of basis between the factors. Balanced so that A^T A = B^T B = S, the
singular values, the bound does not depend on how the product was factored. Rows and columns are sorted by norm, tiles
taken by falling bound and left out once it is below the k-th value found. The tiles are multiplied coarsely, in bfloat16
where the processor has it; whatever that leaves open is computed again in float64, and only this decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.algebra.chain import unit_factors
from headway.algebra.given import true_or_false, whole_number
from headway.algebra.low_rank import LowRank
from headway.algebra.stream import Progress, checked_pair

_ROWS, _COLUMNS = 512, 2048  # small enough for the second-level cache
_LEAST = 1e-8  # ridge and least singular value, relative: the change of basis stays far from singular for any factors
_AT_ONCE = 1 << 16  # entries computed again together; a coarse tile that leaves more open is multiplied finely


class Entries(NamedTuple):
    """Entries of a matrix, best first; equal ones by row, then column: values [k] float64, rows [k], columns [k]."""

    values: Float[Tensor, " k"]
    rows: Int[Tensor, " k"]
    columns: Int[Tensor, " k"]


def top_entries(product: LowRank, k: int, *, largest: bool = True, progress: Progress | None = None) -> Entries:
    """The k largest (or smallest) of all entries of a product [m, n], exact; all of them when there are no more than k.

    Values are of `product.pair()`, multiplied in float64; order: value, then row, then column. Needs at most 2 m n r
    operations, less where norms differ, and memory for a few tiles. progress is told (tiles settled, tiles). Raises
    ShapeProblem for a product with leading axes, NotFinite for NaN, UsageError for a k that is no whole number >= 0.

    >>> found = top_entries(LowRank(torch.eye(2), torch.tensor([[1.0, 3.0, 3.0], [5.0, 4.0, 0.0]])), 3)
    >>> found.values.tolist(), found.rows.tolist(), found.columns.tolist()
    ([5.0, 4.0, 3.0], [1, 1, 0], [0, 1, 1])
    """
    k, largest = whole_number(k, "k, the number of entries", least=0), true_or_false(largest, "largest")
    (left, right), exponent = unit_factors(checked_pair(product))
    k = min(k, len(left) * right.shape[1])
    nothing = torch.empty(0, dtype=torch.int64, device=left.device)
    if k == 0:
        return Entries(nothing.double(), nothing, nothing)
    best = _search(*_sides(left if largest else -left, right.mT), k, progress)
    return best._replace(values=(best.values if largest else 0.0 - best.values) * 2.0**exponent)  # never -0


@dataclass(frozen=True, eq=False)
class _Side:
    """One side of the product, sorted by falling bound: vectors [n, r], their places, and two bounds of their norms."""

    vectors: Float[Tensor, "n r"]
    coarse: Float[Tensor, "n r"]  # the same in the precision that tiles are multiplied in
    places: Int[Tensor, " n"]
    bound: Float[Tensor, " blocks"]  # largest balanced norm of each block
    size: Float[Tensor, " blocks"]  # largest plain norm of each block
    step: int

    @classmethod
    def sorted(cls, vectors: Float[Tensor, "n r"], balanced: Float[Tensor, "n r"], step: int) -> _Side:
        bound = balanced.norm(dim=1)
        order = bound.argsort(descending=True, stable=True)
        vectors = vectors[order]
        size = torch.stack([part.max() for part in vectors.norm(dim=1).double().split(step)])
        return cls(vectors, vectors.to(_coarse(vectors.device.type)), order, bound[order][::step], size, step)

    def block(self, number: int, fine: bool) -> Float[Tensor, "block r"]:
        part = slice(number * self.step, (number + 1) * self.step)
        return self.vectors[part].double() if fine else self.coarse[part]


class _Tile:
    """A block of the product, multiplied in some precision, and by how much rounding may have moved its entries."""

    def __init__(self, rows: _Side, columns: _Side, at: tuple[int, int], *, fine: bool = False) -> None:
        self.values = rows.block(at[0], fine) @ columns.block(at[1], fine).T
        self.slack = _rounding(self.values.dtype, rows.vectors.shape[1]) * float(rows.size[at[0]] * columns.size[at[1]])
        self.corner = at[0] * rows.step, at[1] * columns.step

    def floor(self, k: int) -> float:
        """What the k-th largest of all entries cannot be below, by this tile alone."""
        if k > self.values.numel():
            return -math.inf
        # The maxima of k rows are k entries, so none below the least of them is among the k best.
        some = self.values.amax(1) if k <= len(self.values) else self.values.flatten()
        return float(some.topk(k).values[-1]) - self.slack

    def open(self, floor: float) -> tuple[Tensor, Tensor]:
        """Rows and columns, in the sorted product, of the entries that may be at or above the floor."""
        rows = (self.values.amax(1) >= floor - self.slack).nonzero()[:, 0]
        x, y = (self.values[rows] >= floor - self.slack).nonzero(as_tuple=True)
        return rows[x] + self.corner[0], y + self.corner[1]


def _search(rows: _Side, columns: _Side, off: float, k: int, progress: Progress | None) -> Entries:
    """Tiles by falling bound. `off`: by what fraction of |a_i| |b_j| rounding may have moved the products of the bound."""
    bound = rows.bound[:, None] * columns.bound * (1 + 1e-9) + off * rows.size[:, None] * columns.size
    best = _exact(rows, columns, *torch.empty(2, 0, dtype=torch.int64, device=rows.places.device))
    if not bool(bound.any()):  # every entry is 0, and every one ties
        flat = torch.arange(k, device=rows.places.device)
        return Entries(flat.double() * 0, flat // len(columns.places), flat % len(columns.places))
    order, floor = bound.flatten().argsort(descending=True, stable=True), -math.inf
    for done, (place, reach) in enumerate(zip(order.tolist(), bound.flatten()[order].tolist(), strict=True), 1):
        if reach < floor:
            break
        at = divmod(place, len(columns.bound))
        tile = _Tile(rows, columns, at)
        if float(tile.values.max()) >= floor - tile.slack:
            floor = max(floor, tile.floor(k))
            x, y = tile.open(floor)
            if len(x) > _AT_ONCE:
                tile = _Tile(rows, columns, at, fine=True)
                floor = max(floor, tile.floor(k))
                x, y = tile.open(floor)
            for some in zip(x.split(_AT_ONCE), y.split(_AT_ONCE), strict=True):
                best = _best(best, _exact(rows, columns, *some), k)
            floor = max(floor, float(best.values[-1])) if len(best.values) == k else floor
        if progress is not None:
            progress(done, len(order))
    if progress is not None:
        progress(len(order), len(order))
    return best


def _exact(rows: _Side, columns: _Side, x: Int[Tensor, " e"], y: Int[Tensor, " e"]) -> Entries:
    values = (rows.vectors[x].double() * columns.vectors[y].double()).sum(1)
    return Entries(values, rows.places[x], columns.places[y])


def _best(some: Entries, more: Entries, k: int) -> Entries:
    """The k best of both, in order."""
    every = Entries(*(torch.cat(pair) for pair in zip(some, more, strict=True)))
    order = torch.arange(len(every.values), device=every.values.device)
    for key in (every.columns, every.rows, -every.values):  # stable sorts: the last one counts most
        order = order[key[order].argsort(stable=True)]
    return Entries(*(part[order[:k]] for part in every))


@cache
def _coarse(device: str) -> torch.dtype:
    """What tiles are multiplied in: bfloat16 where the processor has instructions for it, else float32."""
    able = torch.cpu.get_capabilities() if device == "cpu" and hasattr(torch.cpu, "get_capabilities") else {}
    return torch.bfloat16 if able.get("amx_bf16") or able.get("avx512_bf16") else torch.float32


def _rounding(dtype: torch.dtype, r: int) -> float:
    """A bound of an entry's error, as a fraction of |a_i| |b_j|: vectors rounded, their product summed, the sum rounded.

    Sums run in float32 at least. Where float32 may be multiplied in less by torch's own setting, it counts as bfloat16.
    """
    loose = dtype == torch.bfloat16 or (dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest")
    unit = 2.0**-8 if loose else torch.finfo(dtype).eps
    return 3.1 * unit + 2 * (r + 4) * max(torch.finfo(torch.float64).eps, min(unit, torch.finfo(torch.float32).eps))


def _sides(a: Float[Tensor, "m r"], b: Float[Tensor, "n r"]) -> tuple[_Side, _Side, float]:
    """Both sides sorted by the norms of a W and b W^-T, and ||W W^-1 - 1|| as computed, by which that bound may be off.

    W = C_a^-T U S^1/2, with a^T a = C_a C_a^T, b^T b = C_b C_b^T and C_a^T C_b = U S V^T, gives both sides the Gram
    matrix S. C from Gram matrices with a ridge: every invertible W gives a bound that holds, one near this the best.
    """
    x, y = a.double(), b.double()
    c_x, c_y = _root(x), _root(y)
    u, s, _ = torch.linalg.svd(c_x.mT @ c_y)
    half = s.clamp_min(float(s.max()) * _LEAST if len(s) else 0.0).sqrt()
    w, w_t = torch.linalg.solve_triangular(c_x.mT, u, upper=True) * half, c_x @ u / half
    off = torch.linalg.matrix_norm(w @ w_t.mT - torch.eye(len(w), dtype=w.dtype, device=w.device)) if len(w) else 0.0
    return _Side.sorted(a, x @ w, _ROWS), _Side.sorted(b, y @ w_t, _COLUMNS), float(off)


def _root(vectors: Float[Tensor, "n r"]) -> Float[Tensor, "r r"]:
    """C with C C^T = vectors^T vectors + a ridge, lower triangular; 1 for vectors that are all zero."""
    gram, one = vectors.mT @ vectors, torch.eye(vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
    ridge = float(gram.diagonal().mean()) * _LEAST if len(gram) else 0.0
    return torch.linalg.cholesky(gram + ridge * one) if ridge else one
