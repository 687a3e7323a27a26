"""What a check says, for people and for programs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rich.cells import cell_len

from headway.exercises.verdict import Counterexample, Note, Picture, Sharpness, Verdict, failed, passed
from headway.exercises.workbook.wording import verdict_row, verdict_text

FULL = failed(
    "2c",
    "OFFSET",
    {"offset": 0, "wanted_offset": 1, "repair": "TURN_BACK", "margin": float("nan"), "size": np.float64(2.0)},
    notes=(Note("EXCLUDED", {"queries": "position 0"}),),
    counterexample=Counterexample((7, 1), 1, (0,), (0.0, 1.0), 3.0),
    sharpness=Sharpness(float("inf"), 0.1, 0.5),
    picture=Picture("matrix", np.eye(2), np.ones((2, 2)), np.full((2, 2), np.nan), (), ()),
)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_all_parts_are_said_within_the_width(lang: str) -> None:
    text = verdict_text(FULL, lang=lang, width=72, printed="one\ntwo")
    assert max(map(cell_len, text.splitlines())) <= 72
    order = ["2c ", "one", "1.00", "inf", {"en": "position 0", "zh": "位置 0"}[lang]]
    places = [text.index(part) for part in order[:2]] + [text.rindex(part) for part in order[2:]]
    assert places[0] == 0 and places[1] < places[2]


def test_a_pass_says_why_it_works() -> None:
    text = verdict_text(passed("2c", sharpness=Sharpness(20.0, 0.2)), width=200)
    assert text.startswith("2c passed: Right. W_Q = blockdiag") and "best margin" not in text


def test_nothing_a_terminal_would_obey_gets_through() -> None:
    verdict = failed("2c", "ERROR", {"line": 1, "file": "2c.py", "error": "E: \x1b[2J", "code": "x\u202e"})
    text = verdict_text(verdict, printed="\x1b]0;title\x07" + "y" * 500 + "\n" * 50)
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    assert max(map(len, text.splitlines())) <= 80 and len(text.splitlines()) < 25


def test_a_row_is_strict_json() -> None:
    row = json.loads(json.dumps(verdict_row(FULL, printed="hi"), allow_nan=False))
    assert (row["id"], row["passed"], row["reason"]) == ("2c", False, "OFFSET")
    assert row["facts"]["margin"] is None and row["facts"]["size"] == 2.0 and row["sharpness"]["T99"] is None
    assert row["picture"]["difference"] == [[None, None], [None, None]] and row["counterexample"]["tokens"] == [7, 1]
    assert json.dumps(verdict_row(Verdict("w1", True, "PASSED")), allow_nan=False)
