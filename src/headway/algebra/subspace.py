"""Subspaces as orthonormal columns: what a matrix reads or writes, and how far two of them coincide.

Overlap is ||S^T T||_F^2 = sum of cos^2 of the principal angles: 0 when orthogonal, min(p, q) when one holds the other.
For directions at random in d dimensions it is p q / d on average.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.chain import broadcast
from headway.algebra.given import real_tensor, whole_number
from headway.algebra.low_rank import LowRank
from headway.errors import BadInput, NotFinite, ShapeProblem, UsageError


def column_basis(matrix: Float[Tensor, "d n"] | LowRank, *, rtol: float | None = None) -> Float[Tensor, "d r"]:
    """Orthonormal basis of the column space, by singular value: the first column is the strongest direction.

    r counts singular values above rtol * the largest (default max(d, n) * machine epsilon), so a zero matrix has none.
    For the space a matrix reads, pass its transpose. Raises ShapeProblem for stacks, NotFinite for NaN or infinity.

    >>> column_basis(torch.tensor([[2.0, 4.0], [0.0, 0.0], [0.0, 0.0]])).abs()
    tensor([[1.],
            [0.],
            [0.]])
    """
    matrix = matrix if isinstance(matrix, LowRank) else real_tensor(matrix, "column_basis", "[d, n]")
    if len(matrix.shape) != 2:
        raise ShapeProblem(
            "a basis is of one matrix",
            where="column_basis",
            expected="[d, n]",
            got=tuple(matrix.shape),
            next_step="Ranks of a stack may differ: take them one at a time.",
        )
    if rtol is not None and (isinstance(rtol, bool) or not isinstance(rtol, float | int) or not 0 <= rtol < 1):
        raise UsageError("rtol is out of range", where="column_basis", expected="0 <= rtol < 1", got=repr(rtol))
    parts = matrix.factors if isinstance(matrix, LowRank) else (matrix,)
    if not all(bool(p.isfinite().all()) for p in parts):
        raise NotFinite("NaN or infinity", where="column_basis", expected="finite numbers [d, n]")
    u, s, _ = (matrix if isinstance(matrix, LowRank) else LowRank(matrix)).svd()
    cutoff = max(matrix.shape) * torch.finfo(s.dtype).eps if rtol is None else rtol
    # Strictly above, so that singular values of 0 never count, whatever the largest is.
    return u[:, s > cutoff * s.max()] if s.numel() else u


def principal_angles(s: Float[Tensor, "*#batch d p"], t: Float[Tensor, "*#batch d q"]) -> Float[Tensor, "... k"]:
    """The k = min(p, q) angles between two subspaces, ascending, in radians from 0 to pi/2.

    Cosines are singular values of S^T T, sines those of T - S S^T T; each angle comes from the smaller of its two, so
    tiny angles keep full precision (arccos alone loses half the digits). Source: Björck and Golub 1973.
    Raises BadInput when columns are not orthonormal, ShapeProblem when the spaces differ.

    >>> principal_angles(torch.eye(3)[:, :1], torch.eye(3)[:, 1:])
    tensor([1.5708])
    """
    s, t = _checked_pair(s, t, "principal_angles")
    if t.shape[-1] > s.shape[-1]:
        s, t = t, s
    inner = s.mT @ t
    cosines = torch.linalg.svdvals(inner).clamp(max=1)
    # svdvals descends; ascending sines belong to descending cosines.
    sines = torch.linalg.svdvals(t - s @ inner).flip(-1).clamp(max=1)
    angles = torch.where(cosines.square() > 0.5, sines.arcsin(), cosines.arccos())
    return angles.sort(dim=-1).values


def overlap(s: Float[Tensor, "*#batch d p"], t: Float[Tensor, "*#batch d q"]) -> Float[Tensor, "..."]:
    """||S^T T||_F^2 for orthonormal columns: dimensionless, 0 to min(p, q), the dimensions shared.

    Unchanged by rotation inside either basis. Raises BadInput when columns are not orthonormal.

    >>> overlap(torch.eye(4)[:, :2], torch.eye(4)[:, 1:])
    tensor(1.)
    """
    s, t = _checked_pair(s, t, "overlap")
    return (s.mT @ t).square().sum((-2, -1))


def expected_overlap(d_s: int, d_t: int, d: int) -> float:
    """Average overlap of a d_s- and a d_t-dimensional subspace when one of them is at random: d_s d_t / d, exactly.

    >>> expected_overlap(16, 32, 128)
    4.0
    """
    for name, value in (("d_s", d_s), ("d_t", d_t), ("d", d)):
        whole_number(value, f"dimensions do not fit: {name}", least=0, where="expected_overlap")
    if d < 1 or not 0 <= d_s <= d or not 0 <= d_t <= d:
        raise UsageError(
            "dimensions do not fit",
            where="expected_overlap",
            expected="d >= 1 and 0 <= d_s, d_t <= d",
            got=f"d_s={d_s}, d_t={d_t}, d={d}",
        )
    return d_s * d_t / d


def _checked_pair(s: object, t: object, where: str) -> tuple[Tensor, Tensor]:
    for name, basis in (("first", s), ("second", t)):
        if not isinstance(basis, Tensor) or basis.ndim < 2 or not basis.is_floating_point():
            got = f"{tuple(basis.shape)} {basis.dtype}" if isinstance(basis, Tensor) else type(basis).__name__
            raise ShapeProblem(f"the {name} basis is not one", where=where, expected="real [..., d, columns]", got=got)
    s, t = (real_tensor(basis, where, "[..., d, columns]") for basis in (s, t))
    if s.shape[-2] != t.shape[-2] or s.dtype != t.dtype:
        raise ShapeProblem(
            "the bases live in different spaces",
            where=where,
            expected=f"[..., d={s.shape[-2]}, q] of {s.dtype}",
            got=f"{tuple(t.shape)} of {t.dtype}",
        )
    broadcast([s.shape[:-2], t.shape[:-2]], where)
    for name, basis in (("first", s), ("second", t)):
        gram = basis.mT @ basis
        off = (gram - torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)).abs()
        worst = float(off.max()) if off.numel() else 0.0
        # Half the digits: a basis computed in the same precision passes, one rounded from another does not.
        if not worst <= torch.finfo(gram.dtype).eps ** 0.5:
            raise BadInput(
                f"columns of the {name} basis are not orthonormal",
                where=where,
                expected="S^T S = identity",
                got=f"off by {worst:.3g}",
                next_step="Use column_basis().",
            )
    return s, t
