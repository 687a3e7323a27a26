"""Lines that fit a terminal, whatever the script."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from headway.exercises.catalogue import exercises
from headway.exercises.workbook.wrapping import wrapped


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_statement_fits_and_loses_nothing(lang: str, width: int) -> None:
    for entry in exercises():
        text = entry.words(lang).statement
        lines = wrapped(text, width)
        flowing = [line for line in lines if not line.startswith(" ")]
        assert max(map(cell_len, flowing)) <= width, entry.id
        assert "".join("".join(lines).split()) == "".join(text.split())


def test_closing_punctuation_begins_no_line() -> None:
    assert wrapped("注意，注意。", 4) == ["注", "意，", "注", "意。"]


def test_indented_lines_and_empty_lines_stand() -> None:
    assert wrapped("a b\nc\n  x   y\n\nd", 80) == ["a b c", "  x   y", "", "d"]


def test_a_word_that_is_too_long_stands_alone() -> None:
    assert wrapped("a bcdefgh i", 4) == ["a", "bcdefgh", "i"]


def test_an_indent_counts() -> None:
    assert wrapped("aa bb cc", 7, indent="  ") == ["  aa bb", "  cc"]


def test_nothing_gives_no_lines() -> None:
    assert wrapped("", 10) == []
