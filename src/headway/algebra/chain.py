"""What factors must satisfy to form a product: real floating-point matrices of one dtype and device that chain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from headway.errors import ShapeProblem


def check_factors(factors: Sequence[object]) -> tuple[Tensor, ...]:
    """The factors, half precision as float32.

    Raises ShapeProblem unless they multiply in this order, leading axes broadcast.
    """
    if not factors:
        raise ShapeProblem("no factors", where="LowRank", expected="at least one matrix [..., m, n]", got="none")
    good: list[Tensor] = []
    for i, f in enumerate(factors):
        if not isinstance(f, Tensor) or f.ndim < 2 or not f.is_floating_point():
            raise ShapeProblem(
                "not a real floating-point matrix",
                where=f"LowRank factor {i}",
                expected="a tensor [..., rows, columns]",
                got=f"{tuple(f.shape)} {f.dtype}" if isinstance(f, Tensor) else type(f).__name__,
            )
        good.append(at_least_float32(f))
    check_same_kind(good, "LowRank factors")
    for i, (a, b) in enumerate(pairwise(good)):
        if a.shape[-1] != b.shape[-2]:
            raise ShapeProblem(
                f"factors {i} and {i + 1} do not chain",
                where="LowRank",
                expected=f"factor {i + 1} with {a.shape[-1]} rows, the columns of factor {i} {tuple(a.shape)}",
                got=tuple(b.shape),
                next_step="Is one of them transposed?",
            )
    broadcast([f.shape[:-2] for f in good], "LowRank factors")
    return tuple(good)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Half precision as float32, for no factorisation is made for less; everything else as it is."""
    return tensor.float() if tensor.dtype in {torch.bfloat16, torch.float16} else tensor


def unit_factors(factors: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], int]:
    """Each factor over a power of two, its largest entry then about 1, and the sum of the exponents taken out: exact.

    Products and their norms then neither over- nor underflow. A zero factor stays as it is.

    >>> (unit,), exponent = unit_factors([torch.tensor([[3e38]])])
    >>> float(unit) * 2.0**exponent == float(torch.tensor(3e38))
    True
    """
    out: list[Tensor] = []
    taken = 0
    for f in factors:
        most = -math.frexp(torch.finfo(f.dtype).tiny)[1]  # beyond it the power of two itself would overflow
        size = float(f.detach().abs().max()) if f.numel() else 0.0
        exponent = max(-most, min(most, math.frexp(size)[1])) if math.isfinite(size) else 0
        out.append(f * 2.0**-exponent)
        taken += exponent
    return tuple(out), taken


def check_same_kind(factors: Sequence[Tensor], where: str) -> None:
    """Raises ShapeProblem unless all share one dtype and device: torch converts some mixtures, refuses others."""
    first = factors[0]
    for f in factors[1:]:
        if f.dtype != first.dtype or f.device != first.device:
            raise ShapeProblem(
                "dtype or device differs",
                where=where,
                expected=f"{first.dtype} on {first.device}, as the first",
                got=f"{f.dtype} on {f.device}",
                next_step="Convert with .to(...)",
            )


def broadcast(shapes: Sequence[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """The common shape of leading axes. Raises ShapeProblem when there is none."""
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        raise ShapeProblem(
            "leading axes do not broadcast", where=where, expected="equal sizes, or 1", got=[tuple(s) for s in shapes]
        ) from None
