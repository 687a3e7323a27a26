"""Mutations of the references: each fails, or leaves W_OV and (up to row constants on the domain) W_QK as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.errors import UnknownName
from headway.exercises import checking
from headway.exercises.givens import given, longer
from headway.exercises.references import reference
from headway.exercises.scoring import Head, states_of

check: Any = checking.check  # answers are arrays in dictionaries, which a type checker cannot spread

QK_IDS = ("2a", "2b", "2c", "2d", "2f", "2b-rotary", "2c-rotary")
SEEDS = (0, 1)


def quarter(rows: Any):
    """Each pair of rows turned by a right angle."""
    return torch.stack((-rows[1::2], rows[0::2]), dim=1).flatten(0, 1)


def one_factor(change: Any):
    return [lambda a, name=name: {**a, name: change(a[name])} for name in ("first", "second")]


MUTATIONS = {
    "drop": one_factor(torch.zeros_like),
    "negate": one_factor(torch.neg),
    "swap": [lambda a: {"first": a["second"], "second": a["first"]}],
    "shift rows": one_factor(lambda rows: rows.roll(1, 0)),
    "reverse rows": one_factor(lambda rows: rows.flip(0)),
    "rotate": one_factor(quarter),
    "rotate twice": one_factor(lambda rows: quarter(quarter(rows))),
}
CASES = [pytest.param(change, id=f"{name} {i}") for name, some in MUTATIONS.items() for i, change in enumerate(some)]


def same_scores(id: str, one: Any, other: Any):
    """Whether two heads have equal scores on the exercise's longest domain up to a constant of each query's row."""
    here = longer(given(id)) or given(id)
    if id == "2f":  # its queries read v, which the plain streams leave empty: compare W_QK itself
        return torch.allclose(one["W_Q"].T @ one["W_K"], other["W_Q"].T @ other["W_K"], atol=1e-9)
    rows = []
    for answer in (one, other):
        states = states_of(here, Head(answer["W_Q"], answer["W_K"]))
        scores = torch.einsum("ish,juh->isju", states.Q, states.K)
        rows.append(scores - scores.mean((2, 3), keepdim=True))
    return torch.allclose(*rows, atol=1e-9)


@pytest.mark.parametrize("change", CASES)
@pytest.mark.parametrize("id", QK_IDS)
def test_a_mutated_attention_reference_fails_or_is_the_same_head(id: str, change: Any):
    right = reference(id, given(id))
    mutated = change({"first": right["W_Q"], "second": right["W_K"]})
    answer = {"W_Q": mutated["first"], "W_K": mutated["second"]}
    assert same_scores(id, right, answer) == check(id, **answer).passed


@pytest.mark.parametrize("change", CASES)
def test_a_mutated_2e_fails_or_breaks_2f_or_is_the_same(change: Any):
    """2e alone accepts any invertible map to v, since 2f may undo it; with the reference's 2f none but its own is right."""
    g = given("2f")
    right = reference("2e", g)
    mutated = change({"first": right["W_V"], "second": right["W_O"].T})
    answer = {"W_V": mutated["first"], "W_O": mutated["second"].T}
    same = torch.allclose(answer["W_O"] @ answer["W_V"], right["W_O"] @ right["W_V"], atol=1e-9)
    alone = check("2e", **answer).passed
    together = alone and check("2f", earlier={"2e": answer}, **reference("2f", g)).passed
    assert together == same


@pytest.mark.parametrize("name", ["W_Q", "W_K"])
def test_a_transposed_array_is_told_that_its_transpose_fits(name: str):
    right = reference("2d", given("2d"))
    verdict = check("2d", **{**right, name: right[name].T})
    assert (verdict.reason, verdict.facts["transposed"]) == ("SHAPE", True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("id", [*QK_IDS, "2e"])
def test_references_are_functions_of_what_is_given(id: str, seed: int):
    here = given(id, seed=seed)
    answer = reference(id, here)
    assert {array.dtype for array in answer.values()} == {torch.float64}
    assert all(here.d_model in array.shape for array in answer.values())


def test_an_unknown_exercise_has_no_reference():
    with pytest.raises(UnknownName):
        reference("9z", given("2a"))
