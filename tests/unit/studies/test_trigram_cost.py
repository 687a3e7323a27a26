"""What bugs cost, where the answer is known by hand; and that a correction fitted is the best there is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import BadInput, UsageError
from headway.model.forward import run
from headway.sources.handmade.skip_trigram import skip_trigram_model
from headway.studies import trigram_cost
from headway.studies.trigram_cost import CostTexts, skip_trigram_cost
from support.random_models import random_weights
from support.unchecked import as_users_run_it

RULES = [(3, 7, 5), (3, 8, 6)]


def planted() -> Any:
    return skip_trigram_model(RULES, d_vocab=9, n_ctx=4).weights


def ids(*triples: tuple[int, int, int], times: int = 8) -> torch.Tensor:
    return torch.tensor([t for a, b, c in triples for t in (0, a, b, c)] * times)


def test_a_choice_of_two_that_the_head_cannot_make_costs_ln_2():
    """After 7 and 8 alike the head says 5 or 6; every window of four tokens has one such place."""
    (row,) = skip_trigram_cost(planted(), texts=CostTexts(ids(*RULES), ids(*RULES))).rows()
    assert row["cost"] == pytest.approx(math.log(2) / 4, rel=5e-3)
    assert row["touched"] == pytest.approx(1 / 4) and row["cost_se"] == pytest.approx(0, abs=1e-9)
    assert row["cost_share"] == pytest.approx(row["cost"] / row["benefit"])


def test_benefit_is_the_loss_without_the_heads_term():
    weights, text = planted(), ids(*RULES)
    (row,) = skip_trigram_cost(weights, texts=CostTexts(text, text)).rows()
    tokens = torch.cat((torch.zeros(16, 1, dtype=torch.int64), text.view(16, 4)), dim=1)
    clean = run(weights, tokens[:, :-1])
    bare = run(weights, tokens[:, :-1], freeze=clean, edit={"L0H0.result": torch.zeros_like})
    losses = [
        float(torch.nn.functional.cross_entropy(r.logits.flatten(0, 1), tokens[:, 1:].flatten())) for r in (clean, bare)
    ]
    assert row["loss"] == pytest.approx(losses[0]) and row["benefit"] == pytest.approx(losses[1] - losses[0])


def test_where_no_bug_bites_there_is_no_cost():
    weights = skip_trigram_model([(3, 7, 5), (4, 8, 6)], d_vocab=9, n_ctx=4).weights
    text = ids((3, 7, 5), (4, 8, 6))
    (row,) = skip_trigram_cost(weights, texts=CostTexts(text, text)).rows()
    assert abs(row["cost"]) < 1e-3


def test_what_does_not_carry_over_costs_nothing_on_other_text():
    """Corrections of a fitting text in which chance alone decides are worth nothing, or less, where it decides again."""
    random = torch.Generator().manual_seed(3)

    def coin() -> torch.Tensor:
        outs = torch.randint(5, 7, (400,), generator=random).tolist()
        return torch.tensor([t for i, c in enumerate(outs) for t in (0, 3, 7 + i % 2, c)])

    (row,) = skip_trigram_cost(planted(), texts=CostTexts(coin(), coin(), limit=400)).rows()
    assert row["cost"] < 2 * row["cost_se"] and row["cost"] < 0.01


def test_the_fit_is_where_the_gradient_vanishes():
    problem = trigram_cost._problem(
        planted(), planted().head_id("L0H0"), torch.tensor([*RULES, (3, 7, 6)]), windows := torch.zeros(2, 5).long()
    )
    assert len(problem.target) == 0 and windows.shape == (2, 5)  # nothing there
    windows = torch.tensor([[0, 0, 3, 7, 5], [0, 0, 3, 8, 6], [0, 0, 3, 7, 6]])
    problem = trigram_cost._problem(planted(), planted().head_id("L0H0"), torch.tensor([*RULES, (3, 7, 6)]), windows)
    every = np.ones(len(problem.target), dtype=bool)
    delta = problem.fitted(1e-3, every, 12)
    gradient = problem.gradient(delta, every) / 12 + 1e-3 * delta
    assert np.abs(gradient).max() < 1e-7
    step = 1e-5 * np.eye(3)
    for i in range(3):
        slope = (problem.change(delta + step[i]).sum() - problem.change(delta - step[i]).sum()) / 2e-5
        assert slope == pytest.approx(problem.gradient(delta, every)[i], abs=1e-6)


def test_changes_are_those_of_the_logits_themselves():
    weights, windows = planted(), torch.tensor([[0, 0, 3, 7, 5], [0, 3, 8, 6, 0]])
    triples = torch.tensor([*RULES, (3, 7, 6), (3, 8, 5)])
    problem = trigram_cost._problem(weights, weights.head_id("L0H0"), triples, windows)
    delta = np.array([0.7, -1.0, 2.0, 0.3])
    clean = run(weights, windows[:, :-1])
    logits, pattern = clean.logits.clone(), clean.pattern("L0H0")
    for (a, b, c), d in zip(triples.tolist(), delta, strict=True):
        for r in range(2):
            for i in range(4):
                if windows[r, i] == b:
                    logits[r, i, c] += d * float((pattern[r, i] * (windows[r, :-1] == a)).sum())
    moved = -logits.log_softmax(-1).gather(-1, windows[:, 1:, None]).sum()
    was = -clean.logits.log_softmax(-1).gather(-1, windows[:, 1:, None]).sum()
    assert problem.change(delta).sum() == pytest.approx(float(moved - was), abs=1e-9)


def test_texts_that_are_none():
    with as_users_run_it(), pytest.raises(UsageError, match=r"CostTexts\(fit=ids"):
        skip_trigram_cost(planted(), texts="text")  # pyright: ignore[reportArgumentType]


def test_models_without_texts_and_heads_without_triples():
    with pytest.raises(BadInput, match="carries no validation text"):
        skip_trigram_cost(random_weights())
    zero = planted()
    zero = zero.replace(W_O=torch.zeros_like(zero.W_O))
    (row,) = skip_trigram_cost(zero, texts=CostTexts(ids(*RULES), ids(*RULES))).rows()
    assert (row["cost"], row["triples"]) == (0.0, 0) and "no triple it raises" in row["flag"]
