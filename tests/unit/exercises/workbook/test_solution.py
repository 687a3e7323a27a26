"""The known answers as files: each is a learner's file that passes, by itself and short enough to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.errors import UnknownName
from headway.exercises.catalogue import exercises, known_answers
from headway.exercises.checking import Submission, grade
from headway.exercises.workbook.runner import AnswerProcess
from headway.exercises.workbook.solution import reference_code
from headway.exercises.workbook.stub import exercise_of

IDS = [entry.id for entry in exercises()]


@pytest.fixture(scope="module")
def process() -> Iterator[AnswerProcess]:
    with AnswerProcess() as child:
        yield child


@pytest.mark.parametrize("id", IDS)
def test_every_known_answer_is_a_file_that_passes(id: str, process: AnswerProcess, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(reference_code(id) + "\n", encoding="utf-8")
    answers = process.solve(exercise_of(path), path)
    verdict = grade(id, Submission(answers["visible"], answers["hidden"]))
    assert exercise_of(path) == id and verdict.passed, verdict


@pytest.mark.parametrize("id", IDS)
def test_it_can_be_read_at_a_glance(id: str) -> None:
    lines = reference_code(id).splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert "headway" not in reference_code(id)


def test_there_is_one_for_every_exercise_and_no_other() -> None:
    assert list(known_answers()) == IDS


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(UnknownName):
        reference_code("2z")
