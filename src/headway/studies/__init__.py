"""Whole questions about one model, each returning tables and views."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Report": "headway.studies.report",
        "StudyText": "headway.studies.texts",
        "copying_compared": "headway.studies.copying",
        "eigenvalue_plane": "headway.studies.copying",
        "framework_claims": "headway.studies.framework",
        "head_atlas": "headway.studies.heads",
        "induction_circuits": "headway.studies.induction",
        "report_model": "headway.studies.report",
        "qk_eigenvalue_traces": "headway.studies.qk_traces",
        "skip_trigram_cost": "headway.studies.trigram_cost",
        "study_text": "headway.studies.texts",
        "write_report": "headway.studies.report",
    },
)
