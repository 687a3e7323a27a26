"""Answer files: the stub to start from, and which exercise a file answers."""

from __future__ import annotations

import re
from pathlib import Path

from headway.errors import UsageError, WriteProblem, did_you_mean
from headway.exercises.catalogue import exercise, exercises, label
from headway.exercises.workbook.wrapping import wrapped

_NAMED = re.compile(r"""^EXERCISE\s*=\s*["']([\w-]+)["']""", re.MULTILINE)
_WIDTH = 100


def stub_text(id: str, *, lang: str = "en") -> str:
    """The answer file of an exercise that nobody has begun: statement, what `given` has, and None for each answer.

    >>> print(stub_text("w6").splitlines()[-4])
    def solve(given):
    """
    asked = exercise(id)
    words = asked.words(lang)
    statement = "\n".join(wrapped(words.statement, _WIDTH))
    end = "。" if lang == "zh" else "."
    how = "\n".join(wrapped(label("how", lang=lang, file=f"{id}.py"), _WIDTH))
    head = f'"""{id}: {words.title}{end}\n\n{statement}\n\n{how}\n"""'
    answers = [f"    {name} = None  # {_described(axes, lang)}" for name, axes in asked.answers.items()]
    returned = ", ".join(f'"{name}": {name}' for name in asked.answers)
    lines = (head, "", "import torch", "", f'EXERCISE = "{id}"', "", "", "def solve(given):", *answers)
    return "\n".join((*lines, f"    return {{{returned}}}", ""))


def start_answer(id: str, folder: Path, *, lang: str = "en") -> Path:
    """Write the stub `ID.py` into a folder, which is made if need be, and return its path.

    Never overwrites: raises UsageError when there is one already, WriteProblem when it cannot be written.
    """
    text = stub_text(id, lang=lang)
    path = folder / f"{id}.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(
            "there is an answer already, which stays as it is",
            where=str(path),
            next_step=f"Check it with: headway learn check {path}, or start elsewhere with -o FOLDER",
        ) from error
    except OSError as error:
        raise WriteProblem(f"could not be written ({error.strerror})", where=str(path)) from error
    return path


def exercise_of(path: Path) -> str:
    """The exercise a file answers: what its line `EXERCISE = "2c"` says, else its name (2c.npz, 2c-again.py).

    Raises UsageError when neither names one.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.suffix == ".py" else ""
    except OSError:
        text = ""
    ids = [entry.id for entry in exercises()]
    named = _NAMED.search(text)
    if named:
        return exercise(named[1]).id
    starts = [id for id in ids if path.stem == id or path.stem.startswith((f"{id}-", f"{id}_", f"{id}."))]
    if starts:
        return max(starts, key=len)
    raise UsageError(
        "it is not clear which exercise this answers",
        where=str(path),
        expected='a line EXERCISE = "2c", or a name such as 2c.py',
        next_step=did_you_mean(path.stem, ids),
    )


def answer_file(id: str, folder: Path) -> Path | None:
    """The answer file of an exercise in a folder, None when there is none; of several the first of `answer_files`."""
    return next(iter(answer_files(id, folder)), None)


def answer_files(id: str, folder: Path) -> list[Path]:
    """What may be the answer to an exercise in a folder: ID.py, then ID.npz, then ID.json."""
    exercise(id)
    candidates = (folder / f"{id}{suffix}" for suffix in (".py", ".npz", ".json"))
    return [path for path in candidates if path.is_file()]


def _described(axes: tuple[str, ...], lang: str) -> str:
    if not axes:
        return label("number", lang=lang)
    if axes == ("function",):
        return label("function", lang=lang)
    return label("sizes", lang=lang, axes=", ".join(axes))
