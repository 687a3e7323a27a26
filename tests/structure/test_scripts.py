"""The scripts run on old shells, set up once, and recover from a setup that was broken off."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import ROOT

SCRIPTS = [*sorted(p for p in (ROOT / "scripts").iterdir() if p.is_file()), ROOT / ".ci" / "run"]
COMMANDS = ["demo", "test", "test-all", "check"]

# Not in bash 3.2, or not in the tools that come with macOS.
TOO_NEW = re.compile(
    r"\b(mapfile|readarray|sha256sum|md5sum|nproc|realpath|tac)\b|readlink -f|(declare|local) -[An]|sed -i|grep -P"
    r"|date -d|\btimeout\b|\$\{\w+(,,|\^\^|@\w)|&>>|\|&"
)

# Stands in for Python: makes a "virtual environment" whose python notes what pip was asked for.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
  *"import ensurepip, venv"*) exit "${FAKE_NO_VENV:-0}" ;;
  *"-m venv "*) echo venv >>"$FAKE_LOG"; for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python"; exit ;;
  *"-m pip "*) echo "pip $*" >>"$FAKE_LOG"; exit "${FAKE_PIP_EXIT:-0}" ;;
esac
exec REAL "$@"
"""


class Checkout:
    """A made-up checkout with the real scripts/_env.sh and a Python that installs nothing."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        (self.root / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "_env.sh", self.root / "scripts" / "_env.sh")
        (self.root / "scripts" / "go").write_text('. "$(dirname "${BASH_SOURCE[0]}")/_env.sh"\npwd\n')
        (self.root / "pyproject.toml").write_text("[project]\n")
        (self.root / "constraints.txt").write_text("torch==1\n")
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "log"
        self.python = self.bin / "python3"
        self.python.write_text(FAKE_PYTHON.replace("REAL", sys.executable))
        self.python.chmod(0o755)

    def go(self, **env: str) -> tuple[int, str, list[str]]:
        """Exit code, output, and the first words of what was done to the environment."""
        self.log.write_text("")
        # Only python3 of the made-up bin: whatever else the machine has must not be found first.
        tools = {"bash", "cat", "dirname", "head", "mkdir", "cp", "rm", "sh"}
        for tool in tools:
            if not (self.bin / tool).exists():
                (self.bin / tool).symlink_to(str(shutil.which(tool)))
        done = subprocess.run(
            ["bash", str(self.root / "scripts" / "go")],
            env={"PATH": str(self.bin), "FAKE_LOG": str(self.log), **env},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return (
            done.returncode,
            done.stdout + done.stderr,
            [line.split()[0] for line in self.log.read_text().splitlines()],
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_time_installs_and_the_second_does_nothing(checkout: Checkout):
    code, output, done = checkout.go()
    assert (code, done) == (0, ["venv", "pip"]), output
    assert output.endswith(f"{checkout.root}\n")
    assert "-c constraints.txt -e .[dev]" in checkout.log.read_text()
    assert "index" not in checkout.log.read_text()
    assert checkout.go()[2] == []


def test_changed_pins_are_installed_into_the_same_environment(checkout: Checkout):
    checkout.go()
    (checkout.root / "constraints.txt").write_text("torch==2\n")
    assert checkout.go()[2] == ["pip"]
    assert checkout.go()[2] == []


def test_a_broken_off_install_is_made_anew(checkout: Checkout):
    code, output, _ = checkout.go(FAKE_PIP_EXIT="1")
    assert code == 1
    assert "Installing Headway's dependencies failed" in output
    assert checkout.go()[2] == ["venv", "pip"]


def test_an_environment_whose_python_is_gone_is_made_anew(checkout: Checkout):
    checkout.go()
    (checkout.root / ".venv" / "bin" / "python").unlink()
    assert checkout.go()[2] == ["venv", "pip"]


def test_a_moved_checkout_is_made_anew(checkout: Checkout, tmp_path: Path):
    checkout.go()
    checkout.root = checkout.root.rename(tmp_path / "moved")
    assert checkout.go()[2] == ["venv", "pip"]


def test_a_missing_venv_module_names_the_package(checkout: Checkout):
    code, output, done = checkout.go(FAKE_NO_VENV="1")
    assert (code, done) == (1, [])
    assert "apt install python3-venv" in output


def test_no_python_says_so(checkout: Checkout):
    checkout.python.unlink()
    code, output, _ = checkout.go()
    assert code == 1
    assert "Python 3.11 or later" in output


def test_a_named_python_that_does_not_work_is_not_replaced_by_another(checkout: Checkout):
    code, output, done = checkout.go(HEADWAY_PYTHON="/no/such/python")
    assert (code, done) == (1, [])
    assert "HEADWAY_PYTHON is '/no/such/python'" in output


def test_a_named_python_is_used(checkout: Checkout):
    named = checkout.bin / "my-python"
    checkout.python.rename(named)
    assert checkout.go(HEADWAY_PYTHON=str(named))[2] == ["venv", "pip"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_a_script_parses_and_uses_nothing_too_new(path: Path):
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    code = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    assert [line for line in code if TOO_NEW.search(line)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_and_can_be_executed(name: str):
    path = ROOT / "scripts" / name
    first, second = path.read_text(encoding="utf-8").splitlines()[:2]
    assert first == "#!/usr/bin/env bash"
    assert second.startswith("# ")
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize("line", ["mapfile -t a", "readlink -f x", "declare -A d", 'echo "${x,,}"', "sed -i s/a/b/ f"])
def test_a_word_too_new_is_caught(line: str):
    assert TOO_NEW.search(line)
