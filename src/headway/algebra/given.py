"""What callers hand over, checked in one place: tensors of real numbers, whole numbers, truth values."""

from __future__ import annotations

from torch import Tensor

from headway.algebra.chain import at_least_float32
from headway.errors import ShapeProblem, UsageError


def real_tensor(value: object, where: str, axes: str) -> Tensor:
    """A tensor of real numbers, in at least float32. Raises ShapeProblem for everything else.

    >>> import torch
    >>> real_tensor(torch.ones(2, dtype=torch.float16), "here", "[n]").dtype
    torch.float32
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = f"{tuple(value.shape)} {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
        raise ShapeProblem("not a tensor of real numbers", where=where, expected=f"floating-point {axes}", got=got)
    return at_least_float32(value)


def whole_number(value: object, what: str, *, least: int, where: str | None = None) -> int:
    """A whole number from `least` up to 2^63 - 1. Raises UsageError for everything else, True and 2.0 too.

    >>> whole_number(3, "draws", least=1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        most = " and < 2^63" if isinstance(value, int) and value > least else ""
        raise UsageError(what, where=where, expected=f"a whole number >= {least}{most}", got=repr(value))
    return value


def true_or_false(value: object, what: str) -> bool:
    """True or False itself. Raises UsageError for everything else, 1 and tensors too.

    >>> true_or_false(True, "largest")
    True
    """
    if not isinstance(value, bool):
        raise UsageError(what, expected="True or False", got=repr(value)[:60])
    return value
