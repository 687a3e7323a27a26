"""The progress file: nothing in it is ever lost, and nothing in it is ever fatal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.errors import WriteProblem
from headway.exercises.workbook.progress import FILE_NAME, Entry, Progress, digest


def write(folder: Path, text: str) -> Path:
    path = folder / FILE_NAME
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_without_a_file_is_untouched(tmp_path: Path) -> None:
    assert Progress.of(tmp_path).entry("2c") == Entry()
    assert list(tmp_path.iterdir()) == []


def test_checks_are_counted_and_the_best_is_kept(tmp_path: Path) -> None:
    progress = Progress.of(tmp_path).checked("2c", reason="OFFSET", passed=False, T99=5.0)
    assert progress.entry("2c") == Entry(False, "OFFSET", 1, 0, None, "")
    progress = progress.checked("2c", reason="PASSED", passed=True, T99=20.0, answer="sha256:ab")
    progress = progress.checked("2c", reason="PASSED", passed=True, T99=30.0)
    progress = progress.checked("2c", reason="SIGN", passed=False, T99=1.0).hinted("2c", 2).hinted("2c", 1)
    progress.save()
    assert Progress.of(tmp_path).entry("2c") == Entry(True, "SIGN", 4, 2, 20.0, "")


def test_a_sharpness_without_end_is_not_kept(tmp_path: Path) -> None:
    Progress.of(tmp_path).checked("2c", reason="PASSED", passed=True, T99=float("inf")).save()
    assert json.loads((tmp_path / FILE_NAME).read_text())["exercises"]["2c"]["T99"] is None


def test_unknown_entries_and_fields_stay(tmp_path: Path) -> None:
    mine = {"version": 7, "name": "Ada", "exercises": {"9z": {"x": [1]}, "2c": {"hints": 1, "colour": "blue"}, "2a": 5}}
    write(tmp_path, json.dumps(mine))
    Progress.of(tmp_path).checked("2c", reason="TIE", passed=False).save()
    after = json.loads((tmp_path / FILE_NAME).read_text())
    assert (after["version"], after["name"], after["exercises"]["9z"], after["exercises"]["2a"]) == (
        7,
        "Ada",
        {"x": [1]},
        5,
    )
    assert after["exercises"]["2c"]["colour"] == "blue" and after["exercises"]["2c"]["hints"] == 1


@pytest.mark.parametrize(
    "stored",
    ["{}", '{"passed": "yes", "attempts": null, "hints": -0.5, "T99": "x", "reason": 3}', "[]", "null", "true"],
)
def test_odd_fields_count_as_untouched(tmp_path: Path, stored: str) -> None:
    write(tmp_path, f'{{"exercises": {{"2c": {stored}}}}}')
    assert Progress.of(tmp_path).entry("2c") == Entry()


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"exercises": 3}', "\x00" * 10, "[" * 200_000, '{"version": 1} extra', "\ud800"]
)
def test_a_broken_file_is_set_aside_with_its_bytes(tmp_path: Path, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    (tmp_path / FILE_NAME).write_bytes(data)
    progress = Progress.of(tmp_path)
    assert progress.set_aside is not None and progress.set_aside.read_bytes() == data
    progress.checked("2c", reason="PASSED", passed=True).save()
    (tmp_path / FILE_NAME).write_bytes(b"again broken")
    second = Progress.of(tmp_path)
    assert second.set_aside is not None and second.set_aside != progress.set_aside
    assert progress.set_aside.read_bytes() == data


def test_a_place_that_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(WriteProblem):
        Progress(tmp_path / "none").checked("2c", reason="PASSED", passed=True).save()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_is_no_progress_and_stays(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    progress = Progress.of(tmp_path)
    assert progress.entry("2c") == Entry() and (tmp_path / FILE_NAME).is_dir()
    with pytest.raises(WriteProblem):
        progress.checked("2c", reason="PASSED", passed=True).save()


def test_a_digest_follows_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "2c.py"
    path.write_text("a")
    before = digest(path)
    path.write_text("b")
    assert before.startswith("sha256:") and digest(path) != before and digest(tmp_path / "none.py") == ""
