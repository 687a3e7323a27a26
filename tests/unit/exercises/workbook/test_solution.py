"""Reference code that can be read by itself."""

from __future__ import annotations

import ast

import pytest

from headway.errors import UnknownName
from headway.exercises.catalogue import exercises
from headway.exercises.workbook.solution import reference_code


@pytest.mark.parametrize("id", [entry.id for entry in exercises()])
def test_every_reference_is_shown_with_what_it_calls(id: str) -> None:
    tree = ast.parse(reference_code(id))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert (names or isinstance(tree.body[-1], ast.Expr)) and len(names) == len(set(names))


def test_helpers_come_before_who_calls_them() -> None:
    code = reference_code("2c")
    assert code.index("def pairs") < code.index("def _previous") and code.index("def turns") < code.index(
        "def _previous"
    )


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(UnknownName):
        reference_code("2z")
