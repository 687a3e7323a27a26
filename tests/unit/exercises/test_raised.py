"""What a learner's code raised, as reason and facts: their own line, whatever was raised, wherever it came from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headway.exercises.raised import AnswerFailed, explained, guarded


def divide(x: float) -> float:
    return 1 / x


class Odd:
    def __call__(self, x: Any) -> Any:
        return x.nothing


def raised(function: Any, *inputs: Any, **facts: Any) -> AnswerFailed:
    with pytest.raises(AnswerFailed) as caught:
        guarded(function, **facts)(*inputs)
    return caught.value


def test_a_function_that_raises_nothing_is_itself() -> None:
    assert guarded(divide)(4) == 0.25


def test_its_own_line_is_named_and_more_facts_are_kept() -> None:
    problem = raised(divide, 0, domain="hidden")
    assert problem.reason == "ERROR" and problem.facts["domain"] == "hidden"
    assert (problem.facts["file"], problem.facts["code"]) == (Path(__file__).name, "return 1 / x")
    assert problem.facts["error"] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("function", [partial(divide, 0), Odd(), len])
def test_what_has_no_lines_of_its_own_is_told_too(function: Any) -> None:
    problem = raised(function, *(() if isinstance(function, partial) else (3,)))
    assert problem.reason == "ERROR_ELSEWHERE" and "line" not in problem.facts and problem.facts["file"]


def test_a_failure_that_was_told_already_passes_as_it_is() -> None:
    def again(_: Any) -> None:
        raise AnswerFailed("SLOW", {"seconds": 3})

    assert (raised(again, 1).reason, raised(again, 1, domain="hidden").facts) == ("SLOW", {"seconds": 3})


def test_memory_and_exits_have_reasons_of_their_own() -> None:
    assert explained(MemoryError(), "a.py")[0] == "MEMORY"
    assert explained(RuntimeError("can't allocate memory"), "a.py")[0] == "MEMORY"
    assert explained(SystemExit(3), "a.py") == ("EXIT", {"file": "a.py", "error": "exit code 3"})


def test_lines_that_nobody_has_are_left_out() -> None:
    """As typed at a prompt: the line has a number and no text."""
    space: dict[str, Any] = {}
    code = compile("def f(x):\n    return x.no\n", "<typed>", "exec")
    exec(code, space)  # noqa: S102 (what a prompt does)
    problem = raised(space["f"], 1)
    assert (problem.facts["line"], problem.facts["file"]) == (2, "<typed>") and "code" not in problem.facts
