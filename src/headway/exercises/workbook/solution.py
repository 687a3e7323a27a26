"""The known answer to an exercise as code that a learner can read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

from headway.exercises.catalogue import exercise
from headway.exercises.registry import table

_TABLES = ("PREDICATES", "REFERENCES", "GIVENS", "LONGER")
_SHOWN = (bool, int, float, str, tuple, dict)


def reference_code(id: str) -> str:
    """Source of the reference of exercise `id`, after the constants and small functions that it uses.

    Raises UnknownName for an unknown id.

    >>> "def " in reference_code("2a")
    True
    """
    exercise(id)
    found: dict[str, str] = {}
    _gather(inspect.unwrap(table(id, "REFERENCES")[id]), found)
    return "\n\n".join(found.values())


def _gather(function: Callable[..., Any], found: dict[str, str]) -> None:
    """A function after the constants and functions of the exercises that it uses, each thing once."""
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if name in found or value is None:
            continue
        if isinstance(value, _SHOWN) and name not in _TABLES:
            found[name] = f"{name} = {value!r}"
        elif callable(value):
            other = inspect.unwrap(value)
            if inspect.isfunction(other) and other.__module__.startswith("headway.exercises."):
                _gather(other, found)
    source = inspect.getsource(function).rstrip()
    if function.__name__ == "<lambda>":  # a line of the table: `"w1": lambda given: {...},`
        source = source[source.index("lambda") :].rstrip(",")
    found[function.__name__] = source


def _names(code: CodeType) -> list[str]:
    """Global names in a function's code, those of functions inside it too."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return [*code.co_names, *inner]
