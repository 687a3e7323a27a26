"""Stubs: whole, never written over, and not yet an answer."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from headway.errors import UnknownName, UsageError, WriteProblem
from headway.exercises.catalogue import exercise, exercises
from headway.exercises.workbook.stub import answer_file, exercise_of, start_answer, stub_text

IDS = [entry.id for entry in exercises()]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("id", IDS)
def test_a_stub_is_python_with_statement_names_and_id(id: str, lang: str) -> None:
    text = stub_text(id, lang=lang)
    tree = ast.parse(text)
    said = "".join((ast.get_docstring(tree) or "").split())
    assert "".join(exercise(id).words(lang).statement.split()) in said
    assert f'EXERCISE = "{id}"' in text and all(f"    {name} = None" in text for name in exercise(id).answers)


@pytest.mark.parametrize("id", IDS)
def test_a_stub_as_it_is_fails_as_unchanged(id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from headway.exercises.workbook.child import Child
    from headway.exercises.workbook.frames import unpack

    monkeypatch.setattr(sys, "path", list(sys.path))
    path = start_answer(id, tmp_path)
    child, request = Child(), {"do": "solve", "id": id, "path": str(path)}
    child.prepare(request)
    header, _ = unpack(io.BytesIO(child.handle(request, {})).read)
    assert header["reason"] == "UNCHANGED", header


def test_starting_again_leaves_the_answer_alone(tmp_path: Path) -> None:
    path = start_answer("2c", tmp_path / "new" / "folder")
    path.write_text("mine")
    with pytest.raises(UsageError, match="stays as it is"):
        start_answer("2c", tmp_path / "new" / "folder")
    assert path.read_text() == "mine"


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((WriteProblem, UsageError)):
        start_answer("2c", tmp_path / "file")
    with pytest.raises(UnknownName, match="Did you mean"):
        start_answer("2cc", tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "id"),
    [
        ("2c.py", "", "2c"),
        ("anything.py", 'import torch\n\nEXERCISE = "2c-rotary"\n', "2c-rotary"),
        ("2a.py", "EXERCISE = '2d'\n", "2d"),
        ("2c-rotary.py", "", "2c-rotary"),
        ("2c-again.py", "", "2c"),
        ("3.npz", "", "3"),
        ("defeat-3_b.json", "", "defeat-3"),
    ],
)
def test_which_exercise_a_file_answers(tmp_path: Path, name: str, text: str, id: str) -> None:
    (tmp_path / name).write_text(text)
    assert exercise_of(tmp_path / name) == id


@pytest.mark.parametrize(("name", "text"), [("mine.py", ""), ("2cc.npz", ""), ("x.py", 'EXERCISE = "9q"\n')])
def test_a_file_of_no_exercise_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError):
        exercise_of(tmp_path / name)


def test_an_answer_is_found_by_its_id(tmp_path: Path) -> None:
    assert answer_file("2c", tmp_path) is None
    (tmp_path / "2c.json").write_text("")
    assert answer_file("2c", tmp_path) == tmp_path / "2c.json"
    (tmp_path / "2c.py").write_text("")
    assert answer_file("2c", tmp_path) == tmp_path / "2c.py"
