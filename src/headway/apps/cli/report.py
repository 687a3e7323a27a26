"""`headway report MODEL`: the main job."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from headway.apps.cli.options import Compute, Output
from headway.apps.cli.output import remark, stages


def report(
    model: str,
    *,
    text: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    processing: Literal["raw", "folded"] = "folded",
    compute: Compute = Compute(),
    output: Output = Output(),
) -> None:
    """The whole study of one model: prints a summary, and writes report.html and tables/*.parquet into -o.

    Parameters
    ----------
    model
        A path (archive, RUN, RUN@STEP) or zoo:NAME.
    text
        Files or folders to read; the held-out text the model carries, or a packaged sample, when left out.
    processing
        Weights as stored (raw), or norm gains folded and reads centred (folded).
    """
    from headway.studies.report import report_model, write_report
    from headway.studies.texts import study_text

    weights = compute.open(model)
    chosen = None if text is None else study_text(weights, text)
    with stages(output) as stage:
        study = report_model(weights, chosen, name=model, processing=processing, seed=compute.seed, progress=stage)
    folder = output.o or Path("report")
    page = write_report(study, folder)
    if output.json:
        rows = [
            {"table": name, "rows": len(t), "path": str(folder / "tables" / f"{name}.parquet")}
            for name, t in study.tables.items()
        ]
        meta = {
            **study.tables["heads"].provenance.to_dict(),
            "summary": study.summary,
            "missing": dict(study.missing),
            "page": str(page),
        }
        print(json.dumps({"schema": "headway/report@1", "meta": meta, "rows": rows}))
    else:
        for line in study.summary:
            print(textwrap.fill(line, width=100, subsequent_indent="  "))
    remark(f"wrote {page} and {len(study.tables)} tables in {folder / 'tables'}", output)
