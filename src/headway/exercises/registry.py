"""Which module decides an exercise: predicate, reference and given data of an exercise stand side by side there."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from headway.errors import UnknownName, did_you_mean

_HOMES = {
    "warmup": ("w1", "w2", "w3", "w4", "w5", "w6", "w7"),
    "residual": ("1a", "1b", "1c", "1d"),
    "attention": ("2a", "2b", "2c", "2d"),
    "rotary": ("2b-rotary", "2c-rotary"),
    "writing": ("2e",),
    "pointer": ("2f",),
    "induction": ("3", "3-rotary"),
    "defeat": ("defeat-3", "defeat-2d"),
    "frequencies": ("frequencies",),
}
MODULES = {id: f"headway.exercises.predicates.{home}" for home, ids in _HOMES.items() for id in ids}


def table(id: str, name: str) -> Mapping[str, Callable[..., Any]]:
    """A table of the module that decides exercise `id`: PREDICATES, REFERENCES, GIVENS or LONGER; {} when it has none.

    Raises UnknownName for an unknown id.

    >>> sorted(table("2a", "PREDICATES"))
    ['2a', '2b', '2c', '2d']
    """
    if id not in MODULES:
        raise UnknownName(f"no exercise {id!r}", next_step=did_you_mean(str(id), MODULES))
    return getattr(importlib.import_module(MODULES[id]), name, {})
