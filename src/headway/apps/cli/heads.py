"""`headway heads MODEL`."""

from __future__ import annotations

from headway.apps.cli.options import Compute, Model, Study, TableOutput
from headway.apps.cli.output import progress, remark, show

WANTED = ("head", "kind", "prefix_matching", "previous_token", "copying", "duplicate_token", "evidence", "entropy")


def heads(
    model: Model,
    /,
    *,
    study: Study = Study(),
    compute: Compute = Compute(),
    output: TableOutput = TableOutput(),
) -> None:
    """One row a head: what it does, by weights (copying) and by behaviour (patterns), with a plain kind and evidence."""
    from headway.behaviour.windows import text_windows
    from headway.errors import TextProblem
    from headway.studies.heads import head_atlas
    from headway.studies.texts import study_text

    weights = compute.open(model)
    try:
        chosen = study_text(weights, study.text)
        text_windows(chosen.ids, weights.config, limit=1)
    except TextProblem as problem:
        if study.text is not None:
            raise
        remark(f"headway: without text: {problem}", output)
        chosen = None
    with progress("reading patterns", output) as report:
        table = head_atlas(weights, chosen, processing=study.processing, seed=compute.seed, progress=report)
    show(table, "heads", output, wanted=WANTED)
