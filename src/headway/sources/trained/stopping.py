"""What Ctrl-C during a training run says: how to go on, or that nothing was begun. Without torch: ready from the start."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from headway.errors import Interrupted
from headway.sources.trained.run_paths import RunPaths


def resume_command(name: str, out: str | Path, *, dtype: str = "float32", device: str = "cpu") -> str:
    """The command line that goes on with a run.

    >>> resume_command("two-layer", "my run", dtype="float64")
    "headway train two-layer -o 'my run' --resume --dtype float64"
    """
    options = "" if dtype == "float32" else f" --dtype {dtype}"
    options += "" if device == "cpu" else f" --device {device}"
    return f"headway train {name} -o {shlex.quote(str(out))} --resume{options}"


@contextmanager
def told_how_to_go_on(out: str | Path, command: Callable[[], str]) -> Generator[None]:
    """Ctrl-C becomes Interrupted, with the command that goes on with the run in `out` or the word that there is none."""
    try:
        yield
    except Interrupted as stop:
        raise Interrupted(stop.what, where=stop.where, next_step=stop.next_step or f"Go on with: {command()}") from None
    except KeyboardInterrupt:
        if RunPaths(Path(out)).exists:
            what, next_step = "stopped at once; what was saved before stays", f"Go on with: {command()}"
        else:
            what = "stopped before training began; there is nothing to resume"
            next_step = "Start again with the same command"
        raise Interrupted(what, where=str(out), next_step=next_step) from None
