"""Trained and random heads under the exercises' questions: their scores are the forward pass's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headway as hw
from headway.errors import UnknownName, UsageError
from headway.exercises.proof import States
from headway.exercises.trained import RULES, GradedHead, _states, grade_head, targets
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
    assert made.passed and values(made)[0] == 1.0 and values(made)[1] > 0.99 and made.works_to == 12
    assert grade_head(induction_model().weights, "L0H0", "2c").passed
    assert grade_head(induction_model().weights, "L0H0", "2b").passed is False
    zoo = hw.load("zoo:two-layer")
    previous = grade_head(zoo, "L0H7", "2c")
    assert previous.passed is False and (previous.relative_margin or 0) < 0, (
        "no proof over every sequence, but nearly always right"
    )
    assert values(previous)[0] > 0.95 and values(previous)[1] > 0.95
    assert values(grade_head(zoo, "L0H3", "2c"))[0] < 0.1 and values(grade_head(zoo, "L0H3", "2b"))[0] > 0.95


def values(graded: GradedHead):
    assert graded.right is not None and graded.mass is not None
    return graded.right, graded.mass


def test_later_heads_are_observed_and_nothing_is_proved_of_them():
    made = grade_head(induction_model().weights, "L1H0", "3")
    assert made.right == 1.0 and values(made)[1] > 0.99
    assert made.passed is made.relative_margin is made.works_to is None
    zoo = hw.load("zoo:two-layer")
    by_head = {head: values(grade_head(zoo, head, "3"))[0] for head in ("L1H4", "L1H0", "L1H3")}
    assert by_head["L1H4"] > 3 * max(by_head["L1H0"], by_head["L1H3"]), "the induction head that ships with the package"


def test_where_nothing_can_be_looked_at_nothing_is_said():
    alone = grade_head(previous_token_model().weights, "L0H0", "2d", n=1, n_tokens=4)
    assert alone.right is None and alone.mass is None


@pytest.mark.parametrize("exercise", list(RULES))
def test_targets_of_texts_are_those_of_the_rules(exercise: str):
    """`targets` says for a text what the rule of the proof says for states: compared on every text of four tokens of three,
    and on random longer ones.
    """
    random = torch.Generator().manual_seed(0)
    longer = torch.randint(5, (40, 9), generator=random)
    every = torch.cartesian_prod(*[torch.arange(3)] * 4)
    rule = RULES[exercise]()
    for texts, n_tokens in ((every, 3), (longer, 5)):
        n = texts.shape[1]
        states = States.of(*torch.zeros(2, n, n_tokens, 1))
        found = targets(exercise, texts)
        for i in range(n):
            by_rule, rivals = rule(states, i)
            assert bool((by_rule != rivals).all()), "no key is both, none neither"
            keys = torch.arange(i + 1)
            wanted = by_rule[texts[:, i, None], keys, texts[:, : i + 1]]
            assert torch.equal(found[:, i, : i + 1], wanted) and not bool(found[:, i, i + 1 :].any())


def test_targets_after_a_copy_by_definition():
    texts = torch.tensor([[0, 1, 0, 0, 1], [2, 2, 1, 2, 1]])
    found = targets("3", texts)
    for row, text in enumerate(texts.tolist()):
        for i in range(5):
            assert found[row, i].tolist() == [0 < j <= i and text[j - 1] == text[i] for j in range(5)]


def test_what_cannot_be_graded_is_named():
    weights = induction_model().weights
    with pytest.raises(UsageError, match="n of a graded head"):
        grade_head(weights, "L0H0", "2c", n=0)
    with pytest.raises(UnknownName, match="no head is graded by '1a'"):
        grade_head(weights, "L0H0", "1a")
    with pytest.raises(UnknownName, match="no head L7H0"):
        grade_head(weights, "L7H0", "2c")
