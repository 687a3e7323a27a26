"""What a table accepts, what it refuses, and the form its rows leave it in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from headway.errors import BadInput, NotFinite, UnknownName, UsageError
from headway.ids import HeadId, PathId
from headway.provenance import Provenance
from headway.tables import Column, Table
from headway.tables.table import _check_described
from support.unchecked import as_users_run_it

COLUMNS = {
    "head": Column("the head"),
    "score": Column("share of attention", "probability", 0.0, 1.0),
    "n": Column("how many", "tokens", low=0),
    "flag": Column("why a value is missing"),
}
PROVENANCE = Provenance(weights="ab12", source="zoo:x", steps=("folded norms",), options={"draws": 200}, seed=3)


def table() -> Table:
    rows = [
        {"head": HeadId(0, 1), "score": 0.25, "n": 3},
        {"head": HeadId(1, 0), "score": 1.0, "n": 1},
        {"head": HeadId(1, 2), "score": None, "n": 2, "flag": "zero head"},
        {"head": HeadId(1, 3), "score": 0.25, "n": 1},
    ]
    return Table.from_rows(rows, COLUMNS, PROVENANCE, {"remainder": 1e-7})


def test_rows_are_plain_values_with_nulls() -> None:
    assert table().rows()[2] == {"head": "L1H2", "score": None, "n": 2, "flag": "zero head"}
    assert len(table()) == 4
    assert table().frame.schema == {"head": pl.String, "score": pl.Float64, "n": pl.Int64, "flag": pl.String}


def test_json_has_schema_meta_and_rows() -> None:
    document = json.loads(table().to_json("heads"))
    assert document["schema"] == "headway/heads@1"
    assert document["rows"] == table().rows()
    meta = document["meta"]
    assert meta["processing"] == "folded norms" and meta["seed"] == 3 and meta["remainder"] == 1e-7
    wanted = {"unit": "probability", "meaning": "share of attention", "low": 0.0, "high": 1.0, "type": "Float64"}
    assert meta["columns"]["score"] == wanted


def test_json_is_ascii_and_of_an_empty_table_valid() -> None:
    strange = Table.from_rows([{"token": "</script>\x1b]0;\u202e·"}], {"token": Column("a token")})
    text = strange.to_json("tokens")
    assert text.isascii() and "\x1b" not in text
    assert json.loads(text)["rows"] == strange.rows()
    empty = json.loads(Table.from_rows([], COLUMNS).to_json("nothing"))
    assert empty["rows"] == [] and list(empty["meta"]["columns"]) == list(COLUMNS)


@pytest.mark.parametrize("name", ["", "Heads", "a b", "a/b", "-a"])
def test_schema_names(name: str) -> None:
    with pytest.raises(UsageError, match="schema name"):
        table().to_json(name)


def test_values_of_arrays_and_ids_become_plain() -> None:
    columns = {"path": Column("path"), "x": Column("x", "nats"), "on": Column("on")}
    row = {"path": PathId.parse("L0H2-L1H3"), "x": np.float32(0.5), "on": np.bool_(True)}
    assert Table.from_rows([row, {"path": "direct", "x": np.array(2), "on": False}], columns).rows() == [
        {"path": "L0H2-L1H3", "x": 0.5, "on": True},
        {"path": "direct", "x": 2.0, "on": False},
    ]


@pytest.mark.parametrize(
    ("value", "word"), [(float("nan"), "nan"), (float("inf"), "inf"), (np.float64("-inf"), "-inf")]
)
def test_a_value_that_is_not_finite_is_null_and_flagged(value: float, word: str) -> None:
    made = Table.from_rows([{"head": "L0H0", "score": value, "n": 1}, {"head": "L0H1", "score": 0.5, "n": 1}], COLUMNS)
    assert made.rows()[0]["score"] is None
    assert made.rows()[0]["flag"] == f"score is not finite ({word})"
    assert made.rows()[1]["flag"] is None


def test_a_row_may_bring_its_own_flag() -> None:
    made = Table.from_rows([{"head": "L0H0", "score": float("nan"), "n": 1, "flag": "zero head"}], COLUMNS)
    assert made.rows()[0] == {"head": "L0H0", "score": None, "n": 1, "flag": "zero head"}


def test_a_flag_that_explains_no_infinity_is_kept_and_added_to() -> None:
    row = {"head": "L0H0", "score": float("inf"), "n": 1, "flag": "zero head"}
    assert Table.from_rows([row], COLUMNS).rows()[0]["flag"] == "zero head; score is not finite (inf)"


def test_what_is_no_row_column_or_number_of_rows_is_refused() -> None:
    calls: list[tuple[Any, type[Exception], str]] = [
        (lambda: Table.from_rows([3], COLUMNS), BadInput, "row 0: a row is a dict"),  # type: ignore[list-item]
        (lambda: Table.from_rows([], {"a": "text"}), BadInput, "a Column each.*'a'"),  # type: ignore[dict-item]
        (lambda: Table.from_rows([{3: 1}], {3: Column("a")}), BadInput, "a Column each.*3"),  # type: ignore[dict-item]
        (lambda: table().top("x"), UsageError, "whole and not negative.*'x'"),  # type: ignore[arg-type]
        (lambda: table().top(1.5), UsageError, "whole and not negative.*1.5"),  # type: ignore[arg-type]
        (lambda: table().sort(3), UnknownName, "no column 3"),  # type: ignore[arg-type]
    ]
    with as_users_run_it():
        for call, error, says in calls:
            with pytest.raises(error, match=says):
                call()


def test_a_flag_column_is_added_only_when_needed() -> None:
    columns = {"x": Column("x", "nats")}
    assert list(Table.from_rows([{"x": 1.0}], columns).columns) == ["x"]
    assert list(Table.from_rows([{"x": float("inf")}], columns).columns) == ["x", "flag"]


def test_columns_and_descriptions_must_match() -> None:
    frame = pl.DataFrame({"a": [1], "b": [2]})
    with pytest.raises(BadInput, match="not described: b"):
        Table(frame, {"a": Column("a")})
    with pytest.raises(BadInput, match="absent: c"):
        Table(frame, {"a": Column("a"), "b": Column("b"), "c": Column("c")})
    with pytest.raises(BadInput, match="another order"):
        Table(frame, {"b": Column("b"), "a": Column("a")})
    with pytest.raises(BadInput, match=r"no column describes 'z'.*"):
        Table.from_rows([{"a": 1, "z": 2}], {"a": Column("a")})


@pytest.mark.parametrize(
    ("value", "column"),
    [
        (1.1, Column("p", "p", 0, 1)),
        (-0.01, Column("p", "p", 0, 1)),
        (-1, Column("n", "n", low=0)),
        (9, Column("n", "", high=3)),
    ],
)
def test_values_outside_their_range_are_refused(value: float, column: Column) -> None:
    with pytest.raises(BadInput, match="column x: a value outside its range"):
        Table.from_rows([{"x": value}], {"x": column})


def test_rounding_beyond_a_range_and_nulls_are_allowed() -> None:
    made = Table.from_rows([{"x": 1 + 5e-7}, {"x": None}, {"x": -5e-7}], {"x": Column("p", "probability", 0, 1)})
    assert made.rows()[0]["x"] == 1 + 5e-7


def test_frames_with_nan_or_odd_types_are_refused() -> None:
    with pytest.raises(NotFinite, match="column x"):
        Table(pl.DataFrame({"x": [1.0, float("nan"), None]}), {"x": Column("x")})
    with pytest.raises(BadInput, match="not a type a table holds"):
        Table(pl.DataFrame({"x": [[1], [2]]}), {"x": Column("x")})
    with pytest.raises(BadInput, match="empty range"):
        Table(pl.DataFrame({"x": [1]}), {"x": Column("x", low=2, high=1)})
    with pytest.raises(BadInput, match="polars DataFrame"):
        _check_described([{"x": 1}], {"x": Column("x")})


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"x", np.zeros(2), 1j])
def test_rows_with_other_values_are_refused(value: object) -> None:
    with pytest.raises(BadInput, match="row 0, x"):
        Table.from_rows([{"x": value}], {"x": Column("x")})


def test_a_column_is_of_one_kind() -> None:
    with pytest.raises(BadInput, match=r"column x: values of several kinds.*int, str"):
        Table.from_rows([{"x": 1}, {"x": "a"}], {"x": Column("x")})


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"seed": 3}, "names of the provenance"),
        ({"columns": 3}, "names of the provenance"),
        ({"x": float("nan")}, "plain JSON"),
        ({"x": object()}, "plain JSON"),
    ],
)
def test_meta_is_plain_json_beside_the_provenance(meta: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        table().with_meta(**meta)


def test_sort_is_stable_with_missing_values_last() -> None:
    assert [row["head"] for row in table().sort("score", descending=True).rows()] == ["L1H0", "L0H1", "L1H3", "L1H2"]
    assert [row["head"] for row in table().sort(["n", "score"]).rows()] == ["L1H3", "L1H0", "L1H2", "L0H1"]
    with pytest.raises(UnknownName, match="Did you mean score"):
        table().sort("scor")


def test_top_counts_what_it_leaves_out() -> None:
    made = table()
    assert made.top(None) is made and made.top(9) is made
    assert len(made.top(3)) == 3
    assert made.top(3).top(1).meta["rows_left_out"] == 3
    with pytest.raises(UsageError, match="not negative"):
        made.top(-1)


def test_equal_tables_are_equal_and_others_not() -> None:
    assert table() == table()
    assert table() != table().top(2)
    assert table() != table().with_meta(more=1)
    assert table() != "a table"


def test_later_changes_to_what_was_given_do_not_reach_the_table() -> None:
    meta: dict[str, Any] = {"a": 1}
    made = Table.from_rows([{"x": 1}], {"x": Column("x")}, meta=meta)
    meta["a"] = 2
    assert made.meta == {"a": 1}


def test_short_repr_and_escaped_html() -> None:
    assert repr(table()) == "Table(4 rows: head, score, n, flag; processing: folded norms)"
    long = Table.from_rows([{"t": "</script><b>"}] * 25, {"t": Column('say "t"', "<u>")})
    page = long._repr_html_()
    assert "<b>" not in page and "<u>" not in page and "&lt;/script&gt;&lt;b&gt;" in page
    assert page.count("<tr>") == 21 and "5 of them not shown" in page
