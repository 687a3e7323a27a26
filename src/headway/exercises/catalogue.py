"""The exercises as data: ids, what an answer holds, statements, hints, and the sentences of verdicts.

Read from `data/exercises.toml` (no words), `data/en.toml` and `data/zh.toml` (words), and `data/answers.toml` (known
answers, as code). Nothing here computes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from headway.errors import UnknownName, did_you_mean

LANGUAGES = ("en", "zh")
_PLAIN = re.compile(r"[\w-]+")  # a name or a number, the same in every language
_NO_BLANK = re.compile(r"(?<=[，。；：、！？（）]) | (?=[，。；：、！？（）])|(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])")
_VERBATIM = ("code", "file")  # facts that are said as they are
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
    told = {k: v if k in _VERBATIM or not isinstance(v, str) else _told(v, lang) for k, v in facts.items()}
    said = _first_that_fits(templates, told)
    if said is None:
        listed = ", ".join(f"{key} {value}" for key, value in facts.items() if key not in _ADDED)
        said = f"{name}: {listed}" if listed else name
    if kind == "note":
        return _spaced(said)
    if "head" in facts:
        said = label("head", lang=lang, head=facts["head"]) + said
    added = (words[place].get(str(facts.get(fact, "")), "") for fact, place in _ADDED.items())
    return _spaced((" " if lang == "en" else "").join(part for part in (said, *added) if part))


def label(name: str, *, lang: str, **facts: object) -> str:
    """A short text of the workbook itself (headings, marks, remarks), with its fields filled in where facts are given.

    Raises KeyError for a name that has none.

    >>> label("wanted", lang="en"), label("not_yet", lang="en", id="2c")
    ('wanted', '2c is not passed yet')
    """
    text: str = texts(lang)["labels"][name]
    return text.format(**facts) if facts else text


@cache
def texts(lang: str) -> Mapping[str, Any]:
    """All words of a language, as its file has them. Raises UnknownName for a language without one."""
    if lang not in LANGUAGES:
        raise UnknownName(f"no language {lang!r}", expected=" or ".join(LANGUAGES))
    return MappingProxyType(_read(f"{lang}.toml"))


def _told(phrase: str, lang: str) -> str:
    """A phrase of a predicate in another language: by the table of values, whose {} stand for further phrases. What has no
    entry stays as it is; a list of phrases or numbers is told one by one.

    >>> _told("dims 0 to 3 as well", "zh"), _told("content, v", "zh"), _told("W_Q", "zh")
    ('第 0 到 3 维（多余）', '内容、v', 'W_Q')
    """
    exact, patterns = _phrases(lang)
    if phrase in exact:
        return exact[phrase]
    for pattern, said in patterns:
        found = pattern.fullmatch(phrase)
        if found:
            return said.format(*(_told(part, lang) for part in found.groups()))
    parts = phrase.split(", ")
    if len(parts) > 1 and exact and all(part in exact or _PLAIN.fullmatch(part) for part in parts):
        return "、".join(exact.get(part, part) for part in parts)
    return phrase


@cache
def _phrases(lang: str) -> tuple[dict[str, str], tuple[tuple[re.Pattern[str], str], ...]]:
    """The table of values: phrases as they are, and patterns for those with {}, in order."""
    values: dict[str, str] = texts(lang)["values"]
    exact = {phrase: said for phrase, said in values.items() if "{}" not in phrase}
    holes = ((re.compile(re.escape(phrase).replace(r"\{\}", "(.+?)")), said) for phrase, said in values.items())
    return exact, tuple((pattern, said) for pattern, said in holes if pattern.groups)


def _spaced(text: str) -> str:
    """No blank beside a Chinese mark or between Chinese characters, where a Chinese phrase came into a Chinese sentence."""
    return _NO_BLANK.sub("", text)


@cache
def known_answers() -> Mapping[str, str]:
    """Source of a known answer to every exercise, by id.

    >>> "def solve(given)" in known_answers()["2c"]
    True
    """
    return MappingProxyType(_read("answers.toml"))


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
