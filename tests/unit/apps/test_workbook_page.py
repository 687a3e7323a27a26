"""docs/workbook.md is a session: its files are written, its commands run, and what they print is what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headway.apps.cli.app import main
from support.documents import Block, blocks
from support.repository import ROOT

PAGE = ROOT / "docs" / "workbook.md"
FILE = re.compile(r"# ([\w-]+\.py)\n")


def session() -> list[Block]:
    return list(blocks(PAGE.read_text(encoding="utf-8")))


def printed(block: Block, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[int]]:
    """A console block as it should read: each command and what it printed, talk on stderr last; and the exit codes."""
    lines: list[str] = []
    codes: list[int] = []
    for line in block.text.splitlines():
        if line.startswith("$ headway "):
            codes.append(main(shlex.split(line)[2:]))
            captured = capsys.readouterr()
            lines += [line, *captured.out.splitlines(), *captured.err.splitlines()]
    return "".join(f"{line}\n" for line in lines), codes


def test_the_session_goes_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    codes: list[int] = []
    for block in session():
        named = FILE.match(block.text)
        if block.info == "python" and named:
            (tmp_path / named[1]).write_text(block.text, encoding="utf-8")
        elif block.info == "console no-run":
            text, ended = printed(block, capsys)
            assert block.text == text, f"line {block.line}"
            codes += ended
    assert codes.count(3) >= 4 and set(codes) == {0, 3}


@pytest.mark.parametrize("id", ["1a", "2a", "2c", "3"])
def test_the_page_solves_each_wrongly_first(id: str) -> None:
    shown = [
        block.text
        for block in session()
        if block.info == "console no-run" and f"$ headway learn check {id}\n" in block.text
    ]
    assert f"{id} not passed: " in shown[0] and f"{id} passed: " in shown[-1]
