"""LowRank: a matrix kept as a product of thin factors, with the algebra of a matrix and the cost of its factors.

Every method works at the *narrowest* width of the chain. Contracting outward from that cut gives M = L R with
L [m, r], R [r, n], and all that follows needs only r x r results:

    tr M       = sum of L * R^T
    spectrum   : the nonzero eigenvalues of L R are those of R L
    SVD, norm  : L = Q_L T_L, R^T = Q_R T_R (QR), so M = Q_L (T_L T_R^T) Q_R^T, and orthonormal Q change neither

QR rather than Cholesky of L^T L: it is exact for factors without full rank (heads that are all zero exist) and does not
square the condition number.  (Elhage et al. 2021, "Working with low-rank matrices".)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from numbers import Real
from typing import Any, NamedTuple, SupportsIndex, cast, overload

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from headway.algebra.chain import broadcast, check_factors, check_same_kind
from headway.algebra.picking import Index, position, positions
from headway.errors import ShapeProblem, TooLarge, UsageError


class SVD(NamedTuple):
    """M = U diag(S) V^T: U [..., m, r], S [..., r] descending, V [..., n, r]. It is V, not V^T."""

    U: Float[Tensor, "*batch m r"]
    S: Float[Tensor, "*batch r"]
    V: Float[Tensor, "*batch n r"]


@dataclass(frozen=True, init=False, eq=False, repr=False, slots=True)
class LowRank:
    """A matrix [..., m, n] held as factors [..., m, r1], [..., r1, r2], ..., [..., rk, n]; leading axes broadcast.

    Immutable: every operation returns a new LowRank over the same tensors, so nothing is copied and gradients flow.
    `==` is identity; compare `.dense()` of small ones. One factor alone is allowed. Half precision becomes float32.
    Raises ShapeProblem when the factors are not floating-point matrices of one dtype and device that chain.

    >>> a, b = torch.ones(4, 2), torch.ones(2, 3)
    >>> (LowRank(a, b) @ LowRank(b.T, a.T)).shape
    (4, 4)
    >>> LowRank(a, b) + 0.5 * LowRank(a, b)
    LowRank(4-4-3)
    """

    factors: tuple[Tensor, ...]

    # NumPy scalars on the left must leave the product to __rmul__ instead of trying to build an array of objects.
    __array_ufunc__ = None

    def __init__(self, *factors: Tensor) -> None:
        object.__setattr__(self, "factors", check_factors(factors))

    def __repr__(self) -> str:
        batch = f", batch {self.shape[:-2]}" if len(self.shape) > 2 else ""
        return f"LowRank({'-'.join(map(str, self._widths()))}{batch})"

    def _widths(self) -> tuple[int, ...]:
        return (*(f.shape[-2] for f in self.factors), self.factors[-1].shape[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix this stands for, leading axes broadcast: (..., m, n)."""
        batch = torch.broadcast_shapes(*(f.shape[:-2] for f in self.factors))
        return (*batch, self._widths()[0], self._widths()[-1])

    @property
    def rank(self) -> int:
        """A bound on the rank, and the size of the core: the narrowest width of the chain, m and n included."""
        return min(self._widths())

    @property
    def T(self) -> LowRank:
        """The transpose of the last two axes: factors transposed, in reverse order."""
        return LowRank(*(f.mT for f in reversed(self.factors)))

    def to(self, dtype: torch.dtype | None = None, *, device: torch.device | str | None = None) -> LowRank:
        """The same matrix in another precision or place (eigenvalues want float64)."""
        target = dtype or self.factors[0].dtype
        return LowRank(*(f.to(device=device or f.device, dtype=target) for f in self.factors))

    def pair(self) -> tuple[Float[Tensor, "*left m r"], Float[Tensor, "*right r n"]]:
        """L [..., m, r], R [..., r, n] with M = L R and r = `rank`; their leading axes broadcast.

        When m or n is itself the narrowest width, the other side is the identity and the product is the smaller thing.

        >>> [tuple(t.shape) for t in LowRank(torch.ones(9, 5), torch.ones(5, 2), torch.ones(2, 7)).pair()]
        [(9, 2), (2, 7)]
        """
        widths, last = self._widths(), len(self.factors)
        # An inner cut wins a tie: it multiplies less.
        cut = min(range(last + 1), key=lambda c: (widths[c], c in (0, last)))
        like = self.factors[0]
        eye = torch.eye(widths[cut], dtype=like.dtype, device=like.device) if cut in (0, last) else like
        left = reduce(lambda acc, f: f @ acc, reversed(self.factors[:cut])) if cut else eye
        right = reduce(torch.matmul, self.factors[cut:]) if cut < last else eye
        return left, right

    @overload
    def __matmul__(self, other: LowRank) -> LowRank: ...
    @overload
    def __matmul__(self, other: Tensor) -> Any: ...
    def __matmul__(self, other: object) -> Any:
        """The product. With a vector [n] a tensor [..., m]; with a matrix or a LowRank, a LowRank."""
        if isinstance(other, LowRank):
            return LowRank(*self.factors, *other.factors)
        if not isinstance(other, Tensor):
            return NotImplemented
        if other.ndim != 1:
            return LowRank(*self.factors, other)
        column = LowRank(*self.factors, other[:, None])
        return reduce(lambda acc, f: f @ acc, reversed(column.factors)).squeeze(-1)

    def __rmatmul__(self, other: object) -> Any:
        """Tensor @ LowRank: with a vector [m] a tensor [..., n], with a matrix a LowRank."""
        if not isinstance(other, Tensor):
            return NotImplemented
        return self.T @ other if other.ndim == 1 else LowRank(other, *self.factors)

    def __add__(self, other: object) -> LowRank:
        """The sum, [L1 L2] stacked beside and [R1; R2] on top of each other: ranks add, nothing is multiplied out."""
        if not isinstance(other, LowRank):
            return NotImplemented
        if self.shape[-2:] != other.shape[-2:]:
            raise ShapeProblem(
                "cannot add matrices of different shape", where="LowRank sum", expected=self.shape, got=other.shape
            )
        check_same_kind((*self.factors, *other.factors), "LowRank sum")
        broadcast([self.shape[:-2], other.shape[:-2]], "LowRank sum")
        (l1, r1), (l2, r2) = self.pair(), other.pair()
        return LowRank(_beside(l1, l2, -1), _beside(r1, r2, -2))

    def __sub__(self, other: object) -> LowRank:
        return self + -other if isinstance(other, LowRank) else NotImplemented

    def __neg__(self) -> LowRank:
        return self * -1

    def __mul__(self, scalar: object) -> LowRank:
        """Times a number, or times a tensor of one number for each leading index."""
        if not isinstance(scalar, Real | Tensor):
            return NotImplemented
        smallest = min(range(len(self.factors)), key=lambda i: self.factors[i].numel())
        scaled = self.factors[smallest] * self._scalar(scalar)
        return LowRank(*self.factors[:smallest], scaled, *self.factors[smallest + 1 :])

    __rmul__ = __mul__

    def __truediv__(self, scalar: object) -> LowRank:
        """Divided by a number, or by one number for each leading index. Raises UsageError for the number 0."""
        if isinstance(scalar, Tensor):
            return self * scalar.reciprocal()
        if not isinstance(scalar, Real):
            return NotImplemented
        if scalar == 0:
            raise UsageError("division by zero", where="LowRank / number", expected="a number other than 0", got=scalar)
        return self * (1 / scalar)

    def _scalar(self, scalar: Real | Tensor) -> Tensor:
        like = self.factors[0]
        if not isinstance(scalar, Tensor):
            if not math.isfinite(scalar):
                raise UsageError("cannot scale by this", where="LowRank * number", expected="finite", got=scalar)
            return torch.tensor(float(scalar), dtype=like.dtype, device=like.device)
        if scalar.is_complex():
            raise ShapeProblem("cannot scale by this", where="LowRank * tensor", expected="real", got=scalar.dtype)
        broadcast([scalar.shape, self.shape[:-2]], "LowRank * tensor (one number for each leading index)")
        return scalar.to(like)[..., None, None]

    def trace(self) -> Float[Tensor, "*batch"]:
        """The sum of the diagonal, from L and R alone. Raises ShapeProblem when m != n."""
        self._need_square("trace")
        return self.diagonal().sum(-1)

    def diagonal(self) -> Float[Tensor, "*batch k"]:
        """M[i, i] for i < min(m, n), at the cost of one row-by-row product."""
        left, right = self.pair()
        k = min(self.shape[-2:])
        return (left[..., :k, :] * right[..., :k].mT).sum(-1)

    def norm(self) -> Float[Tensor, "*batch"]:
        """Frobenius norm, = ||T_L T_R^T||. Exactly 0 for a zero factor; its gradient there is set to 0.

        The gradient M / ||M|| is computed directly, so it exists for factors without full rank too.

        >>> LowRank(torch.tensor([[3.0], [4.0]]), torch.tensor([[0.0, 2.0]])).norm()
        tensor(10.)
        """
        return cast(Tensor, _ProductNorm.apply(*self.pair()))

    def spectral_norm(self) -> Float[Tensor, "*batch"]:
        """The largest singular value. Its gradient exists when that value is simple and the factors have full rank."""
        core = self._core()[1]
        if not self.rank:
            return core.new_zeros(core.shape[:-2])
        return torch.linalg.svdvals(core)[..., 0]

    def svd(self) -> SVD:
        """M = U diag(S) V^T with r = `rank` columns, S descending; see SVD. Signs, and bases of repeated S, are free.

        Gradients exist when singular values are distinct and the factors have full rank (as for torch.linalg.svd).

        >>> LowRank(torch.tensor([[3.0], [4.0]]), torch.tensor([[0.0, 2.0]])).svd().V.abs()
        tensor([[0.],
                [1.]])
        """
        q_left, core, q_right = self._core()
        u, s, vh = torch.linalg.svd(core, full_matrices=False)
        return SVD(q_left @ u, s, q_right @ vh.mT)

    def _core(self) -> tuple[Tensor, Tensor, Tensor]:
        left, right = self.pair()
        q_left, t_left = torch.linalg.qr(left)
        q_right, t_right = torch.linalg.qr(right.mT)
        return q_left, t_left @ t_right.mT, q_right

    def eigenvalues(self) -> Complex[Tensor, "*batch r"]:
        """The `rank` eigenvalues of the core R L, complex, in no order: all nonzero ones of M, then zeros up to r.

        The other n - r eigenvalues of M are 0. Use `.to(torch.float64)` first: they are badly conditioned.
        Raises ShapeProblem when m != n.
        """
        self._need_square("eigenvalues")
        left, right = self.pair()
        return torch.linalg.eigvals(right @ left)

    def rows(self, index: Index) -> Float[Tensor, "... n"]:
        """dense()[..., index, :] without the rest: an integer drops the axis, slices, lists, masks, tensors keep it.

        Raises UsageError for an index outside, TooLarge when what is asked for is itself above the guard.

        >>> LowRank(torch.ones(4, 2), torch.ones(2, 3)).rows([0, -1]).shape
        torch.Size([2, 3])
        """
        picked, axes = positions(index, self.shape[-2], "row")
        first = self.factors[0]
        picked = picked.to(first.device) if isinstance(picked, Tensor) else picked
        part = LowRank(first[..., picked, :], *self.factors[1:]).dense()
        return part.reshape(*part.shape[:-2], *axes, part.shape[-1])

    def columns(self, index: Index) -> Float[Tensor, "..."]:
        """dense()[..., :, index] without the rest; as `rows`."""
        picked, axes = positions(index, self.shape[-1], "column")
        last = self.factors[-1]
        picked = picked.to(last.device) if isinstance(picked, Tensor) else picked
        part = LowRank(*self.factors[:-1], last[..., picked]).dense()
        return part.reshape(*part.shape[:-1], *axes)

    def at(self, *index: SupportsIndex) -> LowRank:
        """The matrix at integers on the leading axes, first axis first; the axes drop. Views, never copies.

        Raises ShapeProblem for more integers than leading axes, UsageError for one outside.

        >>> LowRank(torch.ones(6, 4, 2), torch.ones(2, 3)).at(-1).shape
        (4, 3)
        """
        batch = self.shape[:-2]
        if len(index) > len(batch):
            raise ShapeProblem(
                "not that many leading axes",
                where="LowRank.at",
                expected=f"at most {len(batch)} integers for shape {self.shape}",
                got=len(index),
                next_step="Use rows() or columns() for the matrix axes.",
            )
        chosen = [position(i, size, "leading-axis") for i, size in zip(index, batch, strict=False)]
        return LowRank(*(_pick(f, chosen, len(batch)) for f in self.factors))

    def dense(self, max_elements: int = 64_000_000) -> Float[Tensor, "*batch m n"]:
        """The matrix multiplied out. Raises TooLarge above `max_elements`, all leading axes counted."""
        count = math.prod(self.shape)
        if count > max_elements:
            size = count * self.factors[0].element_size() / 1e9
            raise TooLarge(
                "the dense matrix is above the size guard",
                where=f"LowRank.dense of shape {self.shape}",
                expected=f"at most {max_elements:,} elements",
                got=f"{count:,} ({size:,.2f} GB in {str(self.factors[0].dtype).removeprefix('torch.')})",
                next_step="Ask for rows(), columns() or at(), or raise max_elements",
            )
        left, right = self.pair()
        return left @ right

    def _need_square(self, what: str) -> None:
        if self.shape[-1] != self.shape[-2]:
            raise ShapeProblem(f"{what} needs a square matrix", where="LowRank", expected="m = n", got=self.shape)


