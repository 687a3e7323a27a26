"""Terminal tables: aligned, whole numbers, honest about what is left out, and inert."""

from __future__ import annotations

import re

import pytest

from headway.errors import UsageError
from headway.provenance import Provenance
from headway.tables import Column, Table
from headway.views import table_text
from headway.views.text import fitting

COLUMNS = {
    "head": Column("the head"),
    "score": Column("score", "nats"),
    "n": Column("n", "tokens"),
    "flag": Column("why"),
}


def table(rows: int = 3) -> Table:
    made = [
        {"head": f"L0H{k}", "score": 0.5 / (k + 1), "n": 30_000 * k, "flag": "zero head" if k == 1 else None}
        for k in range(rows)
    ]
    return Table.from_rows(made, COLUMNS, Provenance(steps=("folded norms",)))


def test_layout() -> None:
    assert table_text(table(), width=60).split("\n") == [
        "head   score       n  flag",
        "        nats  tokens",
        "L0H0  0.5000       0  —",
        "L0H1  0.2500  30,000  zero head",
        "L0H2  0.1667  60,000  —",
        "3 rows; processing: folded norms",
    ]


def test_left_out_rows_are_counted() -> None:
    assert table_text(table(30), limit=4).endswith("30 rows, 26 of them not shown; processing: folded norms")
    assert table_text(table(30).top(10), limit=4).endswith("30 rows, 26 of them not shown; processing: folded norms")
    assert len(table_text(table(30), limit=None).split("\n")) == 33
    with pytest.raises(UsageError, match="not negative"):
        table_text(table(), limit=-1)


def test_an_empty_table() -> None:
    assert table_text(table(0), width=60).split("\n") == [
        "head  score       n  flag",
        "       nats  tokens",
        "0 rows; processing: folded norms",
    ]


def test_numbers_are_never_cut_and_text_folds() -> None:
    columns = {"text": Column("text"), **{f"x{k}": Column("x", "nats") for k in range(6)}}
    made = Table.from_rows([{"text": "word " * 20, **{f"x{k}": 1234.5678 for k in range(6)}}], columns)
    text = table_text(made, width=30)
    assert text.count("1234.6") == 6 and "…" not in text


def test_hostile_cells_are_shown_and_not_obeyed() -> None:
    hostile = "\x1b[31mred\x1b]0;title\x07 \u202e [bold]x[/bold] \n next"
    made = Table.from_rows([{"head": hostile, "score": 1.0, "n": 1}], COLUMNS, Provenance(steps=("\x1b[2J",)))
    text = table_text(made, width=200)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert "\\x1b[31mred" in text and "[bold]x[/bold]" in text
    assert len(text.split("\n")) == 4


def test_colour_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in table_text(table())
    assert "\x1b[1m" in table_text(table(), color=True)


def test_width_comes_from_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Table.from_rows([{"text": "word " * 12}], {"text": Column("text")})
    monkeypatch.setenv("COLUMNS", "30")
    narrow = table_text(made)
    monkeypatch.setenv("COLUMNS", "90")
    assert max(map(len, narrow.split("\n")[:-1])) <= 30 < len(table_text(made).split("\n")[1])


def wide(flag: str | None = None) -> Table:
    columns = {name: Column(name, "nats") for name in ("one_long_name", "two_long_name", "three")}
    made = [{"head": "L0H1", **dict.fromkeys(columns, 1.5), "note": "many words " * 9, "flag": flag}]
    return Table.from_rows(made, {"head": Column("the head"), **columns, "note": Column("n"), "flag": Column("why")})


def test_headings_break_only_where_there_is_no_room() -> None:
    made = Table.from_rows([{"a_long_name": 1.5}], {"a_long_name": Column("a", "nats")})
    assert table_text(made, width=11).split("\n")[:3] == ["a_long_name", "       nats", "      1.500"]
    assert table_text(made, width=10).split("\n")[:5] == ["   a_", "long_", " name", " nats", "1.500"]
    lone = Table.from_rows([{"__": 1.5}], {"__": Column("a")})
    assert table_text(lone, width=1).split("\n")[0] == "   __"


def test_fitting_keeps_what_is_wanted_most_in_the_order_of_the_table() -> None:
    assert fitting(wide(), 200, ["three"]).columns == wide().columns
    assert list(fitting(wide(), 30, ["three", "one_long_name", "head"]).columns) == [
        *("head", "one_long_name", "two_long_name", "three")
    ]
    assert list(fitting(wide(), 12, ["three", "one_long_name", "head"]).columns) == ["one_long_name", "three"]
    assert list(fitting(wide(), 1, ["three", "head"]).columns) == ["three"]
    assert list(fitting(wide(), 12, []).columns) == ["head", "one_long_name"]


def test_a_flag_that_says_something_comes_before_other_columns() -> None:
    assert list(fitting(wide("zero head"), 16, ["head", "three"]).columns) == ["head", "flag"]
    for width in (16, 24, 40, 60, 90, 130):
        shown = fitting(wide("zero head"), width, ["head", "three"])
        assert max(map(len, table_text(shown, width=width).split("\n")[:-1])) <= width
        assert shown.frame.equals(wide("zero head").frame.select(list(shown.columns)))
