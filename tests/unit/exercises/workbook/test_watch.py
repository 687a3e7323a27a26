"""Saved files are noticed once each."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headway.exercises.workbook.watch import saved_files


class Folder:
    """A folder, and what happens in it between looks."""

    def __init__(self, path: Path, *events: Callable[[], object]) -> None:
        self.path = path
        self.events = list(events)

    def files(self) -> list[Path]:
        return sorted(self.path.glob("*.py"))

    def pause(self, seconds: float) -> None:
        assert seconds > 0
        if not self.events:
            raise KeyboardInterrupt
        self.events.pop(0)()


def seen(folder: Folder, *, first: bool) -> list[str]:
    found: list[str] = []
    with suppress(KeyboardInterrupt):
        found.extend(path.name for path in saved_files(folder.files, pause=folder.pause, first=first))
    return found


def save(path: Path, text: str, at: int) -> None:
    path.write_text(text)
    os.utime(path, ns=(at, at))


def test_files_that_are_there_come_first_if_asked(tmp_path: Path) -> None:
    save(tmp_path / "2c.py", "a", 1)
    assert seen(Folder(tmp_path, lambda: None), first=True) == ["2c.py"]
    assert seen(Folder(tmp_path, lambda: None), first=False) == []


def test_a_change_counts_once_it_has_settled(tmp_path: Path) -> None:
    path = tmp_path / "2c.py"
    save(path, "a", 1)
    events = (
        lambda: save(path, "half", 2),
        lambda: save(path, "whole", 3),
        lambda: None,
        lambda: None,
    )
    assert seen(Folder(tmp_path, *events), first=False) == ["2c.py"]


def test_new_files_are_noticed_and_gone_files_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "2a.py"
    events = (
        lambda: save(path, "a", 1),
        lambda: None,
        path.unlink,
        lambda: None,
        lambda: save(path, "a", 1),
        lambda: None,
    )
    assert seen(Folder(tmp_path, *events), first=False) == ["2a.py", "2a.py"]
