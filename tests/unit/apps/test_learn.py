"""`headway learn` as a learner runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headway.apps.cli.app import main
from headway.exercises.catalogue import exercise, exercises
from headway.exercises.workbook.progress import FILE_NAME
from support.repository import SOURCE

RIGHT = "def solve(given):\n    return {'W_Q': given.u_content, 'W_K': given.u_content}\n"
WRONG = RIGHT.replace("'W_Q': ", "'W_Q': -")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def learn(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["learn", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def learn_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    _, out, _ = learn(capsys, *words, "--json")
    return json.loads(out)


def test_a_list_has_every_exercise_in_both_languages(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = learn(capsys, "list")
    assert code == 0 and [line.split()[0] for line in out.splitlines()[:-1]] == [entry.id for entry in exercises()]
    assert f"0 of {len(exercises())} passed" in out
    assert "看前一个词元" in learn(capsys, "list", "--lang", "zh")[1]
    rows = learn_json(capsys, "list")["rows"]
    assert rows[0] == {
        "id": "w1",
        "title": "The QK circuit",
        "state": "open",
        "reason": "",
        "attempts": 0,
        "hints": 0,
        "T99": None,
    }


def test_start_writes_a_stub_once(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    code, out, _ = learn(capsys, "start", "2c")
    assert code == 0 and "Wrote 2c.py" in out and "u_cos" in out and (here / "2c.py").exists()
    (here / "2c.py").write_text("mine")
    code, _, err = learn(capsys, "start", "2c")
    assert code == 2 and "stays as it is" in err and (here / "2c.py").read_text() == "mine"
    assert learn(capsys, "start", "2c", "-o", "other", "--lang", "zh")[0] == 0
    assert "看前一个词元" in (here / "other" / "2c.py").read_text(encoding="utf-8")


def test_wrong_then_right(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "2a.py").write_text(WRONG)
    code, out, err = learn(capsys, "check", "2a", "-o", "2a.svg")
    assert code == 3 and out.startswith("2a not passed: The sign") and "learn hint 2a" in err
    assert "A sequence that shows it" in out and "yours" in out and (here / "2a.svg").read_text().startswith("<svg")
    assert max(map(len, out.splitlines())) <= 80
    (here / "2a.py").write_text(RIGHT)
    code, out, _ = learn(capsys, "check", "2a.py")
    assert code == 0 and out.startswith("2a passed: Right.") and "Sharpness" in out
    entry = json.loads((here / FILE_NAME).read_text())["exercises"]["2a"]
    assert (entry["passed"], entry["attempts"]) == (True, 2)
    assert "passed, attempts 2" in learn(capsys, "progress")[1]
    assert "return {" in learn(capsys, "show", "2a")[1]


def test_a_check_as_json(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "2a.py").write_text(WRONG)
    document = learn_json(capsys, "check", "2a", "--lang", "zh")
    (row,) = document["rows"]
    assert document["schema"] == "headway/learn-check@1" and document["meta"]["path"] == "2a.py"
    assert (row["id"], row["passed"], row["reason"]) == ("2a", False, "SIGN") and "内容" in row["message"]


def test_hints_come_one_by_one_and_are_counted(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    hints = exercise("2c").words().hints
    said = [learn(capsys, "hint", "2c")[1] for _ in range(4)]
    flat = [" ".join(text.split()) for text in said]
    assert flat == [f"Hint {k} of 3: {hints[k - 1]}" for k in (1, 2, 3, 3)]
    assert json.loads((here / FILE_NAME).read_text())["exercises"]["2c"]["hints"] == 3
    assert learn_json(capsys, "hint", "2c", "--level", "1")["rows"][0]["hint"] == hints[0]


def test_an_answer_is_shown_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = learn(capsys, "show", "2c")
    assert code == 2 and out == "" and "--spoil" in err
    code, out, _ = learn(capsys, "show", "2c", "--spoil")
    assert code == 0 and "blockdiag" in out and "def solve(given)" in out
    assert "def solve(given)" in learn_json(capsys, "show", "2c", "--spoil")["rows"][0]["code"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["start", "2g"], "no exercise '2g'"),
        (["start", "2C"], "Did you mean 2c?"),
        (["check", "2c"], "headway learn start 2c"),
        (["check", "none.py"], "no such answer file"),
        (["check", "odd.txt"], "not clear which exercise"),
        (["check", "2a.txt"], ".py or .json or .npz"),
        (["check", "2a", "-o", "picture.gif"], ".svg or .png"),
        (["hint", "9"], "no exercise '9'"),
        (["hint", "2c", "--level", "4"], "1, 2 or 3"),
        (["show", "nothing"], "no exercise"),
        (["progress", "no-folder"], "no such folder"),
        (["watch", "2c"], "headway learn start 2c"),
        (["list", "--lang", "fr"], "fr"),
        (["nonsense"], "nonsense"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], here: Path, words: list[str], says: str
) -> None:
    (here / "odd.txt").write_text("")
    (here / "2a.txt").write_text("")
    code, out, err = learn(capsys, *words)
    assert code == 2 and says in err and "Traceback" not in err and out == ""
    assert sorted(path.name for path in here.iterdir()) == ["2a.txt", "odd.txt"]


def test_a_broken_progress_file_stops_nothing(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / FILE_NAME).write_text("{")
    code, out, err = learn(capsys, "list")
    assert code == 0 and "2c" in out and "could not be read" in err
    assert (here / "headway-progress.broken-1.json").read_text() == "{"


def test_an_answer_file_elsewhere_is_checked_where_it_is(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    folder = here / "a folder"
    folder.mkdir()
    (folder / "again.py").write_text('EXERCISE = "2a"\n' + RIGHT)
    assert learn(capsys, "check", "a folder/again.py")[0] == 0
    assert (folder / FILE_NAME).exists() and not (here / FILE_NAME).exists()
    assert "passed" in learn(capsys, "progress", "a folder")[1]


def test_watch_checks_what_is_saved_until_interrupted(here: Path) -> None:
    (here / "2a.py").write_text(WRONG)
    code = "import sys; from headway.apps.cli import main; sys.exit(main(['learn', 'watch', '2a']))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), os.environ.get("PYTHONPATH", "")))}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("2a not passed")
        time.sleep(0.1)
        (here / "2a.py").write_text(RIGHT)
        while not (line := process.stdout.readline()).startswith("2a passed"):
            assert line
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130 and "Traceback" not in rest and "no longer watching" in rest


def test_reading_about_exercises_loads_no_torch(here: Path) -> None:
    code = (
        "import sys; from headway.apps.cli import main\n"
        "for words in (['list'], ['start', '2c'], ['hint', '2c'], ['progress'], ['start', '3', '--lang', 'zh']):\n"
        "    assert main(['learn', *words]) == 0\n"
        "print('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_quiet_leaves_remarks_out_and_answers_in(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / FILE_NAME).write_text("no progress at all")
    code, out, err = learn(capsys, "list", "--quiet")
    assert code == 0 and "2c" in out and err == ""
    (here / FILE_NAME).write_text("no progress at all")
    assert learn(capsys, "list")[2] != ""
