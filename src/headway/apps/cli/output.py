"""How a command shows its table: text for people, JSON for programs, a file where asked; and progress on stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from headway.apps.cli.options import Output, TableOutput
from headway.tables.files import write_table
from headway.tables.table import Table
from headway.tokens.labels import printable

if TYPE_CHECKING:
    from rich.progress import TaskID

Report = Callable[[int, int], None]


UNLIMITED = 100_000  # columns of a pipe or file: one line a row, for grep and cut


def show(
    table: Table, name: str, output: TableOutput, *, top: int | None = None, wanted: Sequence[str] | None = None
) -> None:
    """Print a table (rows beyond `top` left out, and said so) or write it to `-o`.

    wanted: columns in the order in which a terminal too narrow for all shows them; None to fold text instead. JSON,
    files and pipes always get every column.
    """
    from headway.views.text import fitting, table_text

    shown = table if top is None else table.top(top)
    if output.o is not None:
        write_table(shown, output.o)
        remark(f"wrote {output.o}", output)
    if output.json:
        print(shown.to_json(name))
    elif output.o is None:
        columns = width()
        fitted = shown if wanted is None else fitting(shown, columns, wanted)
        print(table_text(fitted, width=columns, limit=None, color=sys.stdout.isatty()))
        if hidden := [column for column in shown.columns if column not in fitted.columns]:
            sys.stdout.flush()
            remark(f"No room for {', '.join(hidden)}: see them with --json, -o FILE or a wider terminal", output)


def width() -> int:
    """Columns of the terminal, or of COLUMNS where it is set; a file or pipe has no end to its lines."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size((80, 24)).columns
    return UNLIMITED


def remark(text: str, output: Output) -> None:
    """A line for the person, on stderr, unless quiet; talk that cannot be heard stops no work."""
    if not output.quiet:
        with suppress(OSError):
            print(printable(text), file=sys.stderr, flush=True)


@contextmanager
def progress(what: str, output: Output) -> Generator[Report]:
    """A progress bar with time left on stderr; silent when quiet or when stderr is no terminal."""
    with stages(output) as at:
        yield lambda done, total: at(what, done, total)


@contextmanager
def stages(output: Output) -> Generator[Callable[[str, int, int], None]]:
    """A progress bar whose description changes from stage to stage."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if output.quiet or not console.is_terminal:
        yield lambda stage, done, total: None  # noqa: ARG005
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def at(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=None)
            bar.update(tasks[stage], completed=done, total=total)

        yield at
