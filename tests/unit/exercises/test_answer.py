"""What a learner may hand in, and what each kind of unusable answer is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headway.exercises import answer
from headway.exercises.givens import given
from headway.exercises.references import reference

taken: Any = answer.taken
tensor_of: Any = answer.tensor_of
GIVEN = given("2c")
GOOD = reference("2c", GIVEN)


def told(**changes: Any):
    """The verdict on the reference with some of its arrays replaced."""
    problem = taken("2c", {**GOOD, **changes}, GIVEN)[1]
    assert problem is not None
    return problem


@pytest.mark.parametrize(
    "form",
    [
        lambda t: t,
        lambda t: t.clone().requires_grad_(),
        lambda t: t.to_sparse(),
        lambda t: t.numpy(),
        lambda t: t.tolist(),
        lambda t: tuple(map(tuple, t.tolist())),
        list,
    ],
    ids=["torch", "with gradient", "sparse", "numpy", "lists", "tuples", "list of tensors"],
)
def test_any_holder_of_numbers_becomes_float64(form: Any):
    values, problem = taken("2c", {name: form(array) for name, array in GOOD.items()}, GIVEN)
    assert problem is None
    assert all(torch.equal(values[name], GOOD[name]) for name in GOOD)
    assert {value.dtype for value in values.values()} == {torch.float64}


def test_integers_and_booleans_are_numbers():
    assert tensor_of(torch.tensor([[1, 0]])).dtype == torch.float64
    assert tensor_of([[True, False]]).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("value", ["text", [["a"]], [[1.0], [1.0, 2.0]], np.array([None, 1]), torch.ones(2, 2) * 1j])
def test_what_holds_no_real_numbers_is_told(value: Any):
    verdict = told(W_Q=value)
    assert (verdict.reason, verdict.facts["name"], verdict.passed) == ("NOTNUMBERS", "W_Q", False)


@pytest.mark.parametrize(
    "array,says,transposed",
    [
        (GOOD["W_Q"].T, "the axis d_head does not fit", True),
        (GOOD["W_Q"][:, :5], "the axis d_model does not fit", False),
        (torch.ones(5, 32), "the axis d_head does not fit", False),
        (torch.ones(0, 32), "the axis d_head does not fit", False),
        (torch.ones(32), "the number of axes is 1, not 2", False),
        (torch.ones(1, 4, 32), "the number of axes is 3, not 2", False),
        (3.0, "the number of axes is 0, not 2", False),
    ],
)
def test_a_wrong_shape_names_the_axis_and_whether_the_transpose_fits(array: Any, says: Any, transposed: Any):
    verdict = told(W_Q=array)
    assert (verdict.reason, verdict.facts["transposed"]) == ("SHAPE", transposed)
    assert says in verdict.message and verdict.facts["wanted"] == "(d_head<=4, d_model=32)"


def test_an_empty_axis_of_free_size_is_told():
    here = given("w7")
    right = reference("w7", here)
    problem = taken("w7", {**right, "write": torch.ones(12, 0)}, here)[1]
    assert problem is not None and problem.message == (
        "write is (12, 0); expected (d_model=12, any number): axis 1 is empty."
    )


def test_both_sides_of_a_head_have_one_width():
    verdict = told(W_K=GOOD["W_K"][:2])
    assert (verdict.reason, verdict.facts["name"]) == ("SHAPE", "W_K")
    assert taken("2c", {name: array[:2] for name, array in GOOD.items()}, GIVEN)[1] is None


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_counted(bad: Any):
    array = GOOD["W_K"].clone()
    array[1, 3] = bad
    verdict = told(W_K=array)
    assert (verdict.reason, dict(verdict.facts)) == ("NONFINITE", {"name": "W_K", "count": 1})


def test_names_come_before_shapes():
    assert "W_Q" in told(W_q=GOOD["W_Q"]).facts["did_you_mean"]
    assert told(W_q=GOOD["W_Q"]).reason == "UNKNOWN"
    assert told(W_K=None).message == "The answer lacks W_K; it has W_Q."


def test_names_given_as_none_are_not_there():
    here = given("3")
    right = reference("3", here)
    problem = taken("3", {**right, "W_K2": None, "W_Q1": None}, here)[1]
    assert problem is not None and problem.facts == {"names": "W_Q1, W_K2", "got": "W_K1, W_V1, W_O1, W_Q2"}


@pytest.mark.parametrize(
    "raw,reason",
    [
        (None, "UNCHANGED"),
        ({"W_Q": None, "W_K": None}, "UNCHANGED"),
        ({}, "MISSING"),
        ([1, 2], "MISSING"),
        ({"W_Q": GOOD["W_Q"]}, "MISSING"),
    ],
)
def test_an_answer_that_is_not_there_is_told(raw: Any, reason: Any):
    values, problem = taken("2c", raw, GIVEN)
    assert values == {}
    assert problem is not None and problem.reason == reason


def test_rotary_heads_have_an_exact_width():
    here = given("2c-rotary")
    narrow = {name: array[:4] for name, array in reference("2c-rotary", here).items()}
    problem = taken("2c-rotary", narrow, here)[1]
    assert problem is not None and problem.facts["wanted"] == "(d_head=8, d_model=32)"


def test_numbers_and_functions_are_taken_where_they_are_asked_for():
    asked = {"rank_QK": 4, "rank_OV": np.int64(4)}
    values, problem = taken("w6", asked, GIVEN)
    assert problem is None and values == {"rank_QK": 4.0, "rank_OV": 4.0}
    assert taken("w6", {**asked, "rank_QK": "four"}, GIVEN)[1].reason == "NOTNUMBERS"
    assert taken("w6", {**asked, "rank_QK": float("nan")}, GIVEN)[1].reason == "NONFINITE"
    assert taken("w6", {**asked, "rank_QK": [4, 4]}, GIVEN)[1].reason == "SHAPE"
    assert taken("w5", {"head": len}, GIVEN)[0] == {"head": len}
    assert taken("w5", {"head": 3}, GIVEN)[1].reason == "NOTNUMBERS"
