"""One check as the workbook does it: find the file and what it builds on, decide, remember."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headway.errors import UsageError, WriteProblem
from headway.exercises.catalogue import exercise, exercises, label
from headway.exercises.verdict import Verdict
from headway.exercises.workbook.progress import Progress, digest
from headway.exercises.workbook.runner import SUFFIXES, Limits, check_file
from headway.exercises.workbook.stub import answer_file, answer_files, exercise_of


@dataclass(frozen=True)
class Session:
    """What came of one check: the verdict, what the file printed, and remarks about the files."""

    verdict: Verdict
    path: Path
    printed: str
    remarks: tuple[str, ...]


def find_answer(target: str) -> tuple[str, Path]:
    """Exercise and file that `check` means by an id (then its file in the current folder) or by a path.

    Raises UnknownName for neither, UsageError for an exercise without a file here or a file of no exercise.
    """
    if target in {entry.id for entry in exercises()}:
        found = answer_file(target, Path())
        if found is None:
            raise UsageError(
                f"there is no {target}.py in this folder",
                where=str(Path.cwd()),
                next_step=f"Make one with: headway learn start {target}",
            )
        return target, found
    path = Path(target)
    if path.suffix in SUFFIXES or path.is_file() or len(path.parts) > 1:
        if not path.is_file():
            raise UsageError("there is no such answer file", where=target)
        return exercise_of(path), path
    exercise(target)  # raises, with the nearest ids
    return target, path


def check_answer(id: str, path: Path, *, lang: str = "en", limits: Limits = Limits()) -> Session:
    """Check a file and write the outcome into the progress file beside it.

    Earlier parts that passed are taken from the files beside it. A progress file that cannot be written, or was broken
    and set aside, is a remark: the verdict is never lost.
    """
    folder = path.parent
    progress = Progress.of(folder)
    checked = check_file(id, path, earlier=_earlier(id, folder, progress), lang=lang, limits=limits)
    verdict = checked.verdict
    remarks = aside(progress, lang) + _beside(id, path, lang)
    after = Progress.of(folder).checked(
        id,
        reason=verdict.reason,
        passed=verdict.passed,
        T99=verdict.sharpness.T99 if verdict.sharpness else None,
        answer=digest(path),
    )
    try:
        after.save()
    except WriteProblem as problem:
        remarks += (label("unsaved", lang=lang, problem=problem),)
    return Session(verdict, path, checked.printed, remarks)


def aside(progress: Progress, lang: str = "en") -> tuple[str, ...]:
    """What to say when a progress file could not be read."""
    if progress.set_aside is None:
        return ()
    return (label("aside", lang=lang, file=progress.path.name, other=progress.set_aside.name),)


def _beside(id: str, path: Path, lang: str) -> tuple[str, ...]:
    """What to say when other files in the folder answer the same exercise."""
    others = [other.name for other in answer_files(id, path.parent) if other.name != path.name]
    if not others or path.name not in {f"{id}{suffix}" for suffix in SUFFIXES}:
        return ()
    return (label("beside", lang=lang, file=path.name, others=", ".join(others)),)


def _earlier(id: str, folder: Path, progress: Progress) -> dict[str, Path]:
    """Files of the parts an exercise builds on, where they once passed."""
    files = {part: answer_file(part, folder) for part in exercise(id).requires if progress.entry(part).passed}
    return {part: path for part, path in files.items() if path is not None}
