"""The proof behind a previous-token head, against every sequence tried one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.exercises.after_head import AfterPrevious
from headway.exercises.givens import given
from headway.exercises.predicates.induction import REFERENCES
from headway.exercises.scoring import Head


def small(id: str, n: int, n_tokens: int):
    g = given(id)
    return replace(g, n=n, n_tokens=n_tokens, tokens=g.tokens[:n_tokens], positions=g.positions[:n])


def brute(own: AfterPrevious, head: Head, n: int, n_tokens: int):
    """Least margin over all sequences of up to n tokens, position 0 left out where its token is the query's."""
    worst = torch.inf
    for length in range(2, n + 1):
        for tokens in itertools.product(range(n_tokens), repeat=length):
            row = own.scores(head, tokens)
            hits = [j for j in range(1, length) if tokens[j - 1] == tokens[-1]]
            rivals = [j for j in range(length) if j not in hits and not (j == 0 and tokens[0] == tokens[-1])]
            if hits and rivals:
                worst = min(worst, float(row[hits].min() - row[rivals].max()))
    return worst


@pytest.mark.parametrize("id", ["3", "3-rotary"])
@pytest.mark.parametrize("leak", [0.0, 0.5, 1.5])
def test_the_margin_is_that_of_every_sequence(id: str, leak: float):
    here = small(id, 5, 3)
    part: Any = REFERENCES[id](given(id))
    noise = leak * torch.randn(part["W_K2"].shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    own = AfterPrevious(here, part["W_O1"] @ part["W_V1"])
    head = Head(part["W_Q2"], part["W_K2"] + noise)
    proof = own.prove(head)
    assert proof.margin == pytest.approx(brute(own, head, 5, 3), abs=1e-9)
    assert proof.passed == (proof.margin > 0)


def test_the_counterexample_really_fails():
    here = small("3", 5, 4)
    part: Any = REFERENCES["3"](given("3"))
    own = AfterPrevious(here, part["W_O1"] @ part["W_V1"])
    head = Head(part["W_Q2"], part["W_K2"] + 2 * here.u_content)
    proof = own.prove(head)
    example = own.counterexample(head, proof, (1.0, 1.0))
    assert not proof.passed and example is not None
    row = own.scores(head, example.tokens)
    assert example.target and int(row.argmax()) not in example.target
    assert float(sum(example.attention[j] for j in example.target)) < 0.5


@pytest.mark.parametrize("seed", range(4))
def test_a_counterexample_begins_with_another_token_where_one_can(seed: int):
    """Position 0 shares in the attention of a query equal to token 0, which is not held against the head (C4)."""
    here = small("3", 5, 4)
    part: Any = REFERENCES["3"](given("3"))
    own = AfterPrevious(here, part["W_O1"] @ part["W_V1"])
    random = torch.Generator().manual_seed(seed)
    noise = 3 * torch.randn(part["W_K2"].shape, generator=random, dtype=torch.float64)
    head = Head(part["W_Q2"], part["W_K2"] + noise)
    proof = own.prove(head)
    example = own.counterexample(head, proof, (1.0, 1.0))
    apart = fails_apart(own, head, 5, 4)
    assert example is not None and len(apart) > 0
    assert tuple(example.tokens) in apart and len(example.tokens) == min(map(len, apart))


def fails_apart(own: AfterPrevious, head: Head, n: int, n_tokens: int):
    """All sequences that fail and whose token 0 is not the query's, one by one."""
    found = []
    for length in range(2, n + 1):
        for tokens in itertools.product(range(n_tokens), repeat=length):
            hits = [j for j in range(1, length) if tokens[j - 1] == tokens[-1]]
            rivals = [j for j in range(length) if j not in hits]
            row = own.scores(head, tokens)
            if tokens[0] != tokens[-1] and hits and rivals and row[hits].min() <= row[rivals].max():
                found.append(tokens)
    return found


def test_scores_are_those_of_the_stream_written_out():
    g: Any = given("3")
    part: Any = REFERENCES["3"](g)
    own = AfterPrevious(g, part["W_O1"] @ part["W_V1"])
    tokens = (2, 0, 3, 0)
    x = g.tokens[list(tokens)] + g.positions[:4]
    after = x + x[[0, 0, 1, 2]] @ (part["W_O1"] @ part["W_V1"]).T
    wanted = (after @ part["W_K2"].T) @ (part["W_Q2"] @ after[3])
    torch.testing.assert_close(own.scores(Head(part["W_Q2"], part["W_K2"]), tokens), wanted)
