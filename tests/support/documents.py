"""Run the code of a Markdown page: its `python` blocks as one script, its `console` commands in between, in order.

A `text` block right behind a `python` block is what that block prints, line by line.

As a program (`python -m support.documents PAGE`) it runs one page in the current folder, so that a page's names, files
and imports are its own.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from support.repository import ROOT, SOURCE

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,})(?P<info>[^`]*)$")
_CLI = "from support import network; network.block(); from headway.apps.cli import main; raise SystemExit(main())"


class PageProblem(Exception):
    """A page has a block that cannot be run as it stands, or whose command failed."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after the fence, its text, and the page's line where the text starts (from 1)."""

    info: str
    text: str
    line: int


def blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order.

    >>> [block.info for block in blocks("```python\\nx = 1\\n```\\n\\n```console no-run\\n$ headway view\\n```\\n")]
    ['python', 'console no-run']
    """
    fence, indent, info, start, held = "", "", "", 0, list[str]()
    for number, line in enumerate(markdown.splitlines(), 1):
        match = _FENCE.match(line)
        if not fence and match:
            fence, indent, info, start, held = match["marks"], match["indent"], match["info"].strip(), number + 1, []
        elif fence and match and match["marks"] == fence and not match["info"].strip():
            yield Block(info, "".join(f"{text.removeprefix(indent)}\n" for text in held), start)
            fence = ""
        elif fence:
            held.append(line)
    if fence:
        raise PageProblem(f"line {start - 1}: a block is not closed")


def commands(block: Block) -> list[tuple[int, str]]:
    """The `$ ...` lines of a console block with their line numbers; a trailing backslash continues on the next line.

    >>> commands(Block("console", "$ headway heads m \\\\\\n    --json\\nL0H0 ...\\n$ headway doctor\\n", 10))
    [(10, 'headway heads m --json'), (13, 'headway doctor')]
    """
    found: list[tuple[int, str]] = []
    lines = block.text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("$ "):
            text, j = line[2:].strip(), i
            while text.endswith("\\") and j + 1 < len(lines):
                j += 1
                text = text[:-1].rstrip() + " " + lines[j].strip()
            found.append((block.line + i, text))
    return found


def run_command(text: str) -> None:
    """Run `headway ...` through this interpreter; for `scripts/...` see only that it is there. Raises PageProblem.

    Anything else (`git clone`, `pip install`, pipes) belongs in a block marked `console no-run`.
    """
    words = shlex.split(text, comments=True)
    if words and words[0].startswith("scripts/"):
        if not os.access(ROOT / words[0], os.X_OK):
            raise PageProblem(f"{words[0]} does not exist or cannot be executed")
        return
    if not words or words[0] != "headway" or {"|", ">", ">>", "&&", ";"} & set(words):
        raise PageProblem(f"not a plain headway command: {text!r}. Mark the block `console no-run`.")
    done = subprocess.run([sys.executable, "-c", _CLI, *words[1:]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PageProblem(f"{text!r} exited with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def run_page(path: Path) -> None:
    """Run a page's python and console blocks in order, in the current folder. Raises what they raise."""
    # A page is a program its reader would type in: names persist from one block to the next.
    names: dict[str, Any] = {"__name__": "__main__"}
    every = list(blocks(path.read_text(encoding="utf-8")))
    for block, after in zip(every, [*every[1:], None], strict=True):
        if block.info == "python":
            # Blank lines in front give tracebacks the page's own line numbers.
            code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
            with redirect_stdout(io.StringIO()) as printed:
                exec(code, names)  # noqa: S102 (the project's own pages)
            if after is not None and after.info == "text":
                _same(path, after, printed.getvalue())
        elif block.info == "console":
            for number, command in commands(block):
                try:
                    run_command(command)
                except PageProblem as problem:
                    raise PageProblem(f"{path.name}:{number}: {problem}") from None


def _same(path: Path, shown: Block, printed: str) -> None:
    """Raise PageProblem at the first line that a page shows otherwise than it was printed."""
    lines = (text.rstrip() for text in shown.text.splitlines()), (text.rstrip() for text in printed.splitlines())
    for number, (told, real) in enumerate(zip_longest(*lines), shown.line):
        if told != real:
            raise PageProblem(f"{path.name}:{number}: the page shows {told!r}, the code prints {real!r}")


def run_page_apart(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a page in a fresh interpreter, without a network, with a folder of its own to write in."""
    places = os.pathsep.join((str(SOURCE), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, "-m", "support.documents", str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": places.rstrip(os.pathsep), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


if __name__ == "__main__":
    from support import network

    network.block()
    run_page(Path(sys.argv[1]))
