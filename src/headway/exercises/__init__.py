"""The workbook: exercises as data, predicates that prove or refute an answer, and what to tell the learner."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Exercise": "headway.exercises.catalogue",
        "Given": "headway.exercises.givens",
        "Verdict": "headway.exercises.verdict",
        "check": "headway.exercises.checking",
        "exercise": "headway.exercises.catalogue",
        "exercises": "headway.exercises.catalogue",
        "given": "headway.exercises.givens",
        "grade_head": "headway.exercises.trained",
        "reference": "headway.exercises.references",
    },
)
