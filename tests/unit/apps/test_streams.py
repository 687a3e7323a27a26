"""Where the words go: full disks, closed streams, pipes whose reader left, terminals of few letters or little room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.apps.cli.app import main
from headway.model.archive import save
from headway.sources.handmade.induction import induction_model

HEADWAY = f"{sys.executable} -c 'import sys; from headway.apps.cli import main; sys.exit(main())'"
COMMANDS = {"a table": "inspect {model}", "JSON": "inspect {model} --json", "help": "--help", "a version": "--version"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(induction_model().weights, tmp_path_factory.mktemp("cli") / "induction.safetensors"))


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command line with `headway` in it, as bash runs it; any pipeline failure is its exit code."""
    line = command.replace("headway ", HEADWAY + " ", 1)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("what", COMMANDS)
def test_an_answer_that_cannot_be_written_is_one_sentence_and_exit_code_1(model: str, what: str) -> None:
    command = COMMANDS[what].format(model=model)
    for place, reason in (("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")):
        done = shell(f"headway {command} >{place}")
        assert (done.returncode, done.stderr) == (1, f"headway: the answer could not be written: {reason}\n")


@pytest.mark.parametrize("what", COMMANDS)
def test_a_reader_that_leaves_is_no_error(model: str, what: str) -> None:
    for reader in ("true", "head -1"):
        done = shell(f"headway {COMMANDS[what].format(model=model)} | {reader}")
        assert (done.returncode, done.stderr) == (0, "")


def test_talk_that_nobody_hears_stops_no_work(model: str, tmp_path: Path) -> None:
    for place in ("/dev/full", "&-"):
        done = shell(f"headway inspect {model} -o {tmp_path / 'a.csv'} 2>{place}")
        assert (done.returncode, done.stdout) == (0, "")
        assert (tmp_path / "a.csv").read_text(encoding="utf-8").startswith("section,name,value,note")
        refused = shell(f"headway inspect {tmp_path / 'none'} 2>{place}")
        assert (refused.returncode, refused.stdout) == (1, "")


def test_a_file_needs_no_stdout(model: str, tmp_path: Path) -> None:
    done = shell(f"headway inspect {model} -o {tmp_path / 'a.csv'} >&-")
    assert (done.returncode, done.stderr) == (0, f"wrote {tmp_path / 'a.csv'}\n")


def test_a_terminal_of_few_letters_gets_ascii(model: str, tmp_path: Path) -> None:
    named = tmp_path / "né.safetensors"
    named.write_bytes(Path(model).read_bytes())
    for command, code, says in (
        (f"inspect {named}", 0, "n\\xe9.safetensors"),
        ("inspect né", 1, "n\\xe9"),
        ("--help", 0, ""),
    ):
        done = shell("headway " + command, LC_ALL="C", PYTHONIOENCODING="ascii")
        said = done.stdout + done.stderr
        assert (done.returncode, said.isascii(), says in said) == (code, True, True) and "Traceback" not in said


@pytest.mark.parametrize("command", ["heads", "compose", "heads zoo:zero-layer", "compose zoo:zero-layer"])
def test_tables_fit_the_terminal_and_say_what_they_left_out(
    model: str, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = command.split() if ":" in command else [command, model]
    assert main([words[0], "zoo:zero-layer", "--json"]) == 0
    every = list(json.loads(capsys.readouterr().out)["meta"]["columns"])
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(words) == 0
        shown = capsys.readouterr()
        assert max(map(len, shown.out.splitlines())) <= columns
        said = [line for line in shown.err.splitlines() if line.startswith("No room for ")]
        hidden = said[0].removeprefix("No room for ").partition(":")[0].split(", ") if said else []
        assert set(hidden) < set(every) and every[0] not in hidden
        assert bool(hidden) == (command.startswith("heads") or columns == 80)


def test_quiet_says_nothing_of_columns(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["compose", model, "--quiet"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and "null_rms" not in shown.out


def test_a_pipe_gets_every_column_and_one_line_a_row(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["heads", model, "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"head", "evidence", "prefix_matching_text", "flag"} <= set(lines[0].split())
    assert [line.split()[0] for line in lines[2:-1]] == ["L0H0", "L1H0"]
