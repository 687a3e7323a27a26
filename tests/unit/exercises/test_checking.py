"""Deciding an answer over all its domains, with earlier parts, in two languages, and misuse of the call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.errors import UnknownName, UsageError
from headway.exercises import checking
from headway.exercises.catalogue import LANGUAGES
from headway.exercises.checking import Submission, grade
from headway.exercises.givens import Given, given
from headway.exercises.predicates.attention import pairs, turns
from headway.exercises.references import reference
from support.unchecked import as_users_run_it

check: Any = checking.check  # answers are arrays in dictionaries, which a type checker cannot spread

IDS = ("2a", "2b", "2c", "2d", "2e", "2f", "2b-rotary", "2c-rotary")


@pytest.mark.parametrize("id", IDS)
def test_a_reference_passes_as_arrays_and_as_a_function(id: str):
    assert check(id, **reference(id, given(id))).passed
    assert check(id, solve=lambda g: reference(id, g)).passed


@pytest.mark.parametrize("id", IDS)
def test_remembered_arrays_do_not_pass_as_a_function(id: str):
    """Another size, rotation and spectrum: arrays of the visible data do not even fit there."""
    remembered = reference(id, given(id))
    verdict = check(id, solve=lambda _: remembered)
    assert (verdict.passed, verdict.facts["domain"]) == (False, "hidden")


def test_arrays_that_fit_only_what_was_shown_fail_on_more_of_it():
    g = given("2c")
    pair = pairs(g, 1)
    verdict = check("2c", W_Q=turns(g, -1.0, 1) @ pair, W_K=pair)
    assert (verdict.reason, verdict.facts["domain"], verdict.facts["offset"]) == ("ALIAS", "longer", 17)


def test_content_of_the_shown_tokens_alone_is_not_all_content():
    """Rows that vanish on the eight tokens shown, but not on content: fine as long as nobody else comes."""
    g = given("2b")
    contents = g.tokens @ g.space.read("content").T
    hidden_part = torch.linalg.svd(contents)[2][-1] @ g.space.read("content")
    rows = pairs(g, 0, 1)
    leaky = rows + 5 * torch.outer(torch.ones(4).double(), hidden_part)
    assert (g.tokens @ hidden_part).abs().max() < 1e-10
    verdict = check("2b", W_Q=rows, W_K=leaky)
    assert (verdict.reason, verdict.facts["domain"]) == ("CONTENT_LEAK", "longer")


def own_parts(g: Given, seed: int = 3):
    """2e and 2f in a basis of v of the learner's own: consistent with each other, not with the reference."""
    random = torch.Generator().manual_seed(seed)
    M = torch.randn(8, 8, generator=random, dtype=torch.float64) + 2 * torch.eye(8).double()
    first = {"W_V": M @ reference("2e", g)["W_V"], "W_O": g.v_write}
    second = {"W_Q": turns(g, 1.0, 0, 1) @ (torch.linalg.inv(M) @ g.v)[:4], "W_K": pairs(g, 0, 1)}
    return first, second


def test_a_later_part_is_graded_on_the_learners_own_earlier_part():
    first, second = own_parts(given("2f"))
    assert check("2f", earlier={"2e": first}, **second).passed
    assert not check("2f", **second).passed
    plain = check("2f", earlier={"2e": first}, **reference("2f", given("2f")))
    assert (plain.reason, plain.facts["part"]) == ("DOWNSTREAM", "2e")


def test_earlier_parts_may_be_functions():
    verdict = check("2f", earlier={"2e": lambda g: own_parts(g)[0]}, solve=lambda g: own_parts(g)[1])
    assert verdict.passed


def test_2e_already_turned_needs_no_turn_in_2f():
    g = given("2f")
    every = (0, 1, 2, 3)
    first = {"W_V": turns(g, 1.0, *every) @ pairs(g, *every), "W_O": g.v_write}
    verdict = check("2f", earlier={"2e": first}, W_Q=g.v[:4], W_K=pairs(g, 0, 1))
    assert verdict.passed


def test_an_earlier_part_that_fails_or_is_absent_is_replaced_and_said_so():
    g = given("2f")
    bad = {"W_V": torch.zeros(8, g.d_model), "W_O": g.v_write}
    verdict = check("2f", earlier={"2e": bad}, **reference("2f", g))
    said = {note.facts["part"]: note.facts["why"] for note in verdict.notes if note.code == "EARLIER"}
    assert verdict.passed and said == {"2d": "absent", "2e": "failed"}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_verdict_speaks_the_language_that_was_asked_for(lang: str):
    g = given("2c")
    verdict = check("2c", W_Q=pairs(g, 0, 1), W_K=pairs(g, 0, 1), lang=lang)
    assert verdict.message == verdict.text(lang)
    assert verdict.text("en") != verdict.text("zh")


