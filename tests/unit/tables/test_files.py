"""Exact round trips, guarded CSV, and files that are not ours."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from headway.errors import FileProblem, UsageError, WriteProblem
from headway.provenance import Provenance
from headway.tables import Column, Table, read_table, write_table
from headway.tables.files import check_table_path


def table() -> Table:
    frame = pl.DataFrame(
        {
            "token": ["·the", "=1+1", "</script>", None],
            "score": pl.Series([0.1, -3.0, 1e-300, None], dtype=pl.Float64),
            "short": pl.Series([0.1, 2.0, 3.0, None], dtype=pl.Float32),
            "id": pl.Series([1, 2, 3, 2**63], dtype=pl.UInt64),
            "on": [True, False, None, True],
            "empty": pl.Series([None] * 4, dtype=pl.String),
        }
    )
    columns = {
        name: Column(f"meaning of {name}", "nats" if name == "score" else "", high=None) for name in frame.columns
    }
    columns["short"] = Column("short floats", "probability", -1.0, 4.0)
    provenance = Provenance("ab", "here", ("folded norms",), {"draws": 20, "pair": (1, 2)}, 7, "0.1.0")
    return Table(frame, columns, provenance, {"remainder": 0.1, "nested": {"é": [1, None]}})


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
@pytest.mark.parametrize("rows", [4, 0])
def test_round_trip_is_exact(tmp_path: Path, suffix: str, rows: int) -> None:
    made = table().top(rows)
    path = write_table(made, tmp_path / f"Some table{suffix}")
    again = read_table(path)
    assert again == made
    assert again.frame.schema == made.frame.schema
    assert again.columns == made.columns
    assert again.provenance.to_dict() == json.loads(json.dumps(made.provenance.to_dict()))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".parquet", ".json", ".csv"])
def test_the_same_table_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first = write_table(table(), tmp_path / f"a{suffix}", name="t").read_bytes()
    assert write_table(table(), tmp_path / f"b{suffix}", name="t").read_bytes() == first


def test_parquet_opens_without_headway(tmp_path: Path) -> None:
    path = write_table(table(), tmp_path / "heads.parquet")
    assert pl.read_parquet(path).equals(table().frame)
    assert json.loads(pl.read_parquet_metadata(path)["headway"])["schema"] == "headway/heads@1"


def test_the_schema_name_comes_from_the_file_or_the_caller(tmp_path: Path) -> None:
    assert json.loads(write_table(table(), tmp_path / "L1H3 OV.json").read_text())["schema"] == "headway/l1h3-ov@1"
    assert json.loads(write_table(table(), tmp_path / "x.json", name="ov").read_text())["schema"] == "headway/ov@1"


def test_csv_guards_formulas_and_keeps_numbers(tmp_path: Path) -> None:
    columns = {"token": Column("a token"), "x": Column("x", "nats")}
    strings = ["=1+1", "+x", "-x", "@x", "\tx", "a=b", 'say "hi"', None]
    made = Table.from_rows([{"token": text, "x": -1.5} for text in strings], columns)
    with write_table(made, tmp_path / "a.csv").open(newline="") as handle:
        rows = list(csv.reader(handle))
    assert rows[0] == ["token", "x"]
    assert [row[0] for row in rows[1:]] == ["'=1+1", "'+x", "'-x", "'@x", "'\tx", "a=b", 'say "hi"', ""]
    assert {row[1] for row in rows[1:]} == {"-1.5"}


def test_csv_of_numbers_alone(tmp_path: Path) -> None:
    made = Table.from_rows([{"x": -1}], {"x": Column("x")})
    assert write_table(made, tmp_path / "a.csv").read_text() == "x\n-1\n"


def test_unknown_formats_are_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected \.parquet or \.json or \.csv, got \.xlsx"):
        write_table(table(), tmp_path / "a.xlsx")
    with pytest.raises(UsageError, match="got no suffix"):
        write_table(table(), tmp_path / "a")
    with pytest.raises(UsageError, match=r"\.csv"):
        read_table(tmp_path / "a.csv")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WriteProblem, match="Make the folder first"):
        write_table(table(), tmp_path / "no" / "a.json")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="No such file"):
        read_table(tmp_path / "none.parquet")


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_damaged_files(tmp_path: Path, suffix: str) -> None:
    path = write_table(table(), tmp_path / f"a{suffix}")
    whole = path.read_bytes()
    for data in (b"", whole[: len(whole) // 2], whole[:-20], whole[20:], b"\xff" * 300):
        path.write_bytes(data)
        with pytest.raises(FileProblem, match=f"a{suffix}: not a table of Headway, or damaged"):
            read_table(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(schema="headway/t@2"),
        lambda d: d.pop("meta"),
        lambda d: d["meta"]["columns"]["score"].update(type="List(Int64)"),
        lambda d: d["meta"]["columns"]["score"].update(high=-100.0),
        lambda d: d["rows"][0].update(score=float("nan")),
        lambda d: d["rows"][0].update(score="text"),
        lambda d: d.update(rows=3),
    ],
)
def test_documents_that_are_not_ours(tmp_path: Path, change: object) -> None:
    path = write_table(table(), tmp_path / "a.json")
    document = json.loads(path.read_text())
    change(document)  # type: ignore[operator]
    path.write_text(json.dumps(document))
    with pytest.raises(FileProblem, match="not a table of Headway"):
        read_table(path)


def test_another_programs_parquet(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(FileProblem, match="not a table of Headway"):
        read_table(tmp_path / "a.parquet")


def test_a_panic_of_the_parquet_reader_is_a_file_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: object) -> None:
        raise pl.exceptions.PanicException("assertion failed")

    path = write_table(table(), tmp_path / "a.parquet")
    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(FileProblem, match="assertion failed"):
        read_table(path)


def test_a_path_is_checked_before_the_work_as_it_is_when_writing(tmp_path: Path) -> None:
    check_table_path(tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []
    for name, error in (("a.txt", UsageError), ("a", UsageError), ("nowhere/a.csv", WriteProblem)):
        with pytest.raises(error) as early:
            check_table_path(tmp_path / name)
        with pytest.raises(error) as late:
            write_table(Table.from_rows([], {"head": Column("the head")}), tmp_path / name)
        assert str(early.value) == str(late.value)
