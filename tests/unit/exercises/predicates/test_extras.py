from __future__ import annotations

import math
from typing import Any

import torch

from headway.exercises import checking
from headway.exercises.givens import given
from headway.exercises.predicates.frequencies import gap_at, most_gap

check: Any = checking.check


def test_the_gap_by_hand_and_its_law():
    """exercises.md B2: the best single pair at n = 16 reaches .0761 under a bound of .0865; two periods at 64 .117."""
    assert round(float(gap_at(torch.tensor([2 * math.pi / 16]), 16).min()), 4) == 0.0761
    assert round(most_gap(16, 1), 4) == 0.0865
    assert round(float(gap_at(2 * math.pi / torch.tensor([8.0, 9.0]), 64).min()), 3) == 0.117
    assert round(most_gap(64, 2), 3) == 0.297 and round(most_gap(1024, 2), 4) == 0.0192
    random = torch.Generator().manual_seed(0)
    for k in (1, 2, 3):
        for _ in range(200):
            alpha = 2 * math.pi * torch.rand(k, generator=random, dtype=torch.float64)
            assert float(gap_at(alpha, 40).min()) <= most_gap(40, k) + 1e-12


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
