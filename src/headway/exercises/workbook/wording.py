"""A verdict as a person reads it in a terminal, and as a program reads it."""

from __future__ import annotations

import math
from typing import Any

from headway.exercises.catalogue import exercise, label
from headway.exercises.pictures import counterexample_text, picture_text
from headway.exercises.verdict import Verdict
from headway.exercises.workbook.wrapping import wrapped
from headway.tokens.labels import printable

_PRINTED_LINES = 12


def verdict_text(verdict: Verdict, *, lang: str = "en", width: int = 80, printed: str = "") -> str:
    """What a check says: the sentence, then a counterexample, a picture, notes and sharpness where there are any."""
    state = label("passed" if verdict.passed else "not_passed", lang=lang)
    colon = "：" if lang == "zh" else ": "
    said = printable(f"{verdict.id} {state}{colon}{verdict.text(lang)}")
    if verdict.passed:
        said += (" " if lang == "en" else "") + exercise(verdict.id).words(lang).success
    blocks = ["\n".join(wrapped(said, width))]
    if printed:
        blocks.append(_printed(printed, lang, width))
    if verdict.counterexample is not None:
        blocks.append(counterexample_text(verdict.counterexample, width=width, lang=lang))
    if verdict.picture is not None:
        blocks.append(picture_text(verdict.picture, width=width, lang=lang))
    remarks = [*_sharpness(verdict, lang), *verdict.note_texts(lang)]
    if remarks:
        blocks.append("\n".join(line for remark in remarks for line in wrapped(printable(remark), width)))
    return "\n\n".join(blocks)


def verdict_row(verdict: Verdict, *, lang: str = "en", printed: str = "") -> dict[str, Any]:
    """A verdict as plain JSON values; what is not finite is null."""
    example, picture, sharpness = verdict.counterexample, verdict.picture, verdict.sharpness
    return {
        "id": verdict.id,
        "passed": verdict.passed,
        "reason": verdict.reason,
        "message": verdict.text(lang),
        "facts": {name: _plain(value) for name, value in verdict.facts.items()},
        "notes": list(verdict.note_texts(lang)),
        "counterexample": None if example is None else {k: _plain(v) for k, v in vars(example).items()},
        "sharpness": None if sharpness is None else {k: _plain(v) for k, v in vars(sharpness).items()},
        "picture": None if picture is None else {k: _plain(v) for k, v in vars(picture).items()},
        "printed": printed,
    }


def _printed(text: str, lang: str, width: int) -> str:
    lines = text.splitlines()
    shown = lines[:_PRINTED_LINES] + ([f"... ({len(lines)} lines)"] if len(lines) > _PRINTED_LINES else [])
    return "\n".join([label("printed", lang=lang), *(f"  {printable(line)[: width - 2]}" for line in shown)])


def _sharpness(verdict: Verdict, lang: str) -> list[str]:
    sharp = verdict.sharpness
    if sharp is None:
        return []
    facts = {"T99": sharp.T99, "margin": sharp.relative_margin, "share": sharp.par_fraction}
    said = [label("sharpness", lang=lang, **facts)]
    if sharp.par_fraction is not None:
        said.append(label("par", lang=lang, **facts))
    return [(" " if lang == "en" else "").join(said)]


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return str(value)
