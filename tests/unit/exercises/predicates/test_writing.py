"""2e: position goes to v by an invertible map, whole, alone, and nowhere else (C11)."""

from __future__ import annotations

from typing import Any

import pytest

from headway.exercises import checking
from headway.exercises.givens import given
from headway.exercises.predicates.attention import pairs
from headway.exercises.references import reference
from unit.exercises.specimens.pointer import RIGHT, WRONG

check: Any = checking.check  # answers are arrays in dictionaries, which a type checker cannot spread


@pytest.mark.parametrize("name", ["onto position", "onto content"])
def test_c11_v_must_not_overlap_what_is_occupied(name: str):
    g = given("2e")
    verdict = check("2e", **WRONG["2e"][name][0](g))
    assert verdict.reason == "OVERLAP"


def test_2e_says_when_2f_must_read_a_map_of_its_own():
    codes = {name: {n.code for n in check("2e", **RIGHT["2e"][name](given("2e"))).notes} for name in RIGHT["2e"]}
    assert codes["published"] == set()
    assert codes["ten times as large"] == set()
    assert "OWN_MAP" in codes["an invertible map"]
    assert "HARMLESS_READ" in codes["reads v as well, which is empty"]


def test_four_of_eight_coordinates_still_work_for_2f_but_are_not_2e():
    """The note of the exercise: two pairs are enough for the pointer, yet 2e asks for all four."""
    g = given("2f")
    some = {"W_V": pairs(g, 0, 1), "W_O": g.v_write[:, :4]}
    verdict = check("2e", **some)
    assert (verdict.passed, verdict.facts["rank"]) == (False, 4)
    x = g.positions + g.tokens[0]
    marks = x @ (some["W_O"] @ some["W_V"]).T
    second = reference("2f", g)
    for i in range(1, g.n):
        for p in range(i):
            row = (x[: i + 1] @ second["W_K"].T) @ (second["W_Q"] @ (x[i] + marks[p]))
            assert int(row.argmax()) == p + 1
