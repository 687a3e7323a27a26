"""The exercises' words: complete in both languages, and every sentence can be said."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from headway.errors import UnknownName
from headway.exercises.catalogue import LANGUAGES, exercise, exercises, label, sentence, texts
from headway.exercises.registry import MODULES
from support.repository import PACKAGE


def leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}/")
        else:
            yield f"{path}{key}", value


def templates(lang: str) -> dict[str, list[str]]:
    words = texts(lang)
    tables = {kind: words[kind] for kind in ("reasons", "notes", "labels", "domains", "repairs")}
    return {key: [value] if isinstance(value, str) else value for key, value in leaves(tables)}


def fields(template: str) -> set[str]:
    return {name.split("[")[0] for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def test_ids_are_those_of_the_design_and_each_has_a_module() -> None:
    ids = [entry.id for entry in exercises()]
    part = ["2a", "2b", "2c", "2d", "2e", "2f", "3"]
    assert ids[:18] == [*(f"w{k}" for k in range(1, 8)), "1a", "1b", "1c", "1d", *part]
    assert set(ids) == set(MODULES)


def test_an_exercise_builds_on_exercises_before_it() -> None:
    seen: set[str] = set()
    for entry in exercises():
        assert set(entry.requires) <= seen
        seen.add(entry.id)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_exercise_has_all_its_words(lang: str) -> None:
    assert set(texts(lang)["exercises"]) == {entry.id for entry in exercises()}
    for entry in exercises():
        words = entry.words(lang)
        assert all((words.title, words.statement, words.success, *words.hints)) and len(set(words.hints)) == 3
        assert all(name in words.statement for name in entry.answers), entry.id


def test_chinese_says_everything_that_english_says_with_the_same_fields() -> None:
    english, chinese = templates("en"), templates("zh")
    assert set(english) == set(chinese)
    for key, said in english.items():
        assert [fields(one) for one in said] == [fields(one) for one in chinese[key]], key
    assert all(any("\u4e00" <= letter <= "\u9fff" for letter in one.words("zh").title) for one in exercises())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_of_several_sentences_none_stands_behind_one_that_always_fits_first(lang: str) -> None:
    for key, said in templates(lang).items():
        hidden = [(k, m) for k in range(len(said)) for m in range(k) if fields(said[m]) <= fields(said[k])]
        assert hidden == [], key


def test_the_exercise_s_own_sentence_goes_before_the_general_one() -> None:
    facts = {"offset": 0, "wanted_offset": 1}
    assert sentence("2c", "OFFSET", facts, lang="en") == (
        "The head looks at offset 0; the previous token is at offset 1."
    )
    assert sentence("2a", "OFFSET", facts, lang="en") == "The head looks at offset 0; it should look at offset 1."
    assert sentence("2a", "OFFSET", {"offset": 3}, lang="en") == "The head looks at offset 3."


def test_where_it_was_found_and_what_would_mend_it_are_added() -> None:
    said = sentence("2a", "SIGN", {"repair": "NEGATE", "domain": "hidden"}, lang="en")
    assert "hidden data" in said and said.endswith("One change away: negating W_Q mends it.")
    assert "transpose" in sentence("2a", "SHAPE", {"transposed": True}, lang="en")
    assert "transpose" not in sentence("2a", "SHAPE", {"transposed": False}, lang="en")


def test_phrases_inside_facts_are_translated() -> None:
    assert "内容" in sentence("2c", "WRONG_READ", {"reads": "content"}, lang="zh")


@pytest.mark.parametrize("facts", [{}, {"factor": "text"}, {"tokens": 3}, {"share": None}, {"weird {}": "{x}"}])
@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_sentence_never_fails_for_its_facts(facts: dict[str, object], lang: str) -> None:
    codes = [
        key for key in (*texts(lang)["reasons"], "NEW_CODE") if not isinstance(texts(lang)["reasons"].get(key), dict)
    ]
    assert all(sentence("2d", code, facts, lang=lang) for code in codes)
    assert all(sentence("2d", f"note.{code}", facts, lang=lang) for code in texts(lang)["notes"])


def test_every_code_that_is_given_has_a_sentence() -> None:
    words = texts("en")
    known = set(words["reasons"]) | set(words["notes"]) | set(words["repairs"])
    no_codes = {"PREDICATES", "REFERENCES", "GIVENS", "LONGER", "CONTENT", "POSITION", "QKV", "QKVO"}
    folder = PACKAGE / "exercises"
    files = [*folder.glob("predicates/*.py"), *(folder / f"{name}.py" for name in ("answer", "checking", "diagnosis"))]
    said = {code for path in files for code in re.findall(r'"([A-Z][A-Z_0-9]{2,})"', path.read_text(encoding="utf-8"))}
    assert len(said) > 20 and {code for code in said if not code.startswith("W_")} - no_codes <= known


def test_an_unknown_code_says_its_facts() -> None:
    assert sentence("2c", "note.ODD", {"at": 2}, lang="en") == "ODD: at 2"


@pytest.mark.parametrize(("id", "near"), [("2g", "2"), ("w8", "w"), ("2C", "Did you mean 2c"), ("zz", "Known: w1")])
def test_an_unknown_exercise_names_the_nearest(id: str, near: str) -> None:
    with pytest.raises(UnknownName, match=near):
        exercise(id)


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(UnknownName, match="en or zh"):
        exercise("2c").words("fr")
    with pytest.raises(UnknownName, match="en or zh"):
        label("wanted", lang="de")
