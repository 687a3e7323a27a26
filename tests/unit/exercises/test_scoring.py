"""States, the sharpness meter's formula, and the sequence that is shown."""

from __future__ import annotations

import math

import pytest
import torch

from headway.exercises.givens import given
from headway.exercises.predicates.attention import pairs
from headway.exercises.proof import prove
from headway.exercises.rules import offset, same_token
from headway.exercises.scoring import Head, counterexample, proof_of, sharpened, sharpness, states_of, turned

GIVEN = given("2b")


def test_states_are_the_queries_and_keys_of_every_stream():
    rows = pairs(GIVEN, 0, 1)
    states = states_of(GIVEN, Head(2 * rows, rows))
    x = GIVEN.tokens[3] + GIVEN.positions[5]
    assert torch.allclose(states.Q[5, 3], 2 * rows @ x)
    assert torch.allclose(states.K[5, 3], rows @ x)
    assert states.at.all() and states.labels.flatten().tolist() == list(range(GIVEN.n_tokens))


def test_the_meter_is_the_bound_of_a_margin():
    proof = proof_of(GIVEN, Head(pairs(GIVEN, 0, 1), pairs(GIVEN, 0, 1)), offset(0))
    meter = sharpness(proof, GIVEN.n, 0.5, sizes=(2.0, 4.0))
    assert pytest.approx(math.log(11 * 0.99 / 0.01) / proof.margin / 8) == meter.T99
    assert meter.relative_margin == proof.margin / proof.range
    assert meter.par_fraction == 0.5


def test_a_shown_row_is_stretched_to_ten_nats():
    attention, by = sharpened(torch.tensor([0.0, 0.1, 0.3]).double())
    assert by == pytest.approx(10 / 0.3)
    assert math.log(float(attention[2] / attention[0])) == pytest.approx(10.0)
    flat, one = sharpened(torch.ones(4).double())
    assert flat.tolist() == [0.25] * 4 and one == 1.0


def test_a_passing_head_has_no_counterexample():
    head = Head(pairs(GIVEN, 0, 1), pairs(GIVEN, 0, 1))
    states = states_of(GIVEN, head)
    assert counterexample(states, prove(states, offset(0)), offset(0)) is None


def test_the_shown_sequence_keeps_the_query_token_for_its_targets():
    """2a with a position head: no token but those that matter equals the query's."""
    head = Head(pairs(GIVEN, 0, 1), -pairs(GIVEN, 0, 1))
    states = states_of(GIVEN, head)
    shown = counterexample(states, prove(states, same_token()), same_token())
    assert shown is not None
    same = [j for j, t in enumerate(shown.tokens) if t == shown.tokens[-1]]
    assert list(shown.target) == same
    assert sum(shown.attention) == pytest.approx(1.0)


def test_turning_is_a_rotation_of_each_pair():
    x = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theta = torch.tensor([0.3, 1.1], dtype=torch.float64)
    y = turned(x, theta)
    assert torch.allclose(y[0], x[0])
    assert torch.allclose(y.norm(dim=-1), x.norm(dim=-1))
    a = torch.complex(x[..., 0], x[..., 1]) * torch.exp(1j * 0.3 * torch.arange(5).double())[:, None]
    assert torch.allclose(torch.complex(y[..., 0], y[..., 1]), a)
