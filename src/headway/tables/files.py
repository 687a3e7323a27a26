"""Tables in files: Parquet and JSON keep everything, CSV the rows."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import polars as pl

from headway.errors import BadInput, FileProblem, UsageError
from headway.provenance import Provenance
from headway.tables.atomic import check_place, write_bytes_atomic
from headway.tables.table import RESERVED, TYPES, Column, Table

_PARQUET_KEY = "headway"
# A spreadsheet would run text that begins like this as a formula.
_FORMULA = r"^[=+\-@\t\r]"
# What reading a damaged file can raise; polars panics on some (a BaseException).
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def write_table(table: Table, path: str | Path, *, name: str | None = None) -> Path:
    """Write a table, whole or not at all, in the format its suffix names: .parquet, .json or .csv.

    Parquet and JSON carry column meanings, provenance and meta, and `read_table` gives back an equal table. CSV has the
    rows alone; text in it that a spreadsheet would run as a formula gets a `'` in front. `name` goes into the JSON's
    schema `headway/NAME@1` (default: from the file's name). Raises UsageError for another suffix, WriteProblem when
    the place cannot be written.

    >>> import tempfile
    >>> table = Table.from_rows([{"head": "L0H1"}], {"head": Column("head")})
    >>> read_table(write_table(table, Path(tempfile.mkdtemp()) / "heads.parquet")) == table
    True
    """
    encode = _by_suffix(path, _encoders())
    return write_bytes_atomic(path, encode(table, name or _name_of(Path(path))))


def check_table_path(path: str | Path) -> None:
    """Refuse, before the work, a path that `write_table` could not write to. Raises as it does.

    >>> check_table_path("heads.xls")
    Traceback (most recent call last):
    headway.errors.UsageError: heads.xls: not a table format; expected .parquet or .json or .csv, got .xls
    """
    _by_suffix(path, _encoders())
    check_place(path)


def read_table(path: str | Path) -> Table:
    """Read what `write_table` wrote as .parquet or .json. Raises FileProblem: missing, damaged or not ours."""
    decode = _by_suffix(path, {".parquet": _from_parquet, ".json": _from_json})
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FileProblem(error.strerror or "cannot be read", where=str(path)) from error
    try:
        return decode(data)
    except (*_DAMAGE, BadInput) as error:
        raise FileProblem(
            "not a table of Headway, or damaged", where=str(path), got=f"{type(error).__name__}: {error}"
        ) from error


def _encoders() -> dict[str, Callable[[Table, str], bytes]]:
    return {".parquet": _parquet, ".json": _json, ".csv": _csv}


def _by_suffix(path: str | Path, known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    suffix = Path(path).suffix.lower()
    if suffix not in known:
        raise UsageError("not a table format", where=str(path), expected=" or ".join(known), got=suffix or "no suffix")
    return known[suffix]


def _name_of(path: Path) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", path.stem.lower())) or "table"


def _json(table: Table, name: str) -> bytes:
    return table.to_json(name).encode()


def _from_json(data: bytes) -> Table:
    document = json.loads(data, parse_constant=_no_constant)
    return _rebuild(document, lambda schema: pl.DataFrame(document["rows"], schema=schema))


def _parquet(table: Table, name: str) -> bytes:
    document = table.to_dict(name)
    del document["rows"]
    buffer = io.BytesIO()
    table.frame.write_parquet(buffer, metadata={_PARQUET_KEY: json.dumps(document, allow_nan=False)})
    return buffer.getvalue()


def _from_parquet(data: bytes) -> Table:
    metadata = pl.read_parquet_metadata(io.BytesIO(data))
    frame = pl.read_parquet(io.BytesIO(data))
    return _rebuild(json.loads(metadata[_PARQUET_KEY]), lambda _: frame)


def _rebuild(document: Mapping[str, Any], frame: Callable[[dict[str, pl.DataType]], pl.DataFrame]) -> Table:
    if not re.fullmatch(r"headway/[a-z0-9-]+@1", document["schema"]):
        raise ValueError(f"schema {document['schema']!r}, not headway/NAME@1")
    meta = document["meta"]
    columns = {
        name: Column(entry["meaning"], entry["unit"], entry["low"], entry["high"])
        for name, entry in meta["columns"].items()
    }
    schema = {name: TYPES[entry["type"]] for name, entry in meta["columns"].items()}
    extra = {key: value for key, value in meta.items() if key not in RESERVED}
    return Table(frame(schema), columns, Provenance.from_dict(meta), extra)


def _csv(table: Table, _: str) -> bytes:
    text = pl.col(pl.String)
    guarded = pl.when(text.str.contains(_FORMULA)).then(pl.lit("'") + text).otherwise(text)
    has_text = pl.String in table.frame.dtypes
    frame = table.frame.with_columns(guarded.name.keep()) if has_text else table.frame
    return frame.write_csv().encode()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
