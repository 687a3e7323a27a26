"""Every exercise of the catalogue has a home, and homes name only exercises that exist."""

from __future__ import annotations

import pytest

from headway.errors import UnknownName
from headway.exercises.catalogue import exercises
from headway.exercises.registry import MODULES, table


def test_catalogue_and_homes_name_the_same_exercises():
    assert {exercise.id for exercise in exercises()} == set(MODULES)


@pytest.mark.parametrize("id", ["2a", "2b", "2c", "2d", "2e", "2f", "2b-rotary", "2c-rotary"])
def test_predicate_and_reference_stand_together(id: str):
    assert id in table(id, "PREDICATES") and id in table(id, "REFERENCES")
    assert table("2a", "NOSUCHTABLE") == {}


def test_an_unknown_exercise_is_named_with_its_neighbours():
    with pytest.raises(UnknownName, match="2b-rotary"):
        table("2b-rotari", "PREDICATES")
