"""All pairs of heads at once, without a matrix product for each pair.

A reader is a product X Y with X [d_model, d_head] outermost, a writer Y' X'. With X = Q_X T_X (QR) the orthonormal Q_X
changes no norm, so T_X Y is absorbed into one R [d_head, d_model] a head, Y' T_X'^T into one W [d_model, d_head]. Then

    ||R W||^2 = tr(R W W^T R^T) = <R^T R, W W^T>,

an inner product of two symmetric d_model x d_model matrices: of their tiles (I, J), those with I < J counted twice. One
tile of every head is a row of numbers, and all pairs of heads are one product of [head, tile] with [tile, head].
For d_head 64 in d_model 768 that is a fifth of the arithmetic of d_head x d_head products, before symmetry halves it.

The price: rounding is relative to ||R^T R|| ||W W^T||, not to the score. Pairs that come out small against it are done
again by their own product R W, so that every score is as good as if all had been. For the same reason R is made at all,
and R^T R not taken from Y^T (X^T X) Y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headway.algebra.chain import at_least_float32
from headway.algebra.null import anisotropy
from headway.model.positions import rotation
from headway.model.weights import Weights

_TILE = 128
_DOUBTFUL = 1e4  # times machine epsilon: below this the inner product's rounding could reach 1e-4 of the square
_CHUNK = 256  # pairs done again at a time


@dataclass(frozen=True)
class Side:
    """One side of every score: absorbed matrices of norm 1 (or 0 where dead), heads of all layers in one row.

    f: anisotropy of the Gram matrix on the side that meets the other. share: part of the squared norm that a rotation
    of the null moves, 1 unless the reads are centred. gram_norm: Frobenius norm of the Gram matrix.
    """

    matrices: Float[Tensor, "head k d_model"]
    dead: Bool[np.ndarray, " head"]
    f: Float[Tensor, " head"]
    share: Float[Tensor, " head"]
    gram_norm: Float[Tensor, " head"]


def readers(weights: Weights, via: str, offset: int, d: int) -> Side:
    """Readers R of W_QK^T (Q), W_QK (K) or W_OV (V), k = min(d_head, d_model) rows each."""
    group, turn = weights.config.group, rotation(-offset, weights.config)
    outer, inner = {"Q": ("W_K", "W_Q"), "K": ("W_Q", "W_K"), "V": ("W_O", "W_V")}[via]
    left, right = unit_scale(getattr(weights, outer)), unit_scale(getattr(weights, inner))
    left = _triangle(left if outer == "W_O" else left.mT)
    if via != "V":
        left = left @ (turn.T if via == "Q" else turn).to(left)
    left, right = (per_head(t, name, group) for t, name in ((left, outer), (right, inner)))
    return side(*_normalised(left, right), d)


def writers(weights: Weights, centred: bool, *, unread: Float[Tensor, " d_model"] | None = None) -> Side:
    """Writers W^T of W_OV, k = min(d_head, d_model) rows each; f and share of the part that a centred read can see.

    unread: the unit direction that no read sees, all ones over sqrt(d_model) unless the stream has another basis.
    """
    left = per_head(_triangle(unit_scale(weights.W_V).mT), "W_V", weights.config.group)
    product, dead = _normalised(left, unit_scale(weights.W_O).mT)
    moved = seen_part(product, unread) if centred else None
    return side(product, dead, weights.config.d_model - centred, moved)


def side(
    matrices: Float[Tensor, "head k d_model"],
    dead: Bool[np.ndarray, " head"],
    d: int,
    moved: Float[Tensor, "head k d_model"] | None = None,
) -> Side:
    """A side of matrices of norm 1 (0 where dead); `moved` is the part that a rotation of the null moves, None for all."""
    part = matrices if moved is None else moved
    square, trace = _square_of_gram(part), torch.linalg.matrix_norm(part).square()
    if moved is None:
        share, whole = torch.ones(len(trace), dtype=torch.float64), square
    else:
        share = trace.masked_fill(trace <= torch.finfo(trace.dtype).eps, 0).cpu().double()
        whole = _square_of_gram(matrices)
    return Side(matrices, dead, _anisotropy(trace, square, d), share, whole.sqrt())


def seen_part(
    rows: Float[Tensor, "*batch k d_model"], unread: Float[Tensor, " d_model"] | None = None
) -> Float[Tensor, "*batch k d_model"]:
    """Rows without their part along a unit direction, the mean of their entries when it is None."""
    if unread is None:
        return rows - rows.mean(-1, keepdim=True)
    return rows - (rows @ unread)[..., None] * unread


def pair_scores(reads: Sequence[Side], writes: Side, layer: Int[Tensor, " head"]) -> list[Float[Tensor, "head head"]]:
    """For each of `reads` the scores [reader, writer] of all heads in different layers, float64, on the CPU.

    layer: of every head. Scores inside a layer are left as they come. Besides the sides themselves only tiles are held.
    """
    squares = [torch.zeros(len(layer), len(layer), dtype=torch.float64, device=writes.matrices.device) for _ in reads]
    parts = range(0, writes.matrices.shape[-1], _TILE)
    for i in parts:
        for j in (start for start in parts if start >= i):
            column = _tile(writes.matrices, i, j).mT
            for square, side in zip(squares, reads, strict=True):
                square.add_(_tile(side.matrices, i, j) @ column, alpha=1 if i == j else 2)
    other_layer = layer[:, None] != layer
    return [
        _small_again(square, side, writes, other_layer).clamp_min_(0).sqrt_().cpu()
        for square, side in zip(squares, reads, strict=True)
    ]


def _tile(matrices: Float[Tensor, "head k d_model"], i: int, j: int) -> Float[Tensor, "head tile"]:
    """One tile of every Gram matrix, flat."""
    return (matrices[..., i : i + _TILE].mT @ matrices[..., j : j + _TILE]).flatten(1)


def _small_again(
    squares: Float[Tensor, "head head"], reads: Side, writes: Side, wanted: Bool[Tensor, "head head"]
) -> Float[Tensor, "head head"]:
    """Squares that rounding may have reached, from products of their own; zero heads are zero already."""
    bound = _DOUBTFUL * torch.finfo(reads.matrices.dtype).eps
    alive = torch.from_numpy(~reads.dead[:, None] & ~writes.dead).to(squares.device)
    small = squares < bound * reads.gram_norm.double()[:, None] * writes.gram_norm.double()
    for pairs in (small & wanted.to(squares.device) & alive).nonzero().split(_CHUNK):
        r, w = pairs.unbind(1)
        squares[r, w] = (reads.matrices[r] @ writes.matrices[w].mT).square().sum((-2, -1)).double()
    return squares


def _square_of_gram(matrices: Float[Tensor, "head k d_model"]) -> Float[Tensor, " head"]:
    return (matrices @ matrices.mT).square().sum((-2, -1))


def _normalised(
    left: Float[Tensor, "layer head k d_head"], right: Float[Tensor, "layer head d_head d_model"]
) -> tuple[Float[Tensor, "flat k d_model"], Bool[np.ndarray, " flat"]]:
    """Each product over its norm, heads in one row, and which are zero: within the rounding that multiplying makes."""
    product = (left @ right).flatten(0, 1)
    size, of_left, of_right = (torch.linalg.matrix_norm(t).flatten() for t in (product, left, right))
    dead = size <= 4 * torch.finfo(size.dtype).eps * of_left * of_right
    product.div_(size.masked_fill(dead, 1)[:, None, None]).masked_fill_(dead[:, None, None], 0)
    return product, dead.cpu().numpy()


def _anisotropy(trace: Tensor, trace_of_square: Tensor, d: int) -> Float[Tensor, " flat"]:
    if d < 2:
        return torch.zeros(trace.shape, dtype=torch.float64)
    return anisotropy(trace, trace_of_square, d).cpu().double()


def unit_scale(matrices: Tensor) -> Tensor:
    """In at least float32, and of a size at which no norm over- or underflows: scores do not see scale."""
    m = at_least_float32(matrices.detach())
    size = torch.linalg.matrix_norm(m)
    if bool(((size > 1e-6) & (size < 1e6)).all()):
        return m
    largest = m.abs().amax((-2, -1), keepdim=True)
    return m / largest.masked_fill(largest == 0, 1)


def _triangle(outer: Float[Tensor, "layer head d_model d_head"]) -> Float[Tensor, "layer head k d_head"]:
    """T with T^T T = X^T X: the R of QR, or for float32 a Cholesky factor in float64, which is several times faster.

    X^T X in float64 is off by 1e-16 of its size, so T, its root, by 1e-8: less than float32 itself. Heads for which
    there is no Cholesky factor (a zero head has none) take QR.
    """
    if outer.dtype != torch.float32 or outer.shape[-1] > outer.shape[-2]:
        return torch.linalg.qr(outer, mode="r").R
    layers: list[Tensor] = []
    for layer in outer:  # one at a time: float64 doubles what it holds
        x = layer.double()
        lower, failed = torch.linalg.cholesky_ex(x.mT @ x)
        triangle = lower.mT.float()
        if bool(failed.any()):
            triangle[failed > 0] = torch.linalg.qr(layer[failed > 0], mode="r").R
        layers.append(triangle)
    return torch.stack(layers)


def per_head(matrices: Tensor, name: str, group: int) -> Tensor:
    """Key and value matrices repeated for the query heads that share them; `name` is that of the matrix."""
    return matrices.repeat_interleave(group, dim=1) if group > 1 and name in {"W_K", "W_V"} else matrices
