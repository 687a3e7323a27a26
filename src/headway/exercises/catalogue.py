"""The exercises as data: ids, what an answer holds, statements, hints, and the sentences of verdicts.

Read from `data/exercises.toml` (no words) and `data/en.toml`, `data/zh.toml` (words). Nothing here computes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from headway.errors import UnknownName, did_you_mean

LANGUAGES = ("en", "zh")
# Facts whose value is itself a code with a sentence, said after the reason's own.
_ADDED = {"transposed": "transposed", "domain": "domains", "repair": "repairs"}


@dataclass(frozen=True)
class Words:
    """What a person reads of an exercise: statement and hints before solving, success after."""

    title: str
    statement: str
    hints: tuple[str, str, str]
    success: str


@dataclass(frozen=True)
class Exercise:
    """One exercise. `answers[name]` are axis names: () a number, ("function",) a function, "any" an axis of free size.

    requires: earlier exercises whose answers this one is graded with.
    """

    id: str
    answers: Mapping[str, tuple[str, ...]]
    requires: tuple[str, ...] = ()

    def words(self, lang: str = "en") -> Words:
        """Title, statement, hints and success in a language: `en` or `zh`. Raises UnknownName for another."""
        own = texts(lang)["exercises"][self.id]
        first, second, third = own["hints"]
        return Words(own["title"], own["statement"].strip(), (first, second, third), own["success"])


def exercises() -> tuple[Exercise, ...]:
    """Every exercise, in the order in which they are meant to be solved.

    >>> [e.id for e in exercises()][:8]
    ['w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7', '1a']
    """
    return tuple(_all().values())


def exercise(id: str) -> Exercise:
    """The exercise called `id`. Raises UnknownName, with the nearest ids.

    >>> exercise("2f").requires
    ('2d', '2e')
    """
    found = _all().get(id)
    if found is None:
        near = did_you_mean(str(id).lower(), _all()) or f"Known: {', '.join(_all())}"
        raise UnknownName(f"no exercise {id!r}", next_step=near)
    return found


def sentence(id: str, code: str, facts: Mapping[str, object], *, lang: str) -> str:
    """A reason or note code as a sentence. An exercise's own sentence for a code goes before the general one.

    Codes of notes begin with `note.`. Where no sentence fits the facts, code and facts themselves are said: a verdict is
    never lost for want of words. Raises UnknownName for an unknown language.

    >>> sentence("2c", "NOSUCH", {"at": 3}, lang="en")
    'NOSUCH: at 3'
    """
    words = texts(lang)
    kind, _, name = code.rpartition(".")
    table = words["notes"] if kind == "note" else words["reasons"]
    own = table.get(id, {})
    templates = own[name] if name in own else table.get(name)
    known = words["values"]
    said = _first_that_fits(templates, {key: known.get(v, v) if isinstance(v, str) else v for key, v in facts.items()})
    if said is None:
        listed = ", ".join(f"{key} {value}" for key, value in facts.items() if key not in _ADDED)
        said = f"{name}: {listed}" if listed else name
    if kind == "note":
        return said
    if "head" in facts:
        said = words["labels"]["head"].format(head=facts["head"]) + said
    added = (words[place].get(str(facts.get(fact, "")), "") for fact, place in _ADDED.items())
    return (" " if lang == "en" else "").join(part for part in (said, *added) if part)


def label(name: str, *, lang: str) -> str:
    """A short text of the workbook itself (headings, marks). Raises KeyError for a name that has none.

    >>> label("wanted", lang="en")
    'wanted'
    """
    return texts(lang)["labels"][name]


@cache
def texts(lang: str) -> Mapping[str, Any]:
    """All words of a language, as its file has them. Raises UnknownName for a language without one."""
    if lang not in LANGUAGES:
        raise UnknownName(f"no language {lang!r}", expected=" or ".join(LANGUAGES))
    return MappingProxyType(_read(f"{lang}.toml"))


def _first_that_fits(templates: str | list[str] | None, facts: Mapping[str, object]) -> str | None:
    """The first template whose fields the facts have; a list goes from the most to the least specific."""
    for template in [templates] if isinstance(templates, str) else templates or []:
        try:
            return template.format_map(facts)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError):
            continue
    return None


@cache
def _all() -> Mapping[str, Exercise]:
    return MappingProxyType(
        {
            id: Exercise(
                id,
                MappingProxyType({name: tuple(axes) for name, axes in entry["answers"].items()}),
                tuple(entry.get("requires", ())),
            )
            for id, entry in _read("exercises.toml").items()
        }
    )


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("headway.exercises").joinpath("data", name).read_text(encoding="utf-8"))
