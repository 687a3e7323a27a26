"""`headway circuit` as a user runs it: what it prints where, at 80 columns and as JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.apps.cli.app import main
from headway.circuits.entries import circuit_entries
from headway.model.archive import save
from headway.sources.handmade.skip_trigram import skip_trigram_model
from headway.sources.open import load
from headway.tables.files import read_table

ZOO = ("circuit", "zoo:one-layer", "L0H3")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    weights = skip_trigram_model([(3, 7, 5)], d_vocab=9).weights
    return str(save(weights, tmp_path_factory.mktemp("circuit") / "planted.safetensors"))


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    assert document["schema"] == "headway/circuit@1" and "flag" not in document["meta"].get("empty", "")
    return document


def test_entries_are_those_of_python_twenty_each_way(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, *ZOO, "ov")
    assert document["rows"] == circuit_entries(load("zoo:one-layer"), "L0H3", "ov", top=20).rows()
    assert len(document["rows"]) == 40
    assert set(document["rows"][0]) == {"rank", "source_id", "source", "out_id", "out", "value"}
    assert len(run_json(capsys, *ZOO, "qk", "--top", "3")["rows"]) == 6


def test_one_token_by_text_and_by_id(capsys: pytest.CaptureFixture[str]) -> None:
    by_text = run_json(capsys, *ZOO, "qk", "--token", " for", "--top", "2")
    assert [row["as"] for row in by_text["rows"]] == ["destination"] * 4 + ["source"] * 4
    assert by_text["meta"].items() >= {("token", "·for")}
    again = run_json(capsys, *ZOO, "qk", "--token", f"#{by_text['meta']['token_id']}", "--top", "2")
    assert again == by_text


def test_a_model_without_tokenizer_is_asked_by_id(planted: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = run_json(capsys, "circuit", planted, "L0H0", "ov", "--token", "3", "--top", "1")["rows"][0]
    assert (row["token_id"], row["token"], row["as"]) == (5, None, "source")
    assert main(["circuit", planted, "L0H0", "ov", "--token", "word"]) == 2
    assert "no tokenizer; expected an id, 0 .. 8" in capsys.readouterr().err


def test_directions(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, *ZOO, "qk", "--svd", "--top", "2", "--directions", "3")
    rows = document["rows"]
    assert {row["block"] for row in rows} == {1, 2, 3} and len(rows) == 3 * 2 * 4
    assert {row["side"] for row in rows} == {"destination", "source"}
    assert document["meta"]["blocks_found"] == 32


def test_positions(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "circuit", "zoo:one-layer", "L0H3", "qk", "--positions")
    assert len(document["rows"]) == 256 and 0 <= document["rows"][0]["share"] <= 1
    assert len(run_json(capsys, "circuit", "zoo:one-layer", "L0H3", "qk", "--positions", "--top", "4")["rows"]) == 4


@pytest.mark.parametrize(
    "words",
    [["ov"], ["qk"], ["ov", "--token", " for"], ["qk", "--token", " for"], ["ov", "--svd"], ["qk", "--positions"]],
)
def test_eighty_columns_hold_every_reading(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*ZOO, *words]) == 0
    captured = capsys.readouterr()
    assert max(map(len, captured.out.splitlines())) <= 80 and "processing: raw" in captured.out
    assert captured.err != "" and all("Traceback" not in line for line in captured.err.splitlines())


def test_what_a_reader_must_know_goes_to_stderr(planted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ZOO, "qk"]) == 0
    said = capsys.readouterr().err
    assert "not comparable" in said and "Positions give terms of their own" in said and "--top N shows more" in said
    assert main([*ZOO, "ov", "--svd"]) == 0
    assert "The 4 strongest of 32 directions: --directions N shows more" in capsys.readouterr().err
    assert main(["circuit", planted, "L0H0", "qk", "--positions"]) == 0
    assert "no positions: scores depend on contents alone" in capsys.readouterr().err


def test_the_file_holds_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, *ZOO, "ov", "--top", "4", "-o", str(tmp_path / "c.parquet"))
    assert read_table(tmp_path / "c.parquet").rows() == document["rows"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["L0H9", "ov"], "no head L0H9 in this model; expected L0H0 .. L0H7"),
        (["3", "ov"], "not a head"),
        (["L0H3", "vo"], '"ov", "qk"'),
        (["L0H3"], "WHICH"),
        (["L0H3", "ov", "--token", " fors"], "' fors' is not one token"),
        (["L0H3", "ov", "--token", "#1024"], "expected 0 .. d_vocab-1=1023"),
        (["L0H3", "ov", "--token", ""], "'' is not one token"),
        (["L0H3", "ov", "--token", " for", "--svd"], "--token and --svd are readings of their own"),
        (["L0H3", "qk", "--positions", "--svd"], "--svd and --positions are readings of their own"),
        (["L0H3", "ov", "--positions"], "positions enter scores, not what is moved; expected qk, got ov"),
        (["L0H3", "ov", "--directions", "2"], "expected --svd with it"),
        (["L0H3", "qk", "--offset", "-1"], "offset"),
        (["L0H3", "ov", "--offset", "2"], "expected qk without --positions, got ov"),
        (["L0H3", "qk", "--positions", "--offset", "2"], "got --positions, which has all offsets"),
        (["L0H3", "qk", "--top", "-1"], "top"),
        (["L0H3", "qk", "--top", "x"], "top"),
    ],
)
def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert main(["circuit", "zoo:one-layer", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and says in captured.err and len(captured.err.splitlines()) == 1
