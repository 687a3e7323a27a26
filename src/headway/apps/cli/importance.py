"""`headway importance MODEL`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from headway.apps.cli.options import Compute, Model, TableOutput, Text
from headway.apps.cli.output import progress, show

WANTED = ("order", "n_terms", "loss", "reduction", "reduction_se", "reduction_per_term")


def importance(
    model: Model,
    /,
    *,
    study: Text = Text(),
    windows: Annotated[int, Parameter(validator=Number(gte=1))] = 128,
    compute: Compute = Compute(),
    output: TableOutput = TableOutput(),
) -> None:
    """Loss by path order, patterns and norm scales frozen: direct path, single heads, virtual heads.

    Parameters
    ----------
    windows
        How many windows of text to read, evenly spread.
    """
    from headway.behaviour.windows import text_windows
    from headway.paths.importance import term_importance
    from headway.studies.texts import study_text

    weights = compute.open(model)
    rows = text_windows(study_text(weights, study.text).ids, weights.config, limit=windows)
    with progress("counting paths by order", output) as report:
        table = term_importance(weights, rows, progress=report)
    show(table, "importance", output, wanted=WANTED)
