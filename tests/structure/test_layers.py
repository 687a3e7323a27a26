"""The import layers of pyproject.toml hold, and the contracts catch what they should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import ROOT, SOURCE

CONTRACTS = ROOT / "pyproject.toml"


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    """Run the project's contracts over the `headway` package found in a folder."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()"]
    return subprocess.run(
        [*command, "--no-cache", "--no-logo", str(CONTRACTS)],
        cwd=path,
        env={**os.environ, "PYTHONPATH": str(path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def make_package(folder: Path, files: dict[str, str]) -> Path:
    """A made-up `headway` in a folder."""
    for name, text in {"__init__.py": "", **files}.items():
        path = folder / "headway" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_the_project_keeps_its_layers():
    done = lint(SOURCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kept, 0 broken" in done.stdout


def test_a_clean_package_passes(tmp_path: Path):
    files = {"errors.py": "", "ids.py": "import headway.errors\n", "model/__init__.py": "from headway.ids import x\n"}
    done = lint(make_package(tmp_path, files))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("files", "contract"),
    [
        pytest.param(
            {"errors.py": "from headway.model import x\n", "model/__init__.py": ""}, "lower layers", id="upwards"
        ),
        pytest.param(
            {
                "algebra/__init__.py": "",
                "algebra/a.py": "import headway.tables.b\n",
                "tables/__init__.py": "",
                "tables/b.py": "",
            },
            "lower layers",
            id="sideways",
        ),
        pytest.param(
            {"tokens/__init__.py": "def f():\n    from headway import paths\n", "paths/__init__.py": ""},
            "lower layers",
            id="inside-a-function",
        ),
        pytest.param({"helpers.py": ""}, "lower layers", id="outside-the-layers"),
        pytest.param({"ids.py": "import headway as hw\n"}, "package root", id="the-root"),
        pytest.param(
            {"model/__init__.py": "", "model/a.py": "from headway import load\n"}, "package root", id="a-root-name"
        ),
    ],
)
def test_an_offender_is_caught(tmp_path: Path, files: dict[str, str], contract: str):
    done = lint(make_package(tmp_path, files))
    assert done.returncode != 0
    assert [contract in line for line in done.stdout.splitlines() if "BROKEN" in line] == [True]
