"""Around the exercises: answer files run apart, progress on disk, stubs, and what a person reads."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Limits": "headway.exercises.workbook.runner",
        "Progress": "headway.exercises.workbook.progress",
        "check_file": "headway.exercises.workbook.runner",
        "start_answer": "headway.exercises.workbook.stub",
        "verdict_text": "headway.exercises.workbook.wording",
    },
)
