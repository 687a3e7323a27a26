"""`headway importance MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headway.apps.cli.options import Compute, Output
from headway.apps.cli.output import progress, show
from headway.errors import UsageError


def importance(
    model: str,
    *,
    text: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    windows: int = 128,
    compute: Compute = Compute(),
    output: Output = Output(),
) -> None:
    """Loss by path order, patterns and norm scales frozen: direct path, single heads, virtual heads.

    Parameters
    ----------
    model
        A path (archive, RUN, RUN@STEP) or zoo:NAME.
    text
        Files or folders to read; the held-out text the model carries, or a packaged sample, when left out.
    windows
        How many windows of text to read, evenly spread.
    """
    from headway.behaviour.windows import text_windows
    from headway.paths.importance import term_importance
    from headway.studies.texts import study_text

    if windows < 1:
        raise UsageError("--windows", expected="at least 1", got=windows)
    weights = compute.open(model)
    rows = text_windows(study_text(weights, text).ids, weights.config, limit=windows)
    with progress("counting paths by order", output) as report:
        table = term_importance(weights, rows, progress=report)
    show(table, "importance", output)
