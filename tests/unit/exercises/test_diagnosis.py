"""Shares of a score's variance against brute force, and the order in which reasons are given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.exercises.changes import POSITION_REPAIRS
from headway.exercises.diagnosis import Shares, colliding_tokens, common_facts, leak_reason, repair, shares
from headway.exercises.givens import given
from headway.exercises.predicates.attention import pairs, turns
from headway.exercises.rules import offset
from headway.exercises.scoring import Head, proof_of

GIVEN = given("2b")


def brute_variance(head: Head, query: Any, key: Any):
    """Variance over keys of q . k, averaged over queries, written as a table of all scores."""
    table = (query @ head.W_Q.T) @ (key @ head.W_K.T).T
    return float(table.var(1, unbiased=False).mean())


@pytest.mark.parametrize("seed", [0, 1])
def test_shares_are_variances_of_the_parts(seed: int):
    random = torch.Generator().manual_seed(seed)
    head = Head(*torch.randn(2, 4, 32, generator=random, dtype=torch.float64))
    n, V = GIVEN.n, GIVEN.n_tokens
    c = GIVEN.tokens.repeat(n, 1)
    p = GIVEN.positions.repeat_interleave(V, 0)
    parts = [brute_variance(head, *pair) for pair in ((c, c), (p, p), (c, p), (p, c))]
    found = shares(GIVEN, head)
    got = (found.content, found.position, found.query_content, found.key_content)
    assert got == pytest.approx([part / sum(parts) for part in parts], abs=1e-9)
    assert found.rest == pytest.approx(0.0, abs=1e-9)  # the stream holds nothing but content and position
    assert found.mixed == found.query_content + found.key_content


def test_a_constant_of_the_row_has_no_share_and_zero_has_none():
    rows = pairs(GIVEN, 0)
    zero = Head(torch.zeros(2, 32).double(), rows)
    assert shares(GIVEN, zero) == Shares(0.0, 0.0, 0.0, 0.0, 0.0)
    assert shares(GIVEN, Head(rows, rows)).position == pytest.approx(1.0)


def test_leaks_are_told_from_cross_terms():
    assert leak_reason(Shares(0.1, 0.5, 0.2, 0.2, 0.0), "CONTENT") == "CROSS_TERMS"
    assert leak_reason(Shares(0.0, 0.6, 0.0, 0.4, 0.0), "CONTENT") == "CONTENT_LEAK"
    assert leak_reason(Shares(0.9, 0.1, 0.0, 0.0, 0.0), "POSITION") == "POSITION_LEAK"


@pytest.mark.parametrize(
    "steps,named",
    [(0, "TURN_BACK"), (1, "SWAP"), (-2, "TURN_FORWARD"), (-1, "NEGATE")],
)
def test_the_change_that_mends_is_named(steps: int, named: str):
    """Slips from 2c: not turned, turned the other way, turned twice, and negated."""
    rows = pairs(GIVEN, 0, 1)
    sign = -1 if named == "NEGATE" else 1
    head = Head(sign * turns(GIVEN, float(steps), 0, 1) @ rows, rows)
    assert repair(GIVEN, head, offset(1), POSITION_REPAIRS) == named
    assert repair(GIVEN, Head(torch.zeros_like(rows), rows), offset(1), POSITION_REPAIRS) == ""


def test_facts_say_where_it_errs():
    rows = pairs(GIVEN, 0, 1)
    proof = proof_of(GIVEN, Head(rows, rows), offset(1))
    facts = common_facts(proof)
    assert (facts["query"], facts["target"], facts["rival"], facts["works_to"]) == (1, 0, 1, 1)
    assert facts["margin"] == proof.margin / proof.range < 0
    assert len(facts["tokens"]) == 3


def test_the_pair_of_tokens_that_collide():
    """Token 2 is longest along token 0's direction, so it wins over token 0 itself."""
    contents = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 0.5]], dtype=torch.float64)
    assert colliding_tokens(contents, torch.eye(2).double()) == (0, 2)
