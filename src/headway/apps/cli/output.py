"""How a command shows its table: text for people, JSON for programs, a file where asked; and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headway.apps.cli.options import Output
from headway.tables.files import write_table
from headway.tables.table import Table

if TYPE_CHECKING:
    from rich.progress import TaskID

Report = Callable[[int, int], None]


def show(table: Table, name: str, output: Output, *, top: int | None = None) -> None:
    """Print a table (rows beyond `top` left out, and said so) and write it to `-o` when given."""
    from headway.views.text import table_text

    shown = table if top is None else table.top(top)
    if output.o is not None:
        write_table(shown, output.o)
        remark(f"wrote {output.o}", output)
    if output.json:
        print(shown.to_json(name))
    elif output.o is None:
        print(table_text(shown, limit=None, color=sys.stdout is not None and sys.stdout.isatty()))


def remark(text: str, output: Output) -> None:
    """A line for the person, on stderr, unless quiet."""
    if not output.quiet:
        print(text, file=sys.stderr)


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
