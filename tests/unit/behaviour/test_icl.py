"""Losses along the context, from losses known by hand and from a model token by token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from headway.behaviour.icl import in_context_score, loss_by_position
from headway.behaviour.windows import window_losses
from headway.errors import ShapeProblem, TextProblem, UsageError
from support.random_models import random_tokens, random_weights

WEIGHTS = random_weights()
WINDOWS = random_tokens(WEIGHTS, rows=4, n=9)
# 4 windows of 8 predictions: window r loses r + i at position i, so means and errors are plain arithmetic.
LOSSES = torch.arange(4.0, dtype=torch.float64)[:, None] + torch.arange(8.0, dtype=torch.float64)
SPREAD = math.sqrt(5 / 3) / 2  # sd of 0, 1, 2, 3 over root 4


def test_rows_are_positions_with_mean_and_error():
    table = loss_by_position(WEIGHTS, WINDOWS, losses=LOSSES)
    assert [row["position"] for row in table.rows()] == list(range(8))
    for i, row in enumerate(table.rows()):
        assert (row["loss"], row["se"], row["n"]) == pytest.approx((1.5 + i, SPREAD, 4), abs=1e-12)
        assert row["flag"] is None
    assert table.provenance.weights == WEIGHTS.content_hash()


def test_losses_are_computed_when_not_given():
    losses, seen = window_losses(WEIGHTS, WINDOWS), []
    table = loss_by_position(WEIGHTS, WINDOWS, progress=lambda done, total: seen.append((done, total)))
    assert [row["loss"] for row in table.rows()] == pytest.approx(losses.mean(0).tolist(), abs=1e-12)
    assert seen == [(4, 4)]
    given = in_context_score(WEIGHTS, WINDOWS, losses=losses, late=7, early=1)
    assert in_context_score(WEIGHTS, WINDOWS, late=7, early=1).rows() == given.rows()


@pytest.mark.parametrize(
    ("late", "early", "score"),
    [(7, 2, 5.0), ((6, 7), (0, 1), 6.0), ((4, 7), 0, 5.5)],
)
def test_the_score_is_late_minus_early_and_says_where(late: Any, early: Any, score: float):
    row = in_context_score(WEIGHTS, WINDOWS, losses=LOSSES, late=late, early=early).rows()[0]
    assert row["in_context_score"] == pytest.approx(score, abs=1e-12)
    assert row["in_context_score_se"] == pytest.approx(0, abs=1e-12)  # paired: windows differ by a constant
    at = [(x, x) if isinstance(x, int) else x for x in (late, early)]
    assert (row["late_first"], row["late_last"], row["early_first"], row["early_last"]) == (*at[0], *at[1])
    assert row["loss_late"] - row["loss_early"] == pytest.approx(score, abs=1e-12)


def test_the_error_is_over_windows():
    losses = LOSSES.clone()
    losses[:, 7] = torch.tensor([1.0, 1.0, 5.0, 5.0])
    losses[:, 2] = torch.tensor([0.0, 2.0, 0.0, 2.0])
    row = in_context_score(WEIGHTS, WINDOWS, losses=losses, late=7, early=2).rows()[0]
    differences = torch.tensor([1.0, -1.0, 5.0, 3.0], dtype=torch.float64)
    assert row["in_context_score"] == pytest.approx(2.0, abs=1e-12)
    assert row["in_context_score_se"] == pytest.approx(float(differences.std()) / 2, abs=1e-12)


@pytest.mark.parametrize(("n", "late", "early"), [(512, 500, 50), (256, 250, 25), (8, 7, 0)])
def test_default_indices_are_the_papers_in_proportion(n: int, late: int, early: int):
    windows = torch.zeros(2, n + 1, dtype=torch.int64)
    row = in_context_score(WEIGHTS, windows, losses=torch.ones(2, n, dtype=torch.float64)).rows()[0]
    assert (row["late_first"], row["late_last"], row["early_first"], row["early_last"]) == (late, late, early, early)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"late": 8}, TextProblem, "late positions up to 7"),
        ({"late": (3, 8), "early": 1}, TextProblem, "too short for the late"),
        ({"late": 7, "early": 9}, TextProblem, "too short for the early"),
        ({"late": 2, "early": 2}, UsageError, "early < late"),
        ({"late": (3, 5), "early": (1, 3)}, UsageError, "early < late"),
        ({"late": (5, 4), "early": 0}, UsageError, "first <= last"),
        ({"late": 7, "early": -1}, UsageError, ">= 0"),
    ],
)
def test_indices_that_do_not_fit_are_refused(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        in_context_score(WEIGHTS, WINDOWS, losses=LOSSES, **options)


def test_losses_of_other_windows_are_refused():
    with pytest.raises(ShapeProblem, match="window=4, pos=8"):
        loss_by_position(WEIGHTS, WINDOWS, losses=LOSSES[:, :5])


def test_one_window_has_no_error():
    for table in (loss_by_position(WEIGHTS, WINDOWS[:1]), in_context_score(WEIGHTS, WINDOWS[:1], late=7, early=1)):
        assert table.rows()[0]["flag"] == "one window: no standard error"
