"""Modules that a command imports before it knows whether it computes: they load without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.repository import PACKAGE, SOURCE

LIGHT = [
    "",
    "errors",
    "ids",
    "lazy",
    "provenance",
    "tokens",
    "model",
    "model.config",
    "sources",
    "sources.open",
    "apps.cli",
]


def exists(module: str) -> bool:
    """Whether the module or package has been built."""
    path = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def imports_torch(module: str) -> bool:
    """Whether importing a module in a fresh interpreter brings torch with it."""
    code = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import {module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip() == "True"


@pytest.mark.parametrize("module", [f"headway.{name}".rstrip(".") for name in LIGHT if exists(name)])
def test_a_light_module_does_not_import_torch(module: str):
    assert not imports_torch(module)


def test_a_module_that_does_is_caught():
    assert imports_torch("headway.shapes")


def test_a_missing_module_is_not_mistaken_for_a_light_one():
    with pytest.raises(subprocess.CalledProcessError):
        imports_torch("headway.no_such_module")
