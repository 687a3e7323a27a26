"""Single changes to a head, each against the sentence that describes it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from headway.errors import UsageError
from headway.exercises.changes import (
    negated,
    only,
    projector,
    scaled_position,
    sin_cos_swapped,
    swapped,
    turned_by,
    unmixed,
)
from headway.exercises.givens import given
from headway.exercises.scoring import Head

GIVEN = given("2d")


def random_head(seed: int = 0, width: Any = 5):
    random = torch.Generator().manual_seed(seed)
    return Head(*torch.randn(2, width, GIVEN.d_model, generator=random, dtype=torch.float64))


def scores(head: Head, x: Any, y: Any):
    return x @ head.W_Q.T @ head.W_K @ y.T


CONTENT, POSITION = GIVEN.tokens, GIVEN.positions


def test_a_projector_keeps_its_subspaces_and_removes_the_others():
    P = projector(GIVEN.space, "content")
    assert torch.allclose(CONTENT @ P.T, CONTENT, atol=1e-10)
    assert float((POSITION @ P.T).abs().max()) < 1e-10
    whole = projector(GIVEN.space, *GIVEN.space.bases)
    assert torch.allclose(whole, torch.eye(GIVEN.d_model).double(), atol=1e-10)


def test_a_head_that_reads_one_kind_alone():
    head = random_head()
    part = only(GIVEN, head, "content")
    assert torch.allclose(scores(part, CONTENT, CONTENT), scores(head, CONTENT, CONTENT), atol=1e-9)
    assert float(scores(part, POSITION, CONTENT).abs().max()) < 1e-9
    assert float(scores(part, CONTENT, POSITION).abs().max()) < 1e-9


def test_unmixed_drops_cross_terms_and_scales_the_penalty():
    head = random_head()
    part = unmixed(GIVEN, head, 2.5)
    assert torch.allclose(scores(part, CONTENT, CONTENT), scores(head, CONTENT, CONTENT), atol=1e-9)
    assert torch.allclose(scores(part, POSITION, POSITION), 2.5 * scores(head, POSITION, POSITION), atol=1e-9)
    assert float(scores(part, POSITION, CONTENT).abs().max()) < 1e-9


def test_the_position_term_alone_is_scaled():
    head = random_head()
    part = scaled_position(GIVEN, head, -3.0)
    assert torch.allclose(scores(part, POSITION, POSITION), -3 * scores(head, POSITION, POSITION), atol=1e-9)
    assert torch.allclose(scores(part, CONTENT, POSITION), scores(head, CONTENT, POSITION), atol=1e-9)
    assert torch.allclose(scores(part, CONTENT, CONTENT), scores(head, CONTENT, CONTENT), atol=1e-9)


def test_negated_and_swapped():
    head = random_head()
    assert torch.allclose(scores(negated(GIVEN, head), CONTENT, POSITION), -scores(head, CONTENT, POSITION))
    assert torch.allclose(scores(swapped(GIVEN, head), CONTENT, POSITION), scores(head, POSITION, CONTENT).T)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_turned_query_reads_later_positions(steps: int):
    head = random_head()
    turned = turned_by(GIVEN, head, float(steps))
    assert torch.allclose(
        scores(turned, POSITION[:-steps], CONTENT), scores(head, POSITION[steps:], CONTENT), atol=1e-9
    )
    assert torch.allclose(scores(turned, CONTENT, CONTENT), scores(head, CONTENT, CONTENT), atol=1e-9)


def test_sine_and_cosine_exchanged_is_its_own_inverse():
    head = random_head()
    once = sin_cos_swapped(GIVEN, head)
    assert torch.allclose(
        once.W_Q @ GIVEN.space.write("position")[:, 0], head.W_Q @ GIVEN.space.write("position")[:, 1]
    )
    assert torch.allclose(sin_cos_swapped(GIVEN, once).W_Q, head.W_Q, atol=1e-9)


def test_an_exercise_without_subspaces_says_so():
    with pytest.raises(UsageError, match="no named subspaces"):
        _ = dataclasses.replace(GIVEN, subspaces=None).space
