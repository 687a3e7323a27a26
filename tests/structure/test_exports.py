"""What packages export through their lazy tables really exists, and hides no module."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

from support.repository import PACKAGE, module_name

PACKAGES = sorted(module_name(path) for path in PACKAGE.rglob("__init__.py"))


def broken_exports(package: ModuleType) -> list[str]:
    """A row for each exported name that does not resolve, or that has the name of one of the package's modules.

    `from headway.circuits import copying` must mean one thing: a function of that name would depend on what was
    imported before. A lazily imported subpackage under its own name is the one thing it could mean, and is allowed.
    """
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    rows: list[str] = []
    for name in getattr(package, "__all__", ()):
        try:
            value = getattr(package, name)
        except (AttributeError, ImportError) as error:
            rows.append(f"{package.__name__}.{name} does not resolve: {error}")
            continue
        if name in modules and not inspect.ismodule(value):
            rows.append(f"{package.__name__}.{name} has the name of a module")
    return rows


@pytest.mark.parametrize("name", PACKAGES)
def test_exports_resolve_and_hide_no_module(name: str):
    assert broken_exports(importlib.import_module(name)) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_says_what_it_is(name: str):
    assert (importlib.import_module(name).__doc__ or "").strip()


@pytest.mark.parametrize("name", PACKAGES)
def test_exports_are_sorted_and_unique(name: str):
    exported = list(getattr(importlib.import_module(name), "__all__", ()))
    assert exported == sorted(set(exported))


def made_up(**names: object) -> ModuleType:
    """A package object over the real root's folder, so that it has the modules `errors`, `ids`, ..."""
    package = ModuleType("made_up")
    package.__path__ = [str(PACKAGE)]
    for name, value in names.items():
        setattr(package, name, value)
    return package


def test_a_name_that_does_not_resolve_is_caught():
    assert "made_up.nothing does not resolve" in broken_exports(made_up(__all__=["nothing"]))[0]


def test_a_function_named_like_a_module_is_caught():
    package = made_up(__all__=["errors", "other"], errors=len, other=len)
    assert broken_exports(package) == ["made_up.errors has the name of a module"]


def test_a_lazily_imported_module_is_allowed():
    assert broken_exports(made_up(__all__=["errors"], errors=importlib.import_module("headway.errors"))) == []
