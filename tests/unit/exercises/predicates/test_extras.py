from __future__ import annotations

import math
from typing import Any

from headway.exercises import checking
from headway.exercises.givens import given

check: Any = checking.check


def test_the_gap_by_hand_and_its_law():
    """exercises.md B2: periods 8 and 9 reach .117 at n = 64 under a bound of .297. One of 10 is back after ten steps."""
    verdict = check("frequencies", alpha=[2 * math.pi / 8, 2 * math.pi / 9])
    (note,) = verdict.notes
    assert verdict.passed and [round(note.facts[name], 3) for name in ("gap", "bound")] == [0.117, 0.297]
    back = check("frequencies", alpha=[2 * math.pi / 10, 2 * math.pi / 10])
    assert (back.reason, back.facts["offset"]) == ("TIE", 10)
    slow = check("frequencies", alpha=[2 * math.pi / 100] * 2)  # hardly turned after one step
    assert (slow.reason, slow.facts["offset"]) == ("ALIAS", 1)
    assert math.isclose(slow.facts["gap"], 1 - math.cos(2 * math.pi / 100), rel_tol=1e-9)


def test_what_defeats_the_published_pointer_is_an_average():
    """exercises.md C9: with its attention shared between two copies, the pointer stands on the token after neither."""
    g: Any = given("defeat-2d")
    part = g.solution
    tokens = [0, 2, 0, 0]
    assert check("defeat-2d", tokens=tokens).passed
    x = g.tokens[tokens] + g.positions[:4]
    scores = (x @ part["W_K"].T) @ (part["W_Q"] @ x[3])
    copies = [0, 2]
    assert float(scores[copies].min()) > float(scores[[1, 3]].max()), "2d finds both copies"
    pointed = x[copies].mean(0) @ (part["W_O"] @ part["W_V"]).T
    after = (x @ part["W_K2"].T) @ (part["W_Q2"] @ (x[3] + pointed))
    assert int(after.argmax()) == 2
