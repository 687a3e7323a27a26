"""Tables as text for a terminal: aligned numbers, units under the headings, and nothing a terminal would obey."""

from __future__ import annotations

import io
import shutil

from headway.errors import UsageError
from headway.tables.cells import cell_texts
from headway.tables.table import Table
from headway.tokens.labels import printable


def table_text(table: Table, *, width: int | None = None, limit: int | None = 20, color: bool = False) -> str:
    """The table as lines of text that end with how many rows there are and how they were processed.

    width: columns of the terminal, its own when None; numbers are never cut, so a table may be wider; limit: rows
    shown, None for all; color: bold and dim by escape codes. Control, escape and bidi characters in cells are shown
    escaped. Raises UsageError for a negative limit.

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
    grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    lines: list[list[Text]] = []
    least = 0
    units = any(column.unit for column in table.columns.values())
    for name, column in table.columns.items():
        numeric = frame[name].dtype.is_numeric()
        cells = [printable(text) for text in cell_texts(frame[name].to_list(), unit=column.unit)]
        heads = [(printable(name), "bold"), *([(printable(column.unit), "dim")] if units else [])]
        texts = [*(Text(text, style) for text, style in heads), *map(Text, cells)]
        natural = max(text.cell_len for text in texts)
        narrowest = natural if numeric else min(natural, 8)
        least += narrowest + 2
        grid.add_column(justify="right" if numeric else "left", no_wrap=numeric, overflow="fold", min_width=narrowest)
        lines.append(texts)
    for row in zip(*lines, strict=True):
        grid.add_row(*row)
    console = Console(
        file=io.StringIO(),
        width=max(width or shutil.get_terminal_size((100, 24)).columns, least),
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        console.print(grid)
    body = "\n".join(line.rstrip() for line in capture.get().splitlines())
    return f"{body}\n{_footer(table, frame.height)}"


def _footer(table: Table, shown: int) -> str:
    left_out = int(table.meta.get("rows_left_out", 0)) + len(table) - shown
    total = shown + left_out
    more = f", {left_out} of them not shown" if left_out else ""
    return f"{total} row{'s' * (total != 1)}{more}; processing: {printable(table.provenance.processing)}"
