"""The proof against running every sequence: same margin, same verdict, and a counterexample that really fails."""

from __future__ import annotations

import itertools

import pytest
import torch

from headway.exercises.proof import States, prove
from headway.exercises.rules import earlier_copy, offset, same_token
from unit.exercises.specimens.pointer import after_pointer


def random_states(n: int, vocab: int, seed: int, scale: float = 1.0) -> States:
    random = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, n, vocab, 3, generator=random, dtype=torch.float64)
    return States.of(scale * q, k)


def wanted(name: str, tokens: tuple[int, ...], i: int) -> tuple[set[int], set[int]]:
    """Targets and rivals of query i in one sequence, written out again from the exercises' words."""
    keys = set(range(i + 1))
    if name == "2a":
        targets = {j for j in keys if tokens[j] == tokens[i]}
    elif name == "2d":
        targets = {j for j in keys if tokens[j] == tokens[i] and j < i}
    else:
        back = {"2b": 0, "2c": 1}[name]
        targets = {i - back} & keys
    return targets, keys - targets


RULES = {"2a": same_token(), "2b": offset(0), "2c": offset(1), "2d": earlier_copy()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RULES)
def test_the_worst_margin_is_that_of_all_sequences(name: str, seed: int):
    n, vocab = 4, 3
    states = random_states(n, vocab, seed)
    worst, spread = float("inf"), 0.0
    for tokens in itertools.product(range(vocab), repeat=n):
        for i in range(n):
            row = [float(states.Q[i, tokens[i]] @ states.K[j, tokens[j]]) for j in range(i + 1)]
            targets, rivals = wanted(name, tokens, i)
            spread = max(spread, max(row) - min(row))
            if targets and rivals:
                worst = min(worst, min(row[j] for j in targets) - max(row[j] for j in rivals))
    proof = prove(states, RULES[name])
    assert proof.margin == pytest.approx(worst, abs=1e-12)
    # The range of the proof pairs any two states, also two at one position, so it is at least that of real rows.
    assert proof.range >= spread - 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_the_pointer_rule_pairs_every_pointer_with_every_key(seed: int):
    """States are (token, p); a query with p < i wants p + 1, whatever the keys hold."""
    n, vocab = 4, 2
    labels = torch.cartesian_prod(torch.arange(vocab), torch.arange(n))
    at = labels[None, :, 1] <= torch.arange(n)[:, None]
    random = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, n, len(labels), 3, generator=random, dtype=torch.float64)
    worst = float("inf")
    for i in range(n):
        for s, (_, p) in enumerate(labels.tolist()):
            if p >= i:
                continue
            row = {
                (j, u): float(q[i, s] @ k[j, u])
                for j in range(i + 1)
                for u in range(len(labels))
                if at[j, u] and (j < i or u == s)
            }
            target = min(score for (j, _), score in row.items() if j == p + 1)
            worst = min(worst, target - max(score for (j, _), score in row.items() if j != p + 1))
    assert prove(States(q, k, labels, at), after_pointer()).margin == pytest.approx(worst, abs=1e-12)


def test_the_first_failure_is_the_shortest():
    states = random_states(5, 3, 0)
    proof = prove(states, offset(1))
    assert proof.first is not None
    i = proof.first.query[0]
    shorter = States.of(states.Q[:i], states.K[:i])
    assert prove(shorter, offset(1)).first is None
    assert not prove(States.of(states.Q[: i + 1], states.K[: i + 1]), offset(1)).passed
    assert proof.works_to == i


def test_zero_tie_and_pass_are_told_apart():
    zero = prove(States.of(torch.zeros(3, 2, 1).double(), torch.ones(3, 2, 1).double()), offset(0))
    assert (zero.zero, zero.passed, zero.tied) == (True, False, False)
    # Keys grow with position: itself is always the best, by 1.
    keys = torch.arange(3.0).double()[:, None, None].expand(3, 2, 1)
    good = prove(States.of(torch.ones(3, 2, 1).double(), keys), offset(0))
    assert (good.passed, good.margin, good.range) == (True, 1.0, 2.0)
    level = keys.clone()
    level[1] = 2.0  # positions 1 and 2 tie
    tie = prove(States.of(torch.ones(3, 2, 1).double(), level), offset(0))
    assert (tie.passed, tie.tied, tie.first is not None) == (False, True, True)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_scale_of_scores_decides_nothing(scale: float):
    one, other = (prove(random_states(4, 3, 5, s), same_token()) for s in (1.0, scale))
    assert other.margin == pytest.approx(scale * one.margin)
    assert (one.passed, one.tied, one.zero) == (other.passed, other.tied, other.zero)


def test_a_constant_of_each_row_changes_nothing():
    states = random_states(4, 3, 2)
    rows = torch.randn(4, 3, 1, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    shifted = States.of(torch.cat((states.Q, 100 * rows), 2), torch.cat((states.K, torch.ones(4, 3, 1).double()), 2))
    one, other = prove(states, same_token()), prove(shifted, same_token())
    assert other.margin == pytest.approx(one.margin, abs=1e-10)
    assert other.range == pytest.approx(one.range, abs=1e-10)


def test_queries_without_a_target_are_left_out():
    states = random_states(3, 2, 1)
    assert prove(states, offset(1)).by_query[0] == float("inf")
    assert prove(states, earlier_copy()).by_query[0] == float("inf")
    assert prove(states, offset(5)).margin == float("inf")


def test_a_part_that_is_rounding_is_nothing_of_the_whole():
    whole = prove(random_states(3, 2, 1), offset(0))
    assert prove(random_states(3, 2, 1, 1e-14), offset(0)).nothing_of(whole)
    assert not prove(random_states(3, 2, 1, 1e-3), offset(0)).nothing_of(whole)
