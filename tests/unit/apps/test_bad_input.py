"""What users get wrong on the command line: one line on stderr, nothing on stdout, the right exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.apps.cli.app import COMMANDS, main
from headway.sources.zoo.packaged import zoo_path

LONG = "x" * 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one good model and much that is none."""
    here = tmp_path_factory.mktemp("wrong")
    archive = zoo_path("one-layer").read_bytes()
    for name in ("m.safetensors", "new\nline.safetensors", "with space.safetensors"):
        (here / name).write_bytes(archive)
    (here / "cut.safetensors").write_bytes(archive[:100_000])
    (here / "nothing.safetensors").write_bytes(b"")
    for name, data in (("empty.txt", b" \n"), ("latin.txt", b"caf\xe9"), ("short.txt", b"a few words")):
        (here / name).write_bytes(data)
    for name in ("folder", "folder.csv", "page/report.html", "tabled"):
        (here / name).mkdir(parents=True)
    (here / "tabled" / "tables").write_bytes(b"a file")
    os.mkfifo(here / "pipe")
    return here


MODELS = [
    ("zoo:two-layr", 2, "no model 'two-layr' in the zoo. Did you mean two-layer"),
    ("zoo:", 2, "Known: zero-layer, one-layer, two-layer"),
    ("two-layer", 1, "Did you mean zoo:two-layer?"),
    ("m.safetensor", 1, "Did you mean m.safetensors"),
    ("m.safetensors@5", 1, "Only a training run has steps: leave out @5"),
    ("m.safetensors/x", 1, "no such model"),
    ("nowhere/m.safetensors", 1, "There is no folder nowhere either"),
    ("cut.safetensors", 1, "truncated or damaged"),
    ("nothing.safetensors", 1, "not a whole safetensors file"),
    ("short.txt", 1, "not a whole safetensors file"),
    ("pipe", 1, "not a regular file"),
    ("/dev/zero", 1, "not a regular file"),
    ("folder", 1, "a folder, but no training run"),
    ("", 2, "not a model; expected a path or zoo:NAME"),
    ("no\nsuch", 1, "no\\x0asuch: no such model"),
    ("a\udcffb", 1, "a<0xFF>b: no such model"),
    (LONG, 1, "File name too long"),
    (f"{LONG}/x", 1, "File name too long"),
]
ARGUMENTS = [
    (["importance", "m.safetensors", "--text", "/dev/zero"], 1, "/dev/zero: not a file of text"),
    (["importance", "m.safetensors", "--text", "pipe"], 1, "pipe: not a file of text"),
    (["importance", "m.safetensors", "--text", "empty.txt"], 1, "empty.txt: no text"),
    (["importance", "m.safetensors", "--text", "folder"], 1, "folder: no text"),
    (["importance", "m.safetensors", "--text", "latin.txt"], 1, "latin.txt: not UTF-8 text"),
    (["importance", "m.safetensors", "--text", "short.txt"], 1, "text too short for one window"),
    (["importance", "m.safetensors", "--text", LONG], 1, "File name too long"),
    (["importance", "m.safetensors", "--windows", "0"], 2, "--windows"),
    (["heads", "m.safetensors", "--text"], 1, "no text"),
    (["heads", "m.safetensors", "--seed", "-1"], 2, "--seed; expected a whole number from 0"),
    (["heads", "m.safetensors", "--seed", "9" * 30], 2, "--seed; expected a whole number from 0"),
    (["heads", "m.safetensors", "--seed", "one"], 2, "--seed"),
    (["compose", "m.safetensors", "--top", "-1"], 2, "--top"),
    (["compose", "m.safetensors", "--offset", "-1"], 2, "--offset"),
    (["compose", "m.safetensors", "--offset", "1" + 20 * "0"], 2, "offset"),
    (["compose", "m.safetensors", "--offset", "one"], 2, "--offset"),
    (["heads", "m.safetensors", "-o", ""], 2, "-o; expected a path, got nothing"),
    (["heads", "m.safetensors", "--text", ""], 2, "--text; expected a path, got nothing"),
    (["report", "m.safetensors", "-o", ""], 2, "-o; expected a path, got nothing"),
    (["train", "two-layer", "-o", ""], 2, "-o; expected a path, got nothing"),
    (["train", "two-layer", "-o", LONG], 1, "Choose a shorter name"),
    (["train", "two-layer", "-o", "short.txt"], 2, "not a folder"),
    (["train", "two-layr"], 2, "Did you mean two-layer"),
    (["train", "two-layer", "--tokens", "0"], 2, "--tokens"),
    (["train", "two-layer", "--tokens", "9" * 30], 2, "--tokens"),
    (["train", "two-layer", "--dtype", "float8"], 2, "float8"),
    (["circuit", "m.safetensors", "L0H99", "ov"], 2, "no head L0H99 in this model"),
    (["circuit", "m.safetensors", "L0H0", "vo"], 2, "vo"),
    (["circuit", "m.safetensors", "L0H0", "ov", "--token", "zqxj"], 2, "zqxj"),
    (["circuit", "m.safetensors", "L0H0", "qk", "--offset", "1" + 20 * "0"], 2, "offset"),
    (["compose", "m.safetensors", "--reader", "L99H0"], 2, "no head L99H0 in this model"),
    (["compose", "m.safetensors", "--reader", "first"], 2, "not a head; expected L1H3"),
    (["compose", "m.safetensors", "--device", ""], 2, "device"),
    (["inspect", "m.safetensors", "--layers", "99"], 2, "--layers"),
    (["inspect", "m.safetensors", "m.safetensors"], 2, "m.safetensors"),
    (["inspect", "m.safetensors", "--no-json"], 2, "--no-json"),
    (["inspect", "--model", "m.safetensors"], 2, "--model"),
    (["inspekt", "m.safetensors"], 2, 'Did you mean "inspect"?'),
    (["inspect"], 2, "MODEL"),
]


