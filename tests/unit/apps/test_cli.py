"""The commands as a user runs them: what they print where, and the exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.apps.cli.app import COMMANDS, build, main
from headway.model.archive import save
from headway.sources.handmade.induction import induction_model
from headway.sources.trained.training import train
from headway.tables.files import read_table
from support.small_runs import small_corpus, small_recipe


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(induction_model().weights, tmp_path_factory.mktemp("cli") / "induction.safetensors"))


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_command_has_its_file_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert name in capsys.readouterr().out
    assert build().version


def test_help_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "schema", "columns"),
    [
        (["inspect"], "headway/inspect@1", {"section", "name", "value"}),
        (
            ["compose"],
            "headway/compose@1",
            {"reader", "writer", "via", "score", "null_rms", "z", "percentile", "reverse_score", "flag"},
        ),
        (
            ["heads", "--quiet"],
            "headway/heads@1",
            {
                *("head", "kind", "evidence", "copying", "copying_centred", "copying_z", "previous_token"),
                *("duplicate_token", "prefix_matching", "prefix_matching_text", "bos", "entropy", "flag"),
            },
        ),
    ],
)
def test_json_has_schema_meta_and_the_designed_columns(
    model: str, capsys: pytest.CaptureFixture[str], words: list[str], schema: str, columns: set[str]
) -> None:
    document = run_json(capsys, words[0], model, *words[1:])
    assert document["schema"] == schema
    assert columns <= set(document["rows"][0])
    assert set(document["meta"]["columns"]) == set(document["rows"][0])


def test_compose_flags(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_json(capsys, "compose", model, "--via", "K", "--reader", "L1H0", "--processing", "raw", "--top", "1")
    assert [(r["reader"], r["writer"], r["via"]) for r in rows["rows"]] == [("L1H0", "L0H0", "K")]
    assert rows["meta"]["processing"] == "raw"


def test_output_file_holds_the_same_rows(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "compose", model, "-o", str(tmp_path / "c.parquet"))
    assert read_table(tmp_path / "c.parquet").rows() == document["rows"]


def test_report_of_a_model_without_text_says_what_is_missing(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", model, "-o", str(tmp_path / "r"), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "Induction: L1H0 reads through its keys what L0H0 wrote" in out
    assert "Not studied: direct-path" in out
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "http://" not in page.replace("http://www.w3.org", "")
    assert read_table(tmp_path / "r" / "tables" / "heads.parquet").rows()[1]["head"] == "L1H0"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["inspect", "zoo:two-layr"], 2, "two-layer"),
        (["inspect", "no/such/file.safetensors"], 1, "no such model"),
        (["nonsense"], 2, "nonsense"),
        (["compose"], 2, "MODEL"),
        (["compose", "MODEL", "--via", "X"], 2, "X"),
        (["compose", "MODEL", "--reader", "L9H9"], 2, "L9H9"),
        (["compose", "MODEL", "--offset", "-1"], 2, "offset"),
        (["compose", "MODEL", "--dtype", "float7"], 2, "float7"),
        (["compose", "MODEL", "--device", "quantum"], 2, "quantum"),
        (["heads", "MODEL", "--text", "no-such-text"], 1, "no-such-text"),
        (["importance", "MODEL"], 1, "tokenizer"),
        (["train", "three-layer", "-o", "x"], 2, "two-layer"),
        (["train", "two-layer", "-o", "OCCUPIED"], 2, "not empty"),
        (["train", "two-layer", "-o", "OCCUPIED", "--resume"], 2, "no run to go on with"),
        (["train", "two-layer", "-o", "x", "--resume", "--tokens", "9"], 2, "its own text, tokens and seed"),
        (["train", "two-layer", "-o", "x", "--seed", "-1"], 2, "--seed; expected a whole number from 0"),
        (["train", "two-layer", "-o", "x", "--tokens", "0"], 2, "--tokens; expected a whole number from 1 to 2^63 - 1"),
        (["train", "two-layer", "-o", "x", "--device", "meta"], 2, "meta: this device cannot be used"),
        (["train", "two-layer", "-o", "x", "--device", "cuda:77"], 2, "cuda:77: this device cannot be used"),
        (["train", "two-layer", "-o", "x", "--device", "hpu"], 2, "hpu: this device cannot be used"),
        (["train", "two-layer", "-o", "x", "--text", "/dev/zero"], 1, "/dev/zero: not a file of text"),
        (["train", "two-layer", "-o", "x" * 300], 1, "File name too long"),
    ],
)
def test_bad_input_is_one_message_and_the_right_exit_code(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "file").write_text("x")
    names = {"MODEL": model, "OCCUPIED": str(tmp_path / "occupied")}
    assert main([names.get(word, word) for word in words]) == code
    captured = capsys.readouterr()
    assert captured.out == "" and says in captured.err and "Traceback" not in captured.err


def test_output_that_cannot_be_written_leaves_nothing(model: str, tmp_path: Path) -> None:
    assert main(["compose", model, "-o", str(tmp_path / "none" / "c.csv")]) == 1
    assert list(tmp_path.iterdir()) == []


def test_train_prints_where_the_model_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for i in range(24):
        (corpus / f"{i:02}.txt").write_text(
            "".join(f"the {w} of {v}, and a {w};\n" for w, v in zip(WORDS, WORDS[i:], strict=False)) * 9
        )
    run = tmp_path / "run"
    assert main(["train", "zero-layer", "--text", str(corpus), "--tokens", "20000", "-o", str(run), "--quiet"]) == 0
    assert str(run / "model.safetensors") in capsys.readouterr().out
    assert main(["inspect", str(run)]) == 0


ENDS = ("t", "ck", "sh", "m", "ble", "nd", "rk", "lly")
WORDS = [a + b + c for a in "bcdfghjklmnprstvw" for b in ("a", "e", "i", "o", "or", "un") for c in ENDS]


def test_ctrl_c_while_the_text_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "a.txt").write_text("words")
    monkeypatch.setattr("headway.sources.trained.corpus.read_corpus", stop)
    run = tmp_path / "run"
    assert main(["train", "zero-layer", "--text", str(tmp_path / "a.txt"), "-o", str(run)]) == 130
    said = capsys.readouterr().err
    assert said.startswith(f"reading {tmp_path / 'a.txt'} ...") and "nothing to resume" in said and not run.exists()


def test_resuming_by_command_checks_what_it_goes_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(small_recipe("one-layer"), tmp_path / "run", corpus=small_corpus())
    for words, says in (
        (["two-layer"], "of another recipe; expected two-layer, got one-layer"),
        (["one-layer", "--dtype", "float64"], "expected --dtype float32, got --dtype float64"),
    ):
        assert main(["train", *words, "-o", str(tmp_path / "run"), "--resume"]) == 2
        assert says in capsys.readouterr().err
    assert main(["train", "one-layer", "-o", str(tmp_path / "run"), "--resume"]) == 0


def test_a_closed_pipe_is_no_error(model: str) -> None:
    command = f"{sys.executable} -c 'import sys; from headway.apps.cli import main; sys.exit(main())' inspect {model}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr
