"""2e and 2f: what the first head writes, what the second reads, and how soft the first may be (B5, C9-C11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.exercises import checking
from headway.exercises.givens import Given, given
from headway.exercises.predicates.attention import pairs, turns
from headway.exercises.predicates.pointer import Setting
from headway.exercises.proof import prove
from headway.exercises.references import reference
from headway.exercises.scoring import Head, states_of
from unit.exercises.specimens.pointer import WRONG, after_pointer, marked_states

check: Any = checking.check  # answers are arrays in dictionaries, which a type checker cannot spread


def unique_copy(g: Given, random: torch.Generator):
    """A sequence whose last token stood exactly once before, at p, with all other tokens different from it."""
    i = int(torch.randint(2, g.n, (1,), generator=random))
    p = int(torch.randint(0, i, (1,), generator=random))
    tokens = torch.randint(1, g.n_tokens, (i + 1,), generator=random)
    tokens[p] = tokens[i] = 0
    return tokens, i, p


def soft_run(g: Given, multiplier: Any, tokens: Any):
    """Both heads of exercise 2, run as a transformer would: softmax in the first, scores of the second's last query."""
    first, write, second = (reference(id, g) for id in ("2d", "2e", "2f"))
    n = len(tokens)
    x = g.tokens[tokens] + g.positions[:n]
    scores = (x @ first["W_Q"].T) @ (x @ first["W_K"].T).T * multiplier
    pattern = scores.masked_fill(~torch.ones(n, n).tril().bool(), -torch.inf).softmax(-1)
    x = x + pattern @ x @ (write["W_O"] @ write["W_V"]).T
    return (x @ second["W_K"].T) @ (second["W_Q"] @ x[-1])


def test_b5_the_budget_keeps_the_second_head_right():
    """With the multiplier of the note, the soft first head leaks little enough for every unique copy."""
    g = given("2f")
    verdict = check("2f", **reference("2f", g))
    budget = next(note.facts for note in verdict.notes if note.code == "BUDGET")
    margin = verdict.sharpness.relative_margin  # G over the range: at least R, so the budget is on the safe side
    assert budget["leak_allowed"] == pytest.approx(margin / (1 + margin))
    random = torch.Generator().manual_seed(0)
    for _ in range(200):
        tokens, _, p = unique_copy(g, random)
        assert int(soft_run(g, budget["T"], tokens).argmax()) == p + 1


def test_c9_copies_that_share_attention_point_at_neither():
    """A first head that spreads over two copies writes the mean of two positions: often neither successor wins."""
    g = given("2f")
    missed = 0
    cases = [(i, p, r) for i in range(4, g.n) for p in range(i) for r in range(p + 2, i - 1)]
    second, write = reference("2f", g), reference("2e", g)
    W_OV = write["W_O"] @ write["W_V"]
    for i, p, r in cases:
        x = g.tokens[1] + g.positions[: i + 1]
        mark = W_OV @ (g.positions[p] + g.positions[r]) / 2
        row = (x @ second["W_K"].T) @ (second["W_Q"] @ (x[i] + mark))
        missed += int(row.argmax()) not in (p + 1, r + 1)
    assert missed / len(cases) > 0.3


def test_c10_junk_in_the_keys_v_does_not_matter_but_reading_it_does():
    g = given("2f")
    assert check("2f", **reference("2f", g)).passed
    leaky = WRONG["2f"]["key reads v"][0](g)
    assert check("2f", **leaky).reason == "EXTRA_READ"


def test_the_counterexample_is_a_real_sequence_that_fails():
    g = given("2f")
    wrong = {"W_Q": g.v[:4], "W_K": pairs(g, 0, 1)}
    shown = check("2f", **wrong).counterexample
    assert shown is not None
    i, (target,) = shown.query, shown.target
    p = target - 1
    assert shown.tokens[p] == shown.tokens[i] and len(shown.tokens) == i + 1
    x = g.tokens[list(shown.tokens)] + g.positions[: i + 1]
    write = reference("2e", g)
    query = x[i] + write["W_O"] @ write["W_V"] @ x[p]
    row = (x @ wrong["W_K"].T) @ (wrong["W_Q"] @ query)
    assert int(row.argmax()) != target


def test_2f_is_2c_seen_from_the_pointer():
    """The same kernel, one step ahead of p instead of one step behind i: equal margins per pair of positions."""
    g = given("2c")
    back = check("2c", **reference("2c", g)).sharpness
    ahead = check("2f", **reference("2f", given("2f"))).sharpness
    assert pytest.approx(back.T99, rel=0.05) == ahead.T99


def test_a_first_head_that_passed_is_hard_in_the_limit():
    """2d's reference at a large multiplier attends to the unique copy alone, which is what 2f assumes."""
    g = given("2d")
    states = states_of(g, Head(*reference("2d", g).values()))
    random = torch.Generator().manual_seed(1)
    for _ in range(50):
        tokens, i, p = unique_copy(g, random)
        row = states.K[torch.arange(i + 1), tokens] @ states.Q[i, 0]
        assert float((2000 * row).softmax(0)[p]) > 0.99


def test_turning_by_no_step_is_the_identity():
    g = given("2f")
    assert torch.allclose(turns(g, 0.0, 0, 1), torch.eye(4).double())


@pytest.mark.parametrize("seed", range(4))
def test_the_proof_by_parts_is_the_proof_over_all_states(seed: int):
    """Against the general proof on (token, pointer) states, for heads that read everything at random."""
    g = given("2f")
    random = torch.Generator().manual_seed(seed)
    some = replace(g, n=6, positions=g.positions[:6], n_tokens=3, tokens=g.tokens[:3])
    marks = torch.randn(6, g.d_model, generator=random, dtype=torch.float64)
    head = Head(*torch.randn(2, 5, g.d_model, generator=random, dtype=torch.float64))
    setting = Setting(some, marks)
    parts, states = setting.prove(head), marked_states(some, marks, head)
    whole = prove(states, after_pointer())
    assert parts.margin == pytest.approx(whole.margin, abs=1e-9)
    assert parts.range == pytest.approx(whole.range, abs=1e-9)
    assert parts.by_query == pytest.approx(whole.by_query, abs=1e-9)
    assert parts.first is not None and whole.first is not None
    assert parts.first.query[0] == whole.first.query[0]
    assert parts.first.query[1] == int(states.labels[whole.first.query[1], 1])
    assert parts.first.rival[0] == whole.first.rival[0]
