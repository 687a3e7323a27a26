"""`headway learn`: the workbook."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from headway.apps.cli.options import Output
from headway.apps.cli.output import remark
from headway.errors import CheckFailed, Interrupted, UsageError
from headway.exercises.catalogue import exercise, exercises, label
from headway.exercises.workbook.progress import Progress
from headway.exercises.workbook.wrapping import wrapped
from headway.tables.atomic import check_place

if TYPE_CHECKING:
    from headway.exercises.workbook.session import Session

USAGE = """Usage: headway learn COMMAND

headway learn list            what there is
headway learn start 2c        writes 2c.py: the exercise, to be filled in
headway learn check 2c        right, or why not, with a sequence that shows it
headway learn hint 2c         the next of three hints

Answers are checked in the current folder; headway-progress.json beside them remembers what passed.
Exit codes: 0 passed, 3 not passed, 2 for a question that cannot be asked.
"""

learn = App(name="learn", usage=USAGE, help_format="plaintext")


@Parameter(name="*")
@dataclass(frozen=True)
class Spoken:
    """How it is said.

    Parameters
    ----------
    lang
        Language of statements, hints and reasons: en or zh.
    json
        Print JSON: {"schema": "headway/NAME@1", "meta": ..., "rows": [...]}.
    quiet
        No remarks on stderr.
    """

    lang: Literal["en", "zh"] = "en"
    json: Annotated[bool, Parameter(show_default=False)] = False
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], show_default=False)] = False

    def remark(self, text: str) -> None:
        """Say it on stderr, unless quiet."""
        remark(text, Output(quiet=self.quiet))


Id = Annotated[str, Parameter(help="An exercise, such as 2c; `headway learn list` has them all.")]
Spoil = Annotated[bool, Parameter(help="Show it although the exercise is not solved yet.", show_default=False)]


@learn.command(name="list")
def list_(*, spoken: Spoken = Spoken()) -> None:
    """Every exercise in order, and how it stands in this folder."""
    progress = _progress(Path(), spoken)
    _show_rows("learn-list", [_row(entry.id, progress, spoken.lang) for entry in exercises()], progress, spoken)


@learn.command
def start(
    id: Id,
    *,
    o: Annotated[Path, Parameter(name=["-o", "--output"], help="The folder of the answer file.")] = Path(),
    spoken: Spoken = Spoken(),
) -> None:
    """Write ID.py, an answer file to fill in. A file that exists is left as it is."""
    from headway.exercises.workbook.stub import start_answer

    path = start_answer(id, o, lang=spoken.lang)
    if spoken.json:
        _json("learn-start", [{"id": id, "path": str(path)}])
        return
    words = exercise(id).words(spoken.lang)
    _print(f"{id}  {words.title}\n\n{words.statement}\n")
    _print(label("wrote", lang=spoken.lang, path=path))


@learn.command
def check(
    target: Annotated[str, Parameter(name="answer", help="An exercise (its file in this folder) or a file.")],
    *,
    o: Annotated[
        Path | None, Parameter(name=["-o", "--output"], help="Also write the picture here (.svg or .png).")
    ] = None,
    spoken: Spoken = Spoken(),
) -> None:
    """Decide an answer: right, or the reason why not, with a sequence and a picture. Exit code 3 when not passed."""
    from headway.exercises.workbook.session import check_answer, find_answer

    if o is not None and o.suffix not in (".svg", ".png"):
        raise UsageError("not a kind of picture", where=str(o), expected=".svg or .png", got=o.suffix or "none")
    if o is not None:
        check_place(o)
    id, path = find_answer(target)
    session = check_answer(id, path, lang=spoken.lang)
    _tell(session, spoken, o)
    if not session.verdict.passed:
        lang = spoken.lang
        raise CheckFailed(label("not_yet", lang=lang, id=id), next_step=label("a_hint", lang=lang, id=id))


@learn.command
def hint(
    id: Id,
    *,
    level: Annotated[int | None, Parameter(help="1, 2 or 3; the next one when left out.")] = None,
    spoken: Spoken = Spoken(),
) -> None:
    """The next hint of three: a question, a piece of the formula, a smaller case worked out."""
    from headway.errors import WriteProblem

    hints = exercise(id).words(spoken.lang).hints
    progress = _progress(Path(), spoken)
    shown = min(3, progress.entry(id).hints + 1) if level is None else level
    if shown not in (1, 2, 3):
        raise UsageError("--level", expected="1, 2 or 3", got=level)
    if spoken.json:
        _json("learn-hint", [{"id": id, "level": shown, "hint": hints[shown - 1]}])
    else:
        _print(label("hint", lang=spoken.lang, level=shown, text=hints[shown - 1]))
    try:
        progress.hinted(id, shown).save()
    except WriteProblem as problem:
        _say("unsaved_hint", spoken, problem=problem)


@learn.command
def show(id: Id, *, spoil: Spoil = False, spoken: Spoken = Spoken()) -> None:
    """A known answer, as formula and as an answer file: after yours passed, or with --spoil."""
    lang = spoken.lang
    success = exercise(id).words(lang).success
    if not spoil and not _progress(Path(), spoken).entry(id).passed:
        raise UsageError(label("not_solved", lang=lang, id=id), next_step=label("all_the_same", lang=lang, id=id))
    from headway.exercises.workbook.solution import reference_code

    code = reference_code(id)
    if spoken.json:
        _json("learn-show", [{"id": id, "success": success, "code": code}])
        return
    _print(f"{label('reference', lang=lang, id=id)}\n\n{success}\n")
    print(code.rstrip())


@learn.command
def progress(folder: Path = Path(), *, spoken: Spoken = Spoken()) -> None:
    """What was tried and what passed in a folder.

    Parameters
    ----------
    folder
        Where the answer files are; this folder when left out.
    """
    found = _progress(folder, spoken)
    rows = [_row(entry.id, found, spoken.lang) for entry in exercises()]
    _show_rows("learn-progress", [row for row in rows if row["attempts"] or row["hints"]], found, spoken)


@learn.command
def watch(
    id: Annotated[str | None, Parameter(help="Only this exercise.")] = None, *, spoken: Spoken = Spoken()
) -> None:
    """Check answers of this folder whenever their files are saved. Ctrl-C ends it."""
    from headway.exercises.workbook.runner import SUFFIXES
    from headway.exercises.workbook.session import check_answer, find_answer
    from headway.exercises.workbook.stub import answer_file, exercise_of
    from headway.exercises.workbook.watch import saved_files

    if id is not None:
        find_answer(id)
    ids = [entry.id for entry in exercises()] if id is None else [id]

    def files() -> list[Path]:
        return [path for path in (answer_file(one, Path()) for one in ids) if path is not None]

    every = label("answers", lang=spoken.lang, kinds=", ".join(SUFFIXES))
    spoken.remark(label("watching", lang=spoken.lang, what=id or every, folder=Path.cwd()))
    try:
        for path in saved_files(files, first=id is not None):
            _tell(check_answer(exercise_of(path), path, lang=spoken.lang), spoken, None)
            sys.stdout.flush()
    except KeyboardInterrupt as stopped:
        raise Interrupted(label("watched", lang=spoken.lang)) from stopped


def _tell(session: Session, spoken: Spoken, picture: Path | None) -> None:
    from headway.exercises.pictures import write_picture
    from headway.exercises.workbook.wording import verdict_row, verdict_text

    verdict = session.verdict
    if spoken.json:
        _json(
            "learn-check",
            [verdict_row(verdict, lang=spoken.lang, printed=session.printed)],
            {"path": str(session.path)},
        )
    else:
        print(verdict_text(verdict, lang=spoken.lang, width=_width(), printed=session.printed))
    for text in session.remarks:
        spoken.remark(f"headway: {text}")
    if picture is not None and verdict.picture is not None:
        write_picture(verdict.picture, picture, f"Exercise {verdict.id}")
        spoken.remark(label("drawn", lang=spoken.lang, path=picture))
    elif picture is not None:
        _say("not_drawn", spoken, path=picture)


def _say(name: str, spoken: Spoken, **facts: object) -> None:
    """A remark in the words of a label."""
    spoken.remark(f"headway: {label(name, lang=spoken.lang, **facts)}")


def _progress(folder: Path, spoken: Spoken) -> Progress:
    from headway.exercises.workbook.session import aside

    if not folder.is_dir():
        raise UsageError("there is no such folder", where=str(folder))
    found = Progress.of(folder)
    for text in aside(found, spoken.lang):
        spoken.remark(f"headway: {text}")
    return replace(found, set_aside=None)


def _row(id: str, progress: Progress, lang: str) -> dict[str, Any]:
    entry = progress.entry(id)
    state = "passed" if entry.passed else "not_passed" if entry.attempts else "open"
    return {
        "id": id,
        "title": exercise(id).words(lang).title,
        "state": state,
        "reason": entry.reason,
        "attempts": entry.attempts,
        "hints": entry.hints,
        "T99": entry.T99,
    }


def _show_rows(name: str, rows: list[dict[str, Any]], progress: Progress, spoken: Spoken) -> None:
    if spoken.json:
        _json(name, rows, {"path": str(progress.path), "exercises": len(exercises())})
        return
    from rich.cells import cell_len

    wide = max((cell_len(row["title"]) for row in rows), default=0)
    idwide = max((len(row["id"]) for row in rows), default=0)
    for row in rows:
        title = row["title"] + " " * (wide - cell_len(row["title"]))
        told = [label(row["state"], lang=spoken.lang)]
        told += [f"{label(k, lang=spoken.lang)} {row[k]}" for k in ("attempts", "hints") if row[k]]
        print(f"{row['id']:{idwide}}  {title}  {label('separator', lang=spoken.lang).join(told)}".rstrip())
    solved = sum(progress.entry(entry.id).passed for entry in exercises())
    _print(label("solved", lang=spoken.lang, solved=solved, all=len(exercises())))


def _json(name: str, rows: list[dict[str, Any]], meta: dict[str, Any] | None = None) -> None:
    print(json.dumps({"schema": f"headway/{name}@1", "meta": meta or {}, "rows": rows}, ensure_ascii=False))


def _print(text: str) -> None:
    print("\n".join(wrapped(text, _width())))


def _width() -> int:
    return max(40, min(100, shutil.get_terminal_size((80, 24)).columns))