def test_misuse_of_the_call_is_an_error_not_a_verdict():
    with pytest.raises(UnknownName, match="2zz"):
        check("2zz", W_Q=[[1.0]])
    with pytest.raises(UsageError, match="not both"):
        check("2a", solve=lambda g: {}, W_Q=[[1.0]])
    with pytest.raises(UsageError, match="does not build on '2a'"):
        check("2f", earlier={"2a": {}}, **reference("2f", given("2f")))
    with pytest.raises(UnknownName):
        check("2f", earlier={"nothing": {}}, **reference("2f", given("2f")))
    with as_users_run_it(), pytest.raises(UnknownName, match="no language"):
        check("2a", lang="xx", **reference("2a", given("2a")))


def test_what_a_function_raises_is_a_verdict_with_its_own_line():
    def solve(g: Given):
        return {"W_Q": g.u_content / g.nothing, "W_K": g.u_content}

    verdict = check("2a", solve=solve)
    assert verdict.reason == "ERROR" and verdict.facts["file"] == "test_checking.py"
    assert verdict.facts["code"].startswith('return {"W_Q": g.u_content') and "gives no 'nothing'" in verdict.message


def test_what_a_function_raises_on_the_hidden_data_alone_says_so():
    verdict = check("2a", solve=lambda g: reference("2a", g) if g.n == 12 else 1 / 0)
    assert (verdict.reason, verdict.facts["domain"]) == ("ERROR", "hidden") and "ZeroDivisionError" in verdict.message


@pytest.mark.parametrize("as_function", [True, False])
def test_what_a_function_of_the_answer_raises_is_a_verdict_too(as_function: bool):
    def head(W_QK: Any, W_OV: Any, x: Any):
        return x @ W_OV.T @ W_QK[:0]

    verdict = check("w5", solve=lambda g: {"head": head}) if as_function else check("w5", head=head)
    assert verdict.reason == "ERROR" and verdict.facts["code"] == "return x @ W_OV.T @ W_QK[:0]"
    assert check("w5", head=5j).reason == "NOTNUMBERS"


def test_an_earlier_part_that_raises_is_replaced_and_said_so():
    verdict = check("2f", earlier={"2e": lambda g: 1 / 0}, solve=lambda g: reference("2f", g))
    assert verdict.passed and {note.facts["part"] for note in verdict.notes if note.code == "EARLIER"} == {"2d", "2e"}


def test_leaving_and_ctrl_c_are_no_verdicts():
    def leave(_: Given):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("2a", solve=leave)


def test_a_function_after_arrays_is_graded_where_the_arrays_belong():
    """2e as arrays has no hidden answer: a right 2f function, in the learner's own basis of v, is right."""
    first, _ = own_parts(given("2f"))
    verdict = check("2f", earlier={"2e": first}, solve=lambda g: own_parts(g)[1])
    assert verdict.passed and [n.facts["parts"] for n in verdict.notes if n.code == "VISIBLE_ONLY"] == ["2e"]
    wrong = check("2f", earlier={"2e": first}, solve=lambda g: reference("2f", g))
    assert (wrong.reason, wrong.facts["domain"]) == ("DOWNSTREAM", "visible")
    assert "VISIBLE_ONLY" in [note.code for note in wrong.notes]
    seen = check("2f", earlier={"2e": lambda g: own_parts(g)[0]}, solve=lambda g: own_parts(g)[1])
    assert seen.passed and "VISIBLE_ONLY" not in [note.code for note in seen.notes]


@pytest.mark.parametrize("id", ["1c", "1d"])
def test_exercise_1_has_the_same_hidden_data_so_arrays_serve_there_too(id: str):
    e = torch.eye(16)
    mine = {"W_V": e[[5, 6, 7, 10]], "W_O": e[:, [12, 4, 13, 15]]}
    W1, W2 = e[:, 8:12] @ e[:4], mine["W_O"] @ mine["W_V"]
    terms = {"two_token": W2 @ W1, "one_token": W1 + W2, "rank_two_token": 1, "rank_one_token": 8}
    answer = {"W_OV1": W1, "W_OV2": W2} if id == "1c" else terms
    verdict = check(id, earlier={"1b": mine}, solve=lambda _: answer)
    assert verdict.passed and "VISIBLE_ONLY" not in [note.code for note in verdict.notes]
    assert not check(id, earlier={"1b": mine}, solve=lambda g: reference(id, g)).passed
    hidden = grade(id, Submission(answer, reference(id, given(id, hidden=True))), earlier={"1b": Submission(mine)})
    assert (hidden.passed, hidden.facts["domain"]) == (False, "hidden"), "the hidden answer is graded all the same"


def test_what_a_child_process_computed_is_graded_alike():
    here, there = given("2a"), given("2a", hidden=True)
    assert grade("2a", Submission(reference("2a", here), reference("2a", there))).passed
    broken = grade("2a", Submission(reference("2a", here), {"W_Q": None, "W_K": None}))
    assert (broken.reason, broken.facts["domain"]) == ("UNCHANGED", "hidden")
