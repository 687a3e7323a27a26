"""The command line: which commands there are, and how errors become one line and an exit code.

Exit codes: 0 done, 1 failed, 2 usage, 3 a check did not pass, 130 interrupted. Data on stdout, talk on stderr.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from cyclopts import App, CycloptsError, Parameter

from headway.errors import HeadwayError, Interrupted

COMMANDS = {
    "inspect": "Sizes of a model, and which analyses apply to it and why; reads headers only",
    "report": "The whole study of one model, as a page and tables",
    "heads": "One row a head: what it does, by weights and by behaviour",
    "compose": "Composition scores of all pairs of heads, with what chance gives",
    "circuit": "What one circuit of a head says in tokens",
    "trigrams": "Skip-trigrams of a head, the bugs they imply, and what the bugs cost",
    "importance": "Loss by path order: direct path, heads, virtual heads",
    "train": "Train a small model from text",
    "learn": "The workbook: write circuits by hand, and have them proved right or shown wrong",
}

HELP = """Read, write and verify transformer circuits.

headway report zoo:two-layer            the whole study of a packaged model
headway inspect model.safetensors       what is in a file
headway heads zoo:two-layer --json      one row a head, for another program
headway train two-layer -o run          a model of your own

MODEL is a path (an archive, a training RUN or RUN@STEP) or zoo:zero-layer, zoo:one-layer, zoo:two-layer.
"""


def build() -> App:
    """The app with its commands, none of them imported yet."""
    from headway.version import VERSION

    app = App(
        name="headway",
        help=HELP,
        help_format="plaintext",
        version=VERSION,
        default_parameter=Parameter(negative=()),  # --json has no --no-json, --text no --empty-text
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,  # Ctrl-C is told by `main`
    )
    for name, text in COMMANDS.items():
        app.command(f"headway.apps.cli.{name}:{name}", name=name, help=text)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (the console script exits with it)."""
    _ready_streams()
    try:
        build()(list(sys.argv[1:] if arguments is None else arguments), result_action="return_value")
        sys.stdout.flush()
    except HeadwayError as error:
        return _fail(str(error), error.exit_code)
    except CycloptsError as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted", Interrupted.exit_code)
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        _drop_output()
    except SystemExit as leaving:
        if not isinstance(leaving.__context__, BrokenPipeError):  # which rich answers by leaving with code 1
            raise
        _drop_output()
    except OSError as error:
        if error.filename is not None:
            return _fail(f"{error.filename}: {error.strerror}", 1)
        _drop_output()
        return _fail(f"the answer could not be written: {error.strerror}", 1)
    return 0


def _ready_streams() -> None:
    """Streams that exist and can print any token; talk into a closed stderr is lost, data into a closed stdout an error."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end
    if sys.stdout is None:  # open to read, so that writing is refused; and no file of ours gets its number
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of few letters still shows every token


def _drop_output() -> None:
    """Send what is left in stdout's buffer nowhere, so that closing it at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, code: int) -> int:
    """One line on stderr, whatever was in the names it quotes; the exit code also when nobody can read it."""
    from headway.tokens.labels import printable

    with suppress(OSError):
        print(f"headway: {printable(text.strip())}", file=sys.stderr, flush=True)
    return code
