"""Deciding an answer: arrays or a function in, one verdict out. Reads no file and no progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from headway.errors import UsageError, did_you_mean
from headway.exercises.answer import taken
from headway.exercises.catalogue import exercise, texts
from headway.exercises.givens import Given, as_part, given, longer
from headway.exercises.raised import AnswerFailed, guarded
from headway.exercises.registry import table
from headway.exercises.verdict import Note, Verdict, failed

Answer = Mapping[str, Any]  # arrays, numbers or functions by name, as the learner gave them


@dataclass(frozen=True)
class Submission:
    """An answer on the exercise's own data, and on its hidden data when it came as a function.

    Arrays written for `given(id)` have no hidden answer: they are graded on the visible data, and again on more
    positions and tokens in the same bases. What a `solve` function returned for `given(id, hidden=True)` (other size,
    other rotation, other frequencies) is graded there too, so remembered arrays do not pass. A part that builds on arrays
    is graded like arrays, unless their exercise has no other data to hide (exercise 1).
    """

    visible: Any
    hidden: Any = None

    @classmethod
    def of(cls, id: str, solve: Callable[[Given], Any]) -> Submission:
        """What a function answers on both. Raises AnswerFailed for what the function raises."""
        return cls(guarded(solve)(given(id)), guarded(solve, domain="hidden")(given(id, hidden=True)))


@dataclass(frozen=True)
class _Domain:
    name: str
    given: Given
    part: str = field(default="visible")  # which half of a submission belongs to it


def check(
    id: str,
    *,
    earlier: Mapping[str, Any] | None = None,
    lang: str = "en",
    solve: Callable[[Given], Any] | None = None,
    **answer: Any,
) -> Verdict:
    """Decide an answer to exercise `id`, given as arrays by name or as a function `solve(given) -> {name: array}`.

    Arrays: torch, numpy or nested lists. earlier: answers to parts this one builds on, by id, each a mapping of arrays
    or a function; a part that is absent or did not pass is replaced by the reference, and a note says so.
    A wrong answer is a verdict, with reason SHAPE, MISSING, NONFINITE, ... where it cannot be graded; so is what a
    function of the learner's raises (ERROR, with its own line). Raises UnknownName for an unknown exercise or language,
    UsageError when arrays and a function come together.

    >>> from headway.exercises.references import reference
    >>> check("2a", **reference("2a", given("2a"))).passed
    True
    """
    exercise(id)
    texts(lang)
    if solve is not None and answer:
        raise UsageError("an answer is arrays or `solve`, not both", where=f"check({id!r})", got=", ".join(answer))
    before: dict[str, Submission] = {}
    for part, value in (earlier or {}).items():
        exercise(part)
        with suppress(AnswerFailed):  # then it is not there, and the verdict says so
            before[part] = Submission.of(part, value) if callable(value) else Submission(value)
    try:
        own = Submission.of(id, solve) if solve is not None else Submission(answer)
        return grade(id, own, earlier=before, lang=lang)
    except AnswerFailed as problem:
        return failed(id, problem.reason, problem.facts, lang=lang)


def grade(
    id: str, submission: Submission, *, earlier: Mapping[str, Submission] | None = None, lang: str = "en"
) -> Verdict:
    """Decide what `check` decides, from answers that were computed elsewhere (the workbook's child process)."""
    asked = exercise(id)
    texts(lang)  # raises for a language without words
    before = dict(earlier or {})
    for part in before:
        if part not in asked.requires:
            raise UsageError(
                f"exercise {id} does not build on {part!r}",
                where="earlier",
                expected=", ".join(asked.requires) or "nothing",
                next_step=did_you_mean(part, asked.requires),
            )
    notes: dict[str, Note] = {}
    parts: dict[str, Submission | None] = {}
    for part in asked.requires:
        own = before.get(part)
        if own is None or not grade(part, own, earlier=_of(before, part)).passed:
            notes[part] = Note("EARLIER", {"part": part, "why": "absent" if own is None else "failed"})
            own = None
        parts[part] = own
    verdict = _over_domains(id, submission, parts)
    return replace(verdict, lang=lang).with_notes(*notes.values())


def _over_domains(id: str, submission: Submission, parts: Mapping[str, Submission | None]) -> Verdict:
    """The first verdict that fails, else the one of the visible domain (whose numbers the learner can recompute)."""
    shown: list[Verdict] = []
    unseen, notes = submission.hidden is not None, []
    arrays = [part for part, own in parts.items() if own is not None and own.hidden is None and _varies(part)]
    if unseen and arrays:
        unseen, notes = False, [Note("VISIBLE_ONLY", {"parts": ", ".join(arrays)})]
    for domain in _domains(id, unseen=unseen):
        answer, problem = taken(id, getattr(submission, domain.part), domain.given)
        if problem is not None:
            return problem.with_facts(domain=domain.name)
        before = {part: _earlier(part, own, domain) for part, own in parts.items()}
        verdict = table(id, "PREDICATES")[id](domain.given, answer, before).with_notes(*notes)
        if not verdict.passed:
            return verdict.with_facts(domain=domain.name)
        shown.append(verdict)
    return shown[0]


def _domains(id: str, *, unseen: bool) -> list[_Domain]:
    here = given(id)
    found = [_Domain("visible", here)]
    more = longer(here)
    if more is not None:
        found.append(_Domain("longer", more))
    if unseen:
        found.append(_Domain("hidden", given(id, hidden=True), "hidden"))
    return found


def _varies(id: str) -> bool:
    """Whether the hidden data of an exercise have other sizes than the visible: arrays written for these fit no others."""
    here, there = given(id), given(id, hidden=True)
    return (here.d_model, here.d_head, here.n) != (there.d_model, there.d_head, there.n)


def _earlier(part: str, own: Submission | None, domain: _Domain) -> Mapping[str, Any]:
    """The learner's own earlier answer on this domain, or the reference's where there is none."""
    here = as_part(domain.given, part)
    if own is None:
        return table(part, "REFERENCES")[part](here)
    value = own.hidden if domain.part == "hidden" and own.hidden is not None else own.visible
    return taken(part, value, here)[0]


def _of(before: Mapping[str, Submission], part: str) -> dict[str, Submission]:
    """Those of the earlier answers that an earlier part itself builds on."""
    return {name: before[name] for name in exercise(part).requires if name in before}
