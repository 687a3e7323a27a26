"""The `headway` command: one file a command, imported when it is used, so that `--help` costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Ctrl-C while the command line itself is read in is no traceback either."""
    try:
        from headway.apps.cli.app import main as run

        return run(arguments)
    except KeyboardInterrupt:
        print("headway: interrupted", file=sys.stderr)
        return 130
