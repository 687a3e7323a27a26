"""Trained and random heads under the exercises' questions: their scores are the forward pass's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headway as hw
from headway.errors import UnknownName, UsageError
from headway.exercises.trained import _states, grade_head
from headway.model.forward import run
from headway.sources.handmade import induction_model, previous_token_model
from support.random_models import random_weights

FEATURES: list[dict[str, Any]] = [
    {"positions": "learned", "norm": "layer"},
    {"positions": "rotary", "rotary_dims": 4, "norm": "rms"},
    {"positions": "shortformer", "norm": "layer"},
    {"positions": "shortformer"},
]


@pytest.mark.parametrize("features", FEATURES, ids=str)
def test_states_give_the_scores_of_the_forward_pass(features: dict[str, Any]):
    weights = random_weights(**features)
    head, tokens = weights.head_id("L0H3"), torch.tensor([1, 5, 7, 2])
    states = _states(weights, head, tokens, 6)
    texts = torch.tensor([[0, 1, 2, 3, 1, 0], [3, 3, 2, 0, 1, 1]])
    scores = run(weights, tokens[texts]).scores[0][:, 3]
    for row, text in enumerate(texts.tolist()):
        for i in range(6):
            own = torch.stack([states.K[j, text[j]] @ states.Q[i, text[i]] for j in range(i + 1)])
            difference = weights.config.attn_scale * own - scores[row, i, : i + 1]
            # Folded LayerNorm leaves each row as it was up to a constant, which the softmax does not see.
            torch.testing.assert_close(difference, difference[:1].expand_as(difference), rtol=0, atol=1e-9)


def test_hand_made_heads_pass_and_trained_ones_are_graded():
    made = grade_head(previous_token_model().weights, "L0H0", "2c", n=12, n_tokens=8)
    assert made.passed and made.right == 1.0 and made.mass > 0.99 and made.works_to == 12
    assert grade_head(induction_model().weights, "L0H0", "2c").passed
    assert not grade_head(induction_model().weights, "L0H0", "2b").passed
    zoo = hw.load("zoo:two-layer")
    previous = grade_head(zoo, "L0H7", "2c")
    assert not previous.passed and previous.relative_margin < 0, "no proof over every sequence, but nearly always right"
    assert previous.right > 0.95 and previous.mass > 0.95
    assert grade_head(zoo, "L0H3", "2c").right < 0.1 and grade_head(zoo, "L0H3", "2b").right > 0.95


def test_what_cannot_be_graded_is_named():
    weights = induction_model().weights
    with pytest.raises(UsageError, match="reads what earlier heads wrote"):
        grade_head(weights, "L1H0", "2c")
    with pytest.raises(UnknownName, match="no head is graded by '3'"):
        grade_head(weights, "L0H0", "3")
    with pytest.raises(UnknownName, match="no head L7H0"):
        grade_head(weights, "L7H0", "2c")
