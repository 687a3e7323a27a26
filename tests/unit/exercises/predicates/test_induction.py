"""Exercise 3's caveats with their numbers (exercises.md C4, C11, B5), and mutations of its references."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.exercises import checking
from headway.exercises.after_head import AfterPrevious
from headway.exercises.givens import given
from headway.exercises.references import reference
from headway.exercises.scoring import Head

check: Any = checking.check


def head_2(id: str):
    part = reference(id, given(id))
    return AfterPrevious(given(id), part["W_O1"] @ part["W_V1"]), Head(part["W_Q2"], part["W_K2"])


def test_a_query_equal_to_token_0_splits_its_attention_in_two():
    own, head = head_2("3")
    row = (1e4 * own.scores(head, (3, 1, 2, 3))).softmax(0)
    torch.testing.assert_close(row, torch.tensor([0.5, 0.5, 0, 0], dtype=torch.float64), atol=1e-9, rtol=0)
    row = (1e4 * own.scores(head, (1, 3, 2, 3))).softmax(0)
    torch.testing.assert_close(row, torch.tensor([0, 0, 1.0, 0], dtype=torch.float64), atol=1e-9, rtol=0)
    notes = [note.code for note in check("3", **reference("3", given("3"))).notes]
    assert "POSITION_0" in notes and "BUDGET" in notes


def test_head_1_may_leak_as_much_as_the_budget_says_and_little_more():
    verdict = check("3", **reference("3", given("3")))
    (budget,) = (note for note in verdict.notes if note.code == "BUDGET")
    own, head = head_2("3")
    proof = own.prove(head)
    allowed = budget.facts["leak_allowed"]
    assert allowed == pytest.approx(proof.margin / (proof.margin + proof.range))
    assert (1 - allowed) * proof.margin - allowed * proof.range == pytest.approx(0, abs=1e-12)


def test_v_may_overlap_content_a_little_but_not_much():
    """C11: tolerated at a cosine of .3, fatal when v all but is content."""
    g: Any = given("3")
    right = reference("3", g)
    write = g.space.write("content")
    there = torch.nn.functional.normalize(write @ (g.u_content @ write).T, dim=0)
    passed = {}
    for cosine in (0.3, 0.95):
        mixed = (1 - cosine**2) ** 0.5 * g.v_write + cosine * there
        passed[cosine] = check("3", **{**right, "W_O1": mixed}).passed
    assert passed == {0.3: True, 0.95: False}


@pytest.mark.parametrize("id", ["3", "3-rotary"])
@pytest.mark.parametrize("name", ["W_Q1", "W_K1", "W_V1", "W_O1", "W_Q2", "W_K2"])
@pytest.mark.parametrize("change", [torch.zeros_like, torch.neg, lambda W: W.roll(1, int(W.shape[0] > W.shape[1]))])
def test_a_mutated_reference_fails(id: str, name: str, change: Any):
    right = reference(id, given(id))
    verdict = check(id, **{**right, name: change(right[name])})
    assert not verdict.passed and verdict.reason


@pytest.mark.parametrize("id", ["3", "3-rotary"])
def test_negating_both_sides_of_a_circuit_changes_nothing(id: str):
    right = reference(id, given(id))
    assert check(id, **{**right, "W_Q1": -right["W_Q1"], "W_K1": -right["W_K1"]}).passed
    assert check(id, **{**right, "W_O1": -right["W_O1"], "W_V1": -right["W_V1"]}).passed
