"""Lazy package exports: `import headway` costs nothing, and torch loads when a name that needs it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__`, `__all__` of a package whose public names live in the given modules (PEP 562).

    A name that is the last part of its own home, directly below the package, is that module itself.

    >>> __getattr__, __dir__, __all__ = attach("headway", {"HeadId": "headway.ids"})
    >>> __getattr__("HeadId").__name__
    'HeadId'
    """
    names = sorted(homes)

    # Any: a type checker cannot follow the table, and `object` would refuse every use of a name.
    def get(name: str) -> Any:
        if name in homes:
            module = importlib.import_module(homes[name])
            return module if homes[name] == f"{package}.{name}" else getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: names, names
