"""Tables as text for a terminal: aligned numbers, units under the headings, and nothing a terminal would obey."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headway.errors import UsageError, counted
from headway.tables.cells import cell_texts
from headway.tables.table import FLAG, Table
from headway.tokens.labels import printable

if TYPE_CHECKING:
    import polars as pl


_GAP = 2  # spaces between columns
_READABLE = 24  # columns of a terminal that text needs to be read rather than spelt


def table_text(table: Table, *, width: int | None = None, limit: int | None = 20, color: bool = False) -> str:
    """The table as lines of text that end with how many rows there are and how they were processed.

    width: columns of the terminal, its own when None; numbers are never cut, so a table may be wider (see `fitting`), but
    headings that would make it so break at their underscores; limit: rows shown, None for all; color: bold and dim by
    escape codes. Control, escape and bidi characters in cells are shown escaped. Raises UsageError for a negative limit.

    >>> from headway.tables import Column
    >>> rows = [{"head": "L0H1", "z": 3.5}, {"head": "L1H0", "z": 34.25}]
    >>> print(table_text(Table.from_rows(rows, {"head": Column("the head"), "z": Column("z", "sd")}), width=40))
    head      z
             sd
    L0H1   3.50
    L1H0  34.25
    2 rows; processing: raw
    """
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    if limit is not None and limit < 0:
        raise UsageError("a number of rows is not negative", expected="limit >= 0", got=limit)
    frame = table.frame if limit is None else table.frame.head(limit)
    width = width or shutil.get_terminal_size((100, 24)).columns
    columns = {name: _Lines.of(table, frame, name) for name in table.columns}
    if sum(lines.natural + _GAP for lines in columns.values()) - _GAP > width:
        columns = {name: lines.broken() for name, lines in columns.items()}
    grid = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=False)
    tallest = max((len(lines.heading) for lines in columns.values()), default=0)
    units = any(lines.unit for lines in columns.values())
    least, texts = 0, []
    for lines in columns.values():
        narrowest = lines.natural if lines.numeric else min(lines.natural, 8)
        least += narrowest + _GAP
        grid.add_column(
            justify="right" if lines.numeric else "left",
            no_wrap=lines.numeric,
            overflow="fold",
            min_width=narrowest,
        )
        heading = [""] * (tallest - len(lines.heading)) + lines.heading
        texts.append(
            [*(Text(line, "bold") for line in heading), *([Text(lines.unit, "dim")] if units else [])]
            + [Text(cell) for cell in lines.cells]
        )
    for row in zip(*texts, strict=True):
        grid.add_row(*row)
    console = Console(
        file=io.StringIO(),
        width=max(width, least),
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        console.print(grid)
    body = "\n".join(line.rstrip() for line in capture.get().splitlines())
    return f"{body}\n{_footer(table, frame.height)}"


def fitting(table: Table, width: int, first: Sequence[str]) -> Table:
    """The table without the columns that a terminal of this width has no room for.

    first: columns in the order in which they are wanted; the others follow in their own order, and a flag comes before
    all when a row has one. Columns keep their places; the first one wanted always stays.

    >>> from headway.tables import Column
    >>> columns = {"head": Column("the head"), "score": Column("score", "nats"), "z": Column("z", "sd")}
    >>> table = Table.from_rows([{"head": "L0H1", "score": 0.5, "z": 3.5}], columns)
    >>> list(fitting(table, 12, ["head", "z"]).columns)
    ['head', 'z']
    """
    flagged = [FLAG] if FLAG in table.columns and table.frame[FLAG].null_count() < len(table) else []
    wanted = list(
        dict.fromkeys([*first[:1], *flagged, *first, *(c for c in table.columns if c != FLAG), *table.columns])
    )
    lines = {name: _Lines.of(table, table.frame, name) for name in table.columns}
    if sum(_least(column) + _GAP for column in lines.values()) - _GAP > width:
        lines = {name: column.broken() for name, column in lines.items()}
    kept: set[str] = set()
    taken = -_GAP
    for name in wanted:
        cost = _least(lines[name]) + _GAP
        if not kept or taken + cost <= width:
            kept.add(name)
            taken += cost
    names = [name for name in table.columns if name in kept]
    return replace(table, frame=table.frame.select(names), columns={name: table.columns[name] for name in names})


@dataclass(frozen=True)
class _Lines:
    """What one column prints: its heading, in lines, its unit, its cells."""

    heading: list[str]
    unit: str
    cells: list[str]
    numeric: bool

    @classmethod
    def of(cls, table: Table, frame: pl.DataFrame, name: str) -> _Lines:
        unit = table.columns[name].unit
        cells = [printable(text) for text in cell_texts(frame[name].to_list(), unit=unit)]
        return cls([printable(name)], printable(unit), cells, frame[name].dtype.is_numeric())

    @property
    def natural(self) -> int:
        """Columns of the terminal that it takes unless something is folded."""
        from rich.cells import cell_len

        return max(map(cell_len, [*self.heading, self.unit, *self.cells]))

    def broken(self) -> _Lines:
        """The same with a heading that breaks behind each underscore."""
        return replace(self, heading=re.findall("[^_]*_+|[^_]+", self.heading[0]) or self.heading)


def _least(lines: _Lines) -> int:
    return lines.natural if lines.numeric else min(lines.natural, _READABLE)


def _footer(table: Table, shown: int) -> str:
    left_out = int(table.meta.get("rows_left_out", 0)) + len(table) - shown
    total = shown + left_out
    more = f", {left_out} of them not shown" if left_out else ""
    return f"{counted(total, 'row')}{more}; processing: {printable(table.provenance.processing)}"
