"""`Table`: rows, what each column means, and where the numbers come from."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from headway.errors import BadInput, NotFinite, UnknownName, UsageError, counted, did_you_mean
from headway.ids import HeadId, PathId
from headway.provenance import Provenance
from headway.tables.cells import cell_texts

SLACK = 1e-6  # rounding allowed beyond a stated range
FLAG = "flag"
RESERVED = (*Provenance().to_dict(), "columns")
TYPES: dict[str, pl.DataType] = {
    str(kind): kind
    for kind in (
        *(pl.Boolean(), pl.String(), pl.Float32(), pl.Float64()),
        *(pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64()),
    )
}
_SHOWN_IN_HTML = 20


@dataclass(frozen=True, slots=True)
class Column:
    """What a column means.

    meaning: one phrase, with the formula's name; unit: `nats`, `logits`, `probability`, `dimensionless`, …, and `""`
    for names and text; low, high: the range the quantity cannot leave, None where there is no bound.
    """

    meaning: str
    unit: str = ""
    low: int | float | None = None
    high: int | float | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {"unit": self.unit, "meaning": self.meaning, "low": self.low, "high": self.high}


_FLAG_COLUMN = Column("why a value of this row is missing")


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows with described columns.

    Checked when built: every column is described and every description has its column; values are numbers, truth
    values or text; floats are finite (a missing value is null); numbers lie in the stated range, give or take 1e-6;
    `meta` is plain JSON. Raises BadInput or NotFinite. `Table.from_rows` builds one from dicts.

    >>> columns = {"head": Column("the head"), "z": Column("distance from the null", "dimensionless")}
    >>> table = Table.from_rows([{"head": "L0H1", "z": 3.5}], columns)
    >>> len(table), table.rows()
    (1, [{'head': 'L0H1', 'z': 3.5}])
    """

    frame: pl.DataFrame
    columns: Mapping[str, Column]
    provenance: Provenance = field(default_factory=Provenance)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(self.columns))
        object.__setattr__(self, "meta", dict(self.meta))
        _check_described(self.frame, self.columns)
        for name, column in self.columns.items():
            _check_values(self.frame[name], column)
        _check_meta(self.meta, self.provenance)

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any]],
        columns: Mapping[str, Column],
        provenance: Provenance | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Table:
        """Build a table from dicts; a key a row lacks is null there, a key no column describes is refused.

        Heads and paths become their names, 0-d arrays their number. A float that is not finite becomes null and the
        row's `flag` says so, behind its own words if it has any (which explain a NaN already); without a `flag` column
        one is added at the end.

        >>> bad = Table.from_rows([{"score": float("nan")}], {"score": Column("a ratio", "dimensionless")})
        >>> bad.rows()
        [{'score': None, 'flag': 'score is not finite (nan)'}]
        """
        columns = dict(columns)
        odd = [name for name, column in columns.items() if not isinstance(name, str) or not isinstance(column, Column)]
        if odd:
            raise BadInput("columns are described by a Column each, by name", where="table", got=repr(odd[0]))
        plain = [_plain_row(row, columns, number) for number, row in enumerate(rows)]
        if FLAG not in columns and any(FLAG in row for row in plain):
            columns[FLAG] = _FLAG_COLUMN
        series = [_series(name, [row.get(name) for row in plain], column) for name, column in columns.items()]
        return cls(pl.DataFrame(series), columns, provenance or Provenance(), meta or {})

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts of plain Python values, None where a value is missing."""
        return self.frame.to_dicts()

    def sort(self, by: str | Sequence[str], *, descending: bool = False) -> Table:
        """Rows in the order of a column or several; ties keep their order, missing values come last."""
        names = list(by) if isinstance(by, Sequence) and not isinstance(by, str) else [by]
        for name in names:
            if name not in self.columns:
                raise UnknownName(f"no column {name!r} to sort by", next_step=did_you_mean(str(name), self.columns))
        return replace(self, frame=self.frame.sort(names, descending=descending, nulls_last=True, maintain_order=True))

    def top(self, n: int | None) -> Table:
        """The first `n` rows (None: all); `meta["rows_left_out"]` then counts the others."""
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 0):
            raise UsageError("a number of rows is whole and not negative", expected="top >= 0", got=repr(n))
        if n is None or n >= len(self):
            return self
        left_out = self.meta.get("rows_left_out", 0) + len(self) - n
        return replace(self, frame=self.frame.head(n), meta={**self.meta, "rows_left_out": left_out})

    def with_meta(self, **more: Any) -> Table:
        """The same table with entries added to `meta`."""
        return replace(self, meta={**self.meta, **more})

    def to_dict(self, name: str) -> dict[str, Any]:
        """The document `to_json` writes: schema `headway/NAME@1`, meta, rows."""
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            raise UsageError("a schema name is lower-case words joined by -", got=repr(name))
        described = {
            key: {**column.to_dict(), "type": str(self.frame.schema[key])} for key, column in self.columns.items()
        }
        meta = {**self.provenance.to_dict(), **self.meta, "columns": described}
        return {"schema": f"headway/{name}@1", "meta": meta, "rows": self.rows()}

    def to_json(self, name: str) -> str:
        """Strict JSON in ASCII (no NaN, nothing a terminal would act on), one line a row."""
        document = self.to_dict(name)
        head = {"schema": document["schema"], "meta": document["meta"]}
        rows = ",\n".join(_dumps(row) for row in document["rows"])
        return f'{_dumps(head)[:-1]}, "rows": [\n{rows}\n]}}\n'

    def __len__(self) -> int:
        return self.frame.height

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        same_frame = self.frame.schema == other.frame.schema and self.frame.equals(other.frame)
        return same_frame and self.to_dict("t")["meta"] == json.loads(_dumps(other.to_dict("t")["meta"]))

    __hash__ = None  # type: ignore[assignment]  # frames are not hashable

    def __repr__(self) -> str:
        return (
            f"Table({counted(len(self), 'row')}: {', '.join(self.columns)}; processing: {self.provenance.processing})"
        )

    def _repr_html_(self) -> str:
        shown = self.frame.head(_SHOWN_IN_HTML)
        cells = [cell_texts(shown[name].to_list(), unit=column.unit) for name, column in self.columns.items()]
        heads = "".join(
            f'<th scope="col" title="{html.escape(c.meaning)}">{html.escape(name)}<br>'
            f"<small>{html.escape(c.unit)}</small></th>"
            for name, c in self.columns.items()
        )
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>"
            for row in zip(*cells, strict=True)
        )
        left_out = len(self) - shown.height
        more = f", {left_out} of them not shown" if left_out else ""
        caption = f"{counted(len(self), 'row')}{more}; processing: {html.escape(self.provenance.processing)}"
        return f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _dumps(value: object) -> str:
    return json.dumps(value, allow_nan=False)


def _check_described(frame: object, columns: Mapping[str, Column]) -> None:
    if not isinstance(frame, pl.DataFrame):
        raise BadInput("a table holds a polars DataFrame", got=type(frame).__name__)
    undescribed = [name for name in frame.columns if name not in columns]
    absent = [name for name in columns if name not in frame.columns]
    if undescribed or absent:
        problem = "not described: " + ", ".join(undescribed) if undescribed else "absent: " + ", ".join(absent)
        raise BadInput(f"columns {problem}", where="table", expected="a Column for each column of the frame")
    if list(columns) != frame.columns:
        raise BadInput("columns in another order than their descriptions", expected=list(columns), got=frame.columns)


def _check_values(series: pl.Series, column: Column) -> None:
    where = f"column {series.name}"
    if str(series.dtype) not in TYPES:
        raise BadInput(
            "not a type a table holds", where=where, expected="numbers, truth values or text", got=series.dtype
        )
    if column.low is not None and column.high is not None and column.low > column.high:
        raise BadInput("an empty range", where=where, expected="low <= high", got=(column.low, column.high))
    if not series.dtype.is_numeric():
        return
    if series.dtype.is_float() and not series.drop_nulls().is_finite().all():
        raise NotFinite("NaN or infinity", where=where, next_step="Make it null and say why in a `flag` column")
    low, high = series.min(), series.max()
    if (column.low is not None and low is not None and low < column.low - SLACK) or (  # type: ignore[operator]
        column.high is not None and high is not None and high > column.high + SLACK  # type: ignore[operator]
    ):
        limits = (
            f"{column.low if column.low is not None else '-inf'} to {column.high if column.high is not None else 'inf'}"
        )
        raise BadInput("a value outside its range", where=where, expected=limits, got=f"{low} to {high}")


def _check_meta(meta: Mapping[str, Any], provenance: Provenance) -> None:
    taken = [key for key in meta if key in RESERVED]
    if taken:
        raise BadInput("meta may not use the names of the provenance", where="table", got=", ".join(taken))
    try:
        same = json.loads(_dumps([meta, provenance.to_dict()]))
    except (TypeError, ValueError) as error:
        raise BadInput("meta and provenance must be plain JSON", where="table", got=str(error)) from error
    if list(same[0]) != list(meta):
        raise BadInput("the keys of meta are strings", where="table", got=list(meta))


def _plain_row(row: Mapping[str, Any], columns: Mapping[str, Column], number: int) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise BadInput("a row is a dict", where=f"row {number}", expected=list(columns), got=repr(row)[:60])
    unknown = [key for key in row if key not in columns and key != FLAG]
    if unknown:
        raise BadInput(
            "no column describes " + ", ".join(map(repr, unknown)), where=f"row {number}", expected=list(columns)
        )
    plain = {key: _plain(value, f"row {number}, {key}") for key, value in row.items()}
    broken = {key: value for key, value in plain.items() if isinstance(value, float) and not math.isfinite(value)}
    said = str(plain[FLAG]) if plain.get(FLAG) else ""
    unsaid = [f"{key} is not finite ({value})" for key, value in broken.items() if not (said and math.isnan(value))]
    if unsaid:
        plain[FLAG] = "; ".join(([said] if said else []) + unsaid)
    return plain | dict.fromkeys(broken, None)


def _plain(value: Any, where: str) -> bool | int | float | str | None:
    """A plain Python value; heads and paths by name, numbers of numpy and torch through `.item()`."""
    if hasattr(value, "item") and getattr(value, "size", None) is not None and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, HeadId | PathId):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise BadInput(
        "not a value a table holds", where=where, expected="a number, truth value, text or None", got=repr(value)
    )


def _series(name: str, values: list[Any], column: Column) -> pl.Series:
    """One column; of nothing but nulls, text when it has no unit and floats otherwise."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pl.Series(name, values, dtype=pl.Float64 if column.unit else pl.String)
    if kinds == {int, float}:
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise BadInput("values of several kinds", where=f"column {name}", expected="one kind", got=names)
    return pl.Series(name, values)