class _ProductNorm(torch.autograd.Function):
    """||L R|| by QR, with gradient (L R R^T, L^T L R) / ||L R||: QR's own gradient needs full rank, this does not."""

    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        t_left = torch.linalg.qr(left, mode="r").R
        t_right = torch.linalg.qr(right.mT, mode="r").R
        return _frobenius(t_left @ t_right.mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor]:
        left, right, norm = ctx.saved_tensors
        zero = norm == 0
        weight = (grad_outputs[0] / norm.masked_fill(zero, 1)).masked_fill(zero, 0)[..., None, None]
        return weight * (left @ (right @ right.mT)), weight * ((left.mT @ left) @ right)


def _frobenius(core: Tensor) -> Tensor:
    """The norm, of entries over the largest: their squares neither over- nor underflow."""
    if not core.numel():
        return torch.linalg.matrix_norm(core)
    size = core.abs().amax((-2, -1))
    return size * torch.linalg.matrix_norm(core / size.masked_fill(size == 0, 1)[..., None, None])


def _beside(a: Tensor, b: Tensor, axis: int) -> Tensor:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return torch.cat([t.expand(*batch, *t.shape[-2:]) for t in (a, b)], dim=axis)


def _pick(factor: Tensor, chosen: list[int], n_axes: int) -> Tensor:
    """Drop the leading axes named by `chosen`; a factor that broadcasts along one lacks it, or has it with size 1."""
    for i in chosen[n_axes - (factor.ndim - 2) :]:
        factor = factor.select(0, 0 if factor.shape[0] == 1 else i)
    return factor
