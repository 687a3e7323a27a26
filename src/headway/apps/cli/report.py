"""`headway report MODEL`: the main job."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from headway.apps.cli.options import Compute, Model, Output, Study
from headway.apps.cli.output import remark, stages, width
from headway.errors import counted
from headway.tables.atomic import check_folder


def report(
    model: Model,
    /,
    *,
    study: Study = Study(),
    compute: Compute = Compute(),
    output: Output = Output(),
) -> None:
    """The whole study of one model: prints a summary, and writes report.html and tables/*.parquet into -o."""
    from headway.studies.report import report_model, write_report
    from headway.studies.texts import study_text

    folder = output.o or Path("report")
    check_folder(folder, "report.html", "tables/heads.parquet")
    weights = compute.open(model)
    chosen = None if study.text is None else study_text(weights, study.text)
    with stages(output) as stage:
        found = report_model(
            weights, chosen, name=model, processing=study.processing, seed=compute.seed, progress=stage
        )
    page = write_report(found, folder)
    if output.json:
        rows = [
            {"table": name, "rows": len(t), "path": str(folder / "tables" / f"{name}.parquet")}
            for name, t in found.tables.items()
        ]
        meta = {
            **found.tables["heads"].provenance.to_dict(),
            "summary": found.summary,
            "missing": dict(found.missing),
            "page": str(page),
        }
        print(json.dumps({"schema": "headway/report@1", "meta": meta, "rows": rows}))
    else:
        for line in found.summary:
            print(textwrap.fill(line, width=min(100, width()), subsequent_indent="  "))
    remark(f"wrote {page} and {counted(len(found.tables), 'table')} in {folder / 'tables'}", output)
