"""Every right answer passes and every wrong one fails for its reason: on the visible, the longer and the hidden data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.exercises import checking
from headway.exercises.catalogue import exercises
from headway.exercises.checking import Submission, grade
from headway.exercises.givens import given
from headway.exercises.references import reference
from unit.exercises.specimens import attention, extras, induction, pointer, residual, rotary, warmup

check: Any = checking.check  # answers are arrays in dictionaries, which a type checker cannot spread

HOMES = (warmup, residual, attention, pointer, induction, rotary, extras)
RIGHT: dict[str, Any] = {id: some for home in HOMES for id, some in home.RIGHT.items()}
WRONG: dict[str, Any] = {id: some for home in HOMES for id, some in home.WRONG.items()}


def cases(specimens: Any):
    return [pytest.param(id, name, id=f"{id} {name}") for id, some in specimens.items() for name in some]


def copy_of(id: str, answer: Any, seed: int):
    """The same head in another basis inside: its circuits stay, every array changes. Other answers as given."""
    if id in {"3", "3-rotary"}:
        queries = copy_of(f"2{id[1:]}", {"W_Q": answer["W_Q2"], "W_K": answer["W_K2"]}, seed)
        values = copy_of("2e", {"W_V": answer["W_V1"], "W_O": answer["W_O1"]}, seed)
        return {**answer, **{f"{n}2": W for n, W in queries.items()}, **{f"{n}1": W for n, W in values.items()}}
    if id[0] == "w" or not {"W_Q", "W_V"} & set(answer):
        return answer
    answer = {name: torch.as_tensor(array) for name, array in answer.items()}
    random = torch.Generator().manual_seed(seed)
    width = next(iter(answer.values())).shape[0]
    mix = torch.randn(width, width, generator=random, dtype=torch.float64) + 2 * torch.eye(width, dtype=torch.float64)
    if id.endswith("-rotary"):  # only what commutes with the rotations: a turn and a stretch within each pair
        a, b = torch.randn(2, width // 2, generator=random, dtype=torch.float64)
        mix = torch.block_diag(
            *(torch.stack((torch.stack((c, -s)), torch.stack((s, c)))) for c, s in zip(a, b, strict=True))
        )
    if "W_Q" in answer:
        return {"W_Q": mix @ answer["W_Q"], "W_K": torch.linalg.inv(mix).T @ answer["W_K"]}
    return {"W_V": mix @ answer["W_V"], "W_O": answer["W_O"] @ torch.linalg.inv(mix)}


@pytest.mark.parametrize("id,name", cases(RIGHT))
def test_a_right_answer_passes(id: str, name: str):
    specimen = RIGHT[id][name]
    verdict = check(id, solve=specimen)
    assert verdict.passed, verdict
    for seed in (1, 2):
        assert check(id, **copy_of(id, specimen(given(id)), seed)).passed


@pytest.mark.parametrize("id,name", cases(WRONG))
def test_a_wrong_answer_fails_for_its_reason(id: str, name: str):
    specimen, reason, facts = WRONG[id][name]
    verdict = check(id, **specimen(given(id)))
    assert (verdict.passed, verdict.reason) == (False, reason), verdict
    assert {key: verdict.facts[key] for key in facts} == facts


@pytest.mark.parametrize("id,name", cases(WRONG))
def test_a_wrong_function_fails_on_the_hidden_data_alone(id: str, name: str):
    """Seen through a passing visible half, the wrong function is still caught, wherever it is wrong on the hidden data."""
    specimen, reason, _ = WRONG[id][name]
    if reason == "ALIAS":  # an alias belongs to one spectrum: the hidden one has others
        return
    here, there = given(id), given(id, hidden=True)
    verdict = grade(id, Submission(reference(id, here), specimen(there)))
    assert (verdict.passed, verdict.facts["domain"]) == (False, "hidden")


@pytest.mark.parametrize("id", sorted(RIGHT))
def test_there_are_specimens_enough(id: str):
    assert len(RIGHT[id]) >= 6 and len(WRONG[id]) >= 8
    assert {exercise.id for exercise in exercises()} == set(RIGHT) == set(WRONG)
