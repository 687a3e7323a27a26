"""Any index a person may write, checked once and brought to one of two forms torch takes on every device."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

import torch
from torch import Tensor

from headway.errors import UsageError

Index = SupportsIndex | slice | Sequence[int] | Sequence[bool] | Tensor


def position(index: SupportsIndex, size: int, axis: str) -> int:
    """The position an integer names on an axis of `size` entries, counted from the end when negative.

    Raises UsageError when it is not an integer or lies outside.

    >>> position(-1, 5, "row")
    4
    """
    expected = f"an integer from {-size} to {size - 1}" if size else "no index, the axis is empty"
    try:
        i = operator.index(index)
    except TypeError:
        raise UsageError(f"{axis} index is not an integer", expected=expected, got=repr(index)) from None
    if not -size <= i < size:
        raise UsageError(f"{axis} index is out of range", expected=expected, got=i)
    return i % size


def positions(index: Index, size: int, axis: str) -> tuple[slice | Tensor, tuple[int, ...]]:
    """A forward slice or a flat int64 tensor of positions, and the shape that the picked entries take.

    The shape is what NumPy gives: () for an integer, (k,) for a slice, list or mask, its own for a tensor of any rank.
    Raises UsageError for anything outside the axis, of a wrong dtype, or a mask of another length.

    >>> positions([0, -1], 5, "row")
    (tensor([0, 4]), (2,))
    >>> positions(slice(1, None, 2), 5, "row")
    (slice(1, 5, 2), (2,))
    """
    if isinstance(index, slice):
        walk = range(*index.indices(size))
        if walk.step > 0:
            return slice(walk.start, walk.stop, walk.step), (len(walk),)
        return torch.tensor(walk, dtype=torch.int64), (len(walk),)  # torch refuses slices that run backwards
    if isinstance(index, SupportsIndex) and not hasattr(index, "__len__"):  # tensors and arrays have both
        return torch.tensor([position(index, size, axis)]), ()
    picked = _as_tensor(index, size, axis)
    if picked.dtype == torch.bool:
        if picked.shape != (size,):
            raise UsageError(f"{axis} mask does not fit", expected=f"shape ({size},)", got=tuple(picked.shape))
        picked = picked.nonzero().flatten()
    if picked.numel() and not bool(((picked >= -size) & (picked < size)).all()):
        raise UsageError(
            f"{axis} index is out of range",
            expected=f"integers from {-size} to {size - 1}",
            got=f"{int(picked.min())} to {int(picked.max())}",
        )
    return torch.where(picked < 0, picked + size, picked).flatten(), tuple(picked.shape)


def _as_tensor(index: object, size: int, axis: str) -> Tensor:
    """A tensor of int64 or bool; an empty list counts as integers, whatever dtype torch would guess for it."""
    try:
        picked = torch.as_tensor(list(index) if isinstance(index, range) else index)
    except (TypeError, ValueError, RuntimeError):
        raise _not_an_index(index, size, axis) from None
    if picked.dtype == torch.bool:
        return picked
    if picked.numel() and (picked.is_floating_point() or picked.is_complex()):
        raise _not_an_index(index, size, axis)
    return picked.to(torch.int64)


def _not_an_index(index: object, size: int, axis: str) -> UsageError:
    kind = f"a {index.dtype} tensor" if isinstance(index, Tensor) else repr(index)
    expected = f"an integer, a slice, integers or a mask over {size} {axis}s"
    return UsageError(f"cannot pick {axis}s by this", expected=expected, got=kind)
