"""One check as the workbook does it: files found, earlier parts taken along, outcomes remembered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.errors import UnknownName, UsageError
from headway.exercises.verdict import Sharpness, Verdict
from headway.exercises.workbook import session
from headway.exercises.workbook.progress import FILE_NAME, Progress
from headway.exercises.workbook.runner import Checked
from headway.exercises.workbook.session import check_answer, find_answer


class Grader:
    """Stands in for the process: says what it is told to, and notes what it was asked."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.earlier: dict[str, Path] = {}

    def __call__(self, *asked: Any, earlier: Mapping[str, Path], **how: Any) -> Checked:
        self.asked = (*asked, how)
        self.earlier = dict(earlier)
        return Checked(self.verdict, "printed")


def use(monkeypatch: pytest.MonkeyPatch, id: str, reason: str, **parts: Any) -> Grader:
    grader = Grader(Verdict(id, reason == "PASSED", reason, **parts))
    monkeypatch.setattr(session, "check_file", grader)
    return grader


def test_an_outcome_is_remembered_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "2c", "PASSED", sharpness=Sharpness(13.7, 0.2))
    (tmp_path / "2c.py").write_text("x")
    done = check_answer("2c", tmp_path / "2c.py")
    entry = Progress.of(tmp_path).entry("2c")
    assert (done.verdict.passed, done.printed, done.remarks) == (True, "printed", ())
    assert (entry.passed, entry.attempts, entry.T99) == (True, 1, 13.7) and entry.answer.startswith("sha256:")


def test_earlier_parts_are_taken_along_once_they_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grader = use(monkeypatch, "2f", "OFFSET")
    for id in ("2d", "2e", "2f", "2a"):
        (tmp_path / f"{id}.py").write_text("x")
    check_answer("2f", tmp_path / "2f.py")
    assert grader.earlier == {}
    progress = Progress.of(tmp_path)
    for id in ("2e", "2a"):
        progress = progress.checked(id, reason="PASSED", passed=True)
    progress.save()
    check_answer("2f", tmp_path / "2f.py")
    assert grader.earlier == {"2e": tmp_path / "2e.py"}
    assert Progress.of(tmp_path).entry("2f").attempts == 2


def test_another_file_of_the_same_exercise_is_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "2c", "PASSED")
    for name in ("2c.py", "2c.json", "2c-again.py"):
        (tmp_path / name).write_text("x")
    assert check_answer("2c", tmp_path / "2c.py").remarks == ("checked 2c.py; 2c.json beside it was not looked at",)
    assert check_answer("2c", tmp_path / "2c.json", lang="zh").remarks == ("检查的是 2c.json；旁边的 2c.py 没有看",)
    assert check_answer("2c", tmp_path / "2c-again.py").remarks == ()


def test_a_broken_progress_file_is_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "2c", "PASSED")
    (tmp_path / FILE_NAME).write_text("{broken")
    done = check_answer("2c", tmp_path / "2c.py")
    assert "kept as headway-progress.broken-1.json" in done.remarks[0]
    assert json.loads((tmp_path / FILE_NAME).read_text())["exercises"]["2c"]["passed"] is True


def test_progress_that_cannot_be_written_loses_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "2c", "PASSED")
    (tmp_path / FILE_NAME).mkdir()
    done = check_answer("2c", tmp_path / "2c.py")
    assert done.verdict.passed and "not in your progress" in done.remarks[0]


def test_what_is_to_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "2c.py").write_text("")
    (tmp_path / "mine.py").write_text('EXERCISE = "2a"\n')
    assert find_answer("2c") == ("2c", Path("2c.py"))
    assert find_answer("2c.py") == ("2c", Path("2c.py"))
    assert find_answer(str(tmp_path / "mine.py")) == ("2a", tmp_path / "mine.py")


@pytest.mark.parametrize(
    ("target", "kind", "says"),
    [
        ("2a", UsageError, "headway learn start 2a"),
        ("2a.py", UsageError, "no such answer file"),
        ("folder/2a", UsageError, "no such answer file"),
        ("2g", UnknownName, "2"),
        ("", UnknownName, "Known"),
    ],
)
def test_what_cannot_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, kind: type[Exception], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=says):
        find_answer(target)
