"""Taking in a learner's answer: whatever holds numbers becomes float64 tensors of the promised shapes, or a verdict.

A wrong answer is told, never raised: the learner reads a sentence, and a program reads a reason code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.errors import did_you_mean
from headway.exercises.catalogue import exercise
from headway.exercises.givens import Given
from headway.exercises.verdict import Verdict, failed

Axes = tuple[str, ...]
_SUFFIXED = re.compile(r"W_([QKVO])(\d*)")


def taken(id: str, raw: object, given: Given) -> tuple[dict[str, Any], Verdict | None]:
    """The answer as float64 tensors (floats and functions where the exercise asks for those), or why it cannot be.

    raw: a mapping of names to torch or numpy arrays, nested lists, numbers or functions. Reasons: UNCHANGED (all None),
    MISSING, UNKNOWN, NOTNUMBERS, SHAPE, NONFINITE; names are checked before shapes, shapes before numbers.
    """
    wanted = exercise(id).answers
    problem = _names_problem(id, raw, wanted)
    if problem is not None or not isinstance(raw, Mapping):
        return {}, problem
    values: dict[str, Any] = {}
    for name, axes in wanted.items():
        value, problem = _value(id, name, raw[name], axes)
        if problem is None and isinstance(value, Tensor):
            problem = _shape_problem(id, name, value, axes, given)
        if problem is not None:
            return {}, problem
        values[name] = value
    problem = _width_problem(id, values, wanted) or _finite_problem(id, values)
    return ({}, problem) if problem is not None else (values, None)


def tensor_of(value: object) -> Tensor | None:
    """A float64 tensor on the CPU, or None for what holds no real numbers (strings, complex, ragged lists)."""
    if isinstance(value, Tensor):
        if value.is_complex():
            return None
        dense = value.detach() if value.layout == torch.strided else value.detach().to_dense()
        return dense.to("cpu", torch.float64)
    try:
        if isinstance(value, (list, tuple)) and any(isinstance(part, Tensor) for part in value):
            value = [part.detach().cpu().numpy() if isinstance(part, Tensor) else part for part in value]
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        return None
    if array.dtype.kind not in "fiub":
        return None
    return torch.from_numpy(np.array(array, dtype=np.float64))


def _names_problem(id: str, raw: object, wanted: Mapping[str, Axes]) -> Verdict | None:
    if raw is None:
        return failed(id, "UNCHANGED")
    if not isinstance(raw, Mapping):
        return failed(id, "MISSING", {"names": ", ".join(wanted), "got": type(raw).__name__})
    for name in raw:
        if name not in wanted:
            return failed(
                id,
                "UNKNOWN",
                {"name": str(name), "known": ", ".join(wanted), "did_you_mean": did_you_mean(str(name), wanted)},
            )
    missing = [name for name in wanted if raw.get(name) is None]
    if len(missing) == len(wanted):
        return failed(id, "UNCHANGED" if raw else "MISSING", {"names": ", ".join(missing), "got": "nothing"})
    if missing:
        there = [name for name in wanted if name not in missing]
        return failed(id, "MISSING", {"names": ", ".join(missing), "got": ", ".join(there)})
    return None


def _value(id: str, name: str, value: object, axes: Axes) -> tuple[Any, Verdict | None]:
    if axes == ("function",):
        if callable(value):
            return value, None
        return None, failed(id, "NOTNUMBERS", {"name": name, "wanted": "a function", "got": kind_of(value)})
    tensor = tensor_of(value)
    if tensor is None:
        wanted = "a number" if not axes else "an array of real numbers"
        return None, failed(id, "NOTNUMBERS", {"name": name, "wanted": wanted, "got": kind_of(value)})
    if not axes and tensor.numel() == 1:
        return float(tensor), _finite_problem(id, {name: tensor})
    return tensor, None


def kind_of(value: object) -> str:
    """What a value is that holds no real numbers, for a sentence.

    >>> kind_of("four")
    "the text 'four'"
    """
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, (list, tuple)):
        return "a list that is ragged or holds something else than numbers"
    dtype = getattr(value, "dtype", None)
    return f"{type(value).__name__}" + (f" of {dtype}" if dtype is not None else "")


def _shape_problem(id: str, name: str, tensor: Tensor, axes: Axes, given: Given) -> Verdict | None:
    got = tuple(tensor.shape)
    wrong = _misfit(name, got, axes, given)
    if wrong is None:
        return None
    transposed = len(got) == 2 and _misfit(name, got[::-1], axes, given) is None
    facts = {"name": name, "got": str(got), "wanted": _described(name, axes, given), "transposed": transposed}
    return failed(id, "SHAPE", facts | wrong)


def _misfit(name: str, shape: tuple[int, ...], axes: Axes, given: Given) -> dict[str, Any] | None:
    """What does not fit, None when all does: how many axes there are, an axis of free size that is empty, or an axis."""
    if len(shape) != len(axes):
        return {"has": len(shape), "needs": len(axes)}
    for place, (size, axis) in enumerate(zip(shape, axes, strict=True)):
        if axis == "any":
            if not size:
                return {"empty": place}
        elif axis == "d_head" and not _exact(given, name):
            if not 1 <= size <= given.d_head:
                return {"axis": axis}
        elif size != given.axis(axis):
            return {"axis": axis}
    return None


def _exact(given: Given, name: str) -> bool:
    """Whether d_head is exact: rotations act on the dims of queries and keys, so there may be neither fewer nor more."""
    return given.id.endswith("-rotary") and name[:3] in {"W_Q", "W_K"}


def _described(name: str, axes: Axes, given: Given) -> str:
    def one(axis: str) -> str:
        if axis == "any":
            return "any number"
        between = "=" if axis != "d_head" or _exact(given, name) else "<="
        return f"{axis}{between}{given.axis(axis)}"

    return "(" + ", ".join(map(one, axes)) + ")" if axes else "one number"


def _width_problem(id: str, values: Mapping[str, Any], wanted: Mapping[str, Axes]) -> Verdict | None:
    """W_Q with W_K, and W_V with W_O, share their head's width; a narrower head is welcome."""
    widths: dict[tuple[bool, str], tuple[str, int]] = {}
    for name, axes in wanted.items():
        match = _SUFFIXED.fullmatch(name)
        if not match or "d_head" not in axes:
            continue
        place = axes.index("d_head")
        size = int(values[name].shape[place])
        first, other = widths.setdefault((match[1] in "QK", match[2]), (name, size))
        if size != other:
            sizes = tuple(values[name].shape)
            described = ", ".join(f"d_head={other}" if axis == "d_head" else f"{axis}" for axis in axes)
            facts = {"name": name, "got": str(sizes), "wanted": f"({described}) like {first}", "axis": "d_head"}
            return failed(id, "SHAPE", facts | {"transposed": False})
    return None


def _finite_problem(id: str, values: Mapping[str, Any]) -> Verdict | None:
    for name, value in values.items():
        if isinstance(value, Tensor) and not bool(value.isfinite().all()):
            return failed(id, "NONFINITE", {"name": name, "count": int((~value.isfinite()).sum())})
    return None
