"""2b and 2c under rotary positions: the rotation is that of the forward pass, and B4's kernel is what is graded."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.exercises import checking
from headway.exercises.givens import given
from headway.exercises.givens import longer as more_of
from headway.exercises.predicates.rotary import constant_rows, rotary_given
from headway.exercises.references import reference
from headway.exercises.scoring import Head, states_of
from headway.model.config import ModelConfig
from headway.model.positions import rotary_waves, rotate

check: Any = checking.check  # answers are arrays in dictionaries, which a type checker cannot spread


def test_states_turn_as_the_forward_pass_turns_them():
    """headway.model.positions with adjacent pairs, at the angles of a base that the config can express."""
    config = ModelConfig(
        n_layers=1, n_heads=1, d_model=8, d_head=8, d_vocab=2, n_ctx=12, positions="rotary", rotary_pairs="adjacent"
    )
    g = given("2c-rotary")
    theta = config.position_base ** (-torch.arange(0, 8, 2).double() / 8)
    here = rotary_given("2c-rotary", hidden=False, seed=0)
    here = replace(here, extra={**here.extra, "theta": theta})
    answer = reference("2c-rotary", g)
    states = states_of(here, Head(answer["W_Q"], answer["W_K"]))
    cos, sin = rotary_waves(torch.arange(12), config)
    plain = here.streams() @ answer["W_Q"].T
    assert torch.allclose(states.Q, rotate(plain, cos[:, None], sin[:, None], "adjacent"), atol=1e-12)


def test_b4_the_reference_is_a_sum_of_waves_one_step_back():
    g = given("2c-rotary")
    answer = reference("2c-rotary", g)
    states = states_of(g, Head(answer["W_Q"], answer["W_K"]))
    for i in range(g.n):
        for j in range(i + 1):
            wave = sum(math.cos(float(t) * (i - j - 1)) for t in g.theta)
            assert states.Q[i, 0] @ states.K[j, 3] == pytest.approx(wave, abs=1e-10)


def test_position_zero_is_left_out_and_said_so():
    verdict = check("2c-rotary", **reference("2c-rotary", given("2c-rotary")))
    assert [dict(note.facts) for note in verdict.notes] == [{"queries": "position 0"}]


def test_the_constant_is_one_for_every_token_and_positions_are_silent():
    for hidden in (False, True):
        g = given("2b-rotary", hidden=hidden)
        assert torch.allclose(g.streams() @ g.one, torch.ones(g.n, g.n_tokens).double(), atol=1e-12)
        assert float(g.positions.abs().max()) == 0
        assert (constant_rows(g) @ g.tokens.T)[:, 0].tolist() == pytest.approx([1, 0] * 4)
    more = more_of(given("2b-rotary"))
    assert more is not None and more.n == 20
    assert more_of(given("2b-rotary", hidden=True)) is None


def test_a_change_of_basis_that_does_not_commute_is_another_head():
    g = given("2c-rotary")
    answer = reference("2c-rotary", g)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    assert not check("2c-rotary", **{name: array[order] for name, array in answer.items()}).passed
