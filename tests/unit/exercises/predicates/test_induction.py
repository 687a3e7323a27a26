"""Exercise 3's caveats with their numbers (exercises.md C4, C11, B5), and mutations of its references."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.exercises import checking
from headway.exercises.after_head import AfterPrevious
from headway.exercises.givens import given
from headway.exercises.predicates.induction import induction
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


@pytest.mark.parametrize("lang,said", [("en", "does not count"), ("zh", "不计")])
def test_the_note_on_position_0_is_true_of_what_is_shown(lang: str, said: str):
    """A head 2 that reads content: the sequence shown begins with another token, so position 0 takes no part in it."""
    right = reference("3", given("3"))
    verdict = check("3", **{**right, "W_K2": right["W_Q2"]})
    shown = verdict.counterexample
    assert shown is not None and shown.tokens[0] != shown.tokens[-1] == shown.tokens[1]
    assert len(shown.tokens) == 3  # the shortest: another token, then the query's own twice
    assert shown.attention[0] < 0.01 and shown.target == (2,)
    assert any(said in text for text in verdict.note_texts(lang))


def soft_run(g: Any, part: Any, T: float, tokens: Any):
    """Scores of head 2's last query [key], and head 1's largest leak, with head 1's scores multiplied by T."""
    x = g.tokens[tokens] + g.positions[: len(tokens)]
    scores = T * (x @ part["W_Q1"].T) @ (part["W_K1"] @ x.T)
    A = scores.masked_fill(~torch.ones_like(scores).tril().bool(), -torch.inf).softmax(-1)
    A[0] = torch.eye(len(tokens), dtype=torch.float64)[0]
    after = x + A @ x @ (part["W_O1"] @ part["W_V1"]).T
    return (part["W_K2"] @ after.T).T @ (part["W_Q2"] @ after[-1]), 1 - float(A.diagonal(-1).min())


def worst_of_random(g: Any, part: Any, T: float):
    """Least margin of head 2, and largest leak of head 1, over random sequences."""
    random = torch.Generator().manual_seed(1)
    margins, leaks = [], []
    for _ in range(300):
        tokens = torch.randint(g.n_tokens, (g.n,), generator=random)
        row, leak = soft_run(g, part, T, tokens)
        hits = torch.cat((torch.tensor([False]), tokens[:-1] == tokens[-1]))
        rivals = ~hits
        rivals[0] = tokens[0] != tokens[-1]
        leaks.append(leak)
        if bool(hits.any()):
            margins.append(float(row[hits].min() - row[rivals].max()))
    return min(margins), max(leaks)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_soft_head_1_within_the_budget_leaves_head_2_right(hidden: bool):
    """B5, run: at the T that the note names head 1 leaks no more than allowed, and head 2 is right; far below it is not."""
    g: Any = given("3", hidden=hidden)
    part: Any = reference("3", g)
    (budget,) = (note for note in induction(g, part, {}).notes if note.code == "BUDGET")
    margin, leak = worst_of_random(g, part, budget.facts["T"])
    assert leak <= budget.facts["leak_allowed"] < 0.5 and margin > 0
    margin, leak = worst_of_random(g, part, 0.0)
    assert leak > 0.9 and margin < 0


def test_v_may_overlap_content_a_little_but_not_much():
    """C11: tolerated at a cosine of .3, fatal at .6."""
    g: Any = given("3")
    right = reference("3", g)
    write = g.space.write("content")
    there = torch.nn.functional.normalize(write @ (g.u_content @ write).T, dim=0)
    passed = {}
    for cosine in (0.3, 0.6):
        mixed = (1 - cosine**2) ** 0.5 * g.v_write + cosine * there
        passed[cosine] = check("3", **{**right, "W_O1": mixed}).passed
    assert passed == {0.3: True, 0.6: False}


def shifted(W: Any):
    return W.roll(1, int(W.shape[0] > W.shape[1]))


def quarter(W: Any):
    """Each pair of dims inside the head turned by a right angle."""
    if W.shape[0] > W.shape[1]:
        return quarter(W.T).T
    return torch.stack((-W[1::2], W[0::2]), dim=1).flatten(0, 1)


@pytest.mark.parametrize("id", ["3", "3-rotary"])
@pytest.mark.parametrize("one,other", [("W_Q1", "W_K1"), ("W_Q2", "W_K2"), ("W_Q1", "W_Q2"), ("W_K1", "W_K2")])
def test_a_reference_with_two_factors_exchanged_fails(id: str, one: str, other: str):
    right = reference(id, given(id))
    assert not check(id, **{**right, one: right[other], other: right[one]}).passed


@pytest.mark.parametrize("name", ["W_Q1", "W_V1", "W_O1", "W_K2"])
def test_a_transposed_factor_is_told(name: str):
    right = reference("3", given("3"))
    verdict = check("3", **{**right, name: right[name].T})
    assert (verdict.reason, verdict.facts["transposed"]) == ("SHAPE", True)


def test_values_beyond_float64_are_said_to_be():
    right = reference("3", given("3"))
    verdict = check("3", **{**right, "W_V1": 1e200 * right["W_V1"], "W_O1": 1e200 * right["W_O1"]})
    assert (verdict.reason, verdict.facts["name"]) == ("NONFINITE", "W_OV of head 1")


@pytest.mark.parametrize("id", ["3", "3-rotary"])
@pytest.mark.parametrize("name", ["W_Q1", "W_K1", "W_V1", "W_O1", "W_Q2", "W_K2"])
@pytest.mark.parametrize("change", [torch.zeros_like, torch.neg, shifted, quarter])
def test_a_mutated_reference_fails(id: str, name: str, change: Any):
    right = reference(id, given(id))
    verdict = check(id, **{**right, name: change(right[name])})
    assert not verdict.passed and verdict.reason


@pytest.mark.parametrize("id", ["3", "3-rotary"])
def test_negating_both_sides_of_a_circuit_changes_nothing(id: str):
    right = reference(id, given(id))
    assert check(id, **{**right, "W_Q1": -right["W_Q1"], "W_K1": -right["W_K1"]}).passed
    assert check(id, **{**right, "W_O1": -right["W_O1"], "W_V1": -right["W_V1"]}).passed
