"""`headway heads MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from headway.apps.cli.options import Compute, Output
from headway.apps.cli.output import progress, remark, show


def heads(
    model: str,
    *,
    text: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    processing: Literal["raw", "folded"] = "folded",
    compute: Compute = Compute(),
    output: Output = Output(),
) -> None:
    """One row a head: what it does, by weights (copying) and by behaviour (patterns), with a plain kind and evidence.

    Parameters
    ----------
    model
        A path (archive, RUN, RUN@STEP) or zoo:NAME.
    text
        Files or folders to read; the held-out text the model carries, or a packaged sample, when left out.
    processing
        Weights as stored (raw), or norm gains folded and reads centred (folded).
    """
    from headway.behaviour.windows import text_windows
    from headway.errors import TextProblem
    from headway.studies.heads import head_atlas
    from headway.studies.texts import study_text

    weights = compute.open(model)
    try:
        chosen = study_text(weights, text)
        text_windows(chosen.ids, weights.config, limit=1)
    except TextProblem as problem:
        if text is not None:
            raise
        remark(f"headway: without text: {problem}", output)
        chosen = None
    with progress("reading patterns", output) as report:
        table = head_atlas(weights, chosen, processing=processing, seed=compute.seed, progress=report)
    show(table, "heads", output)