@pytest.mark.parametrize(
    ("words", "code", "says"), [*((["inspect", model], code, says) for model, code, says in MODELS), *ARGUMENTS]
)
def test_one_line_and_the_right_exit_code(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(folder)
    assert main(words) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("headway: ") and shown.err.count("\n") == 1 and says in shown.err


@pytest.mark.parametrize("name", ["with space.safetensors", "new\nline.safetensors"])
def test_odd_names_are_only_names(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # no name is folded
    assert main(["inspect", str(folder / name)]) == 0
    assert name.replace("\n", "\\x0a").removesuffix(".safetensors") in capsys.readouterr().out.replace("\n", " ")


TABLE_PLACES = [
    ("a.xlsx", 2, "not a table format; expected .parquet or .json or .csv"),
    ("folder", 2, "not a table format"),
    ("folder.csv", 1, "cannot be replaced by a file"),
    ("nowhere/a.csv", 1, "Make the folder first"),
    ("short.txt/a.csv", 1, "Name a file inside a folder"),
    (f"{LONG}.csv", 1, "Choose a shorter name"),
    ("/proc/a.csv", 1, "could not be written"),
]
REPORT_PLACES = [
    ("short.txt", 1, "Name a file inside a folder"),
    ("short.txt/report", 1, "Name a file inside a folder"),
    ("page", 1, "cannot be replaced by a file"),
    ("tabled", 1, "Name a file inside a folder"),
    (LONG, 1, "Choose a shorter name"),
    ("/dev/null", 1, "Name a file inside a folder"),
    ("/proc/report", 1, "could not be written"),
]


@pytest.mark.parametrize("command", ["inspect", "heads", "compose", "importance", "report"])
def test_a_place_that_cannot_be_written_is_refused_before_the_model_is_opened(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    for place, code, says in REPORT_PLACES if command == "report" else TABLE_PLACES:
        assert main([command, "no-such-model", "-o", place]) == code, place
        shown = capsys.readouterr()
        assert says in shown.err and "no such model" not in shown.err and not shown.out, place
    assert sorted(folder.rglob("*")) == before


def test_help_shows_what_a_user_types(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
        out = capsys.readouterr().out
        assert "--no-" not in out and "--empty-" not in out and "--model" not in out
        if command not in ("train", "learn"):
            assert "MODEL  A path (archive, RUN, RUN@STEP) or zoo:NAME." in out and "--json" in out


INTERRUPTED = """
import signal, sys
from headway.apps.cli import main
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Stop())
raise SystemExit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("module", ["cyclopts", "torch", "headway.apps.cli.heads", "headway.studies.heads"])
def test_ctrl_c_while_anything_is_read_in_is_one_line(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "heads", "zoo:one-layer"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("headway: interrupted") and done.stderr.count("\n") == 1
