"""Heads that look for their own content: margins by enumeration, behind a leak, with and without a sink."""

from __future__ import annotations

import math

import pytest
import torch

from headway.model.forward import run
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.match import Match
from headway.sources.handmade.offset import Offset
from headway.sources.handmade.parts import Copy, Part
from headway.sources.handmade.plan import Plan
from support.pair_scores import embedded, pair_scores


@pytest.mark.parametrize("bos", [True, False])
def test_matches_beat_all_others_by_one(bos: bool):
    """Exercise 2a: over all tokens and positions, equal tokens score the sharpness and others 0."""
    built = compile_model([[Part(Match(), Copy())]], Plan(d_vocab=6, n_ctx=5, bos=bos, positions="none"))
    stream = embedded(built.weights)
    scores = pair_scores(built.weights, "L0H0", stream, stream)
    T = built.notes["sharpness L0H0"]
    wanted = T * torch.eye(6, dtype=torch.float64)
    wanted[0, 0] *= not bos
    torch.testing.assert_close(scores, wanted[None, :, None, :].expand_as(scores), rtol=0, atol=1e-9)
    assert built.notes["gap L0H0"] == 1.0 and pytest.approx(math.log(4 * 999)) == T


def test_it_attends_to_all_copies_and_itself_alike():
    weights = compile_model([[Part(Match(), Copy())]], Plan(d_vocab=6, n_ctx=9, leak=0.01)).weights
    tokens = torch.tensor([[0, 2, 5, 2, 1, 5, 2, 3, 4]])
    pattern = run(weights, tokens).patterns[0][0, 0]
    for i in range(1, 9):
        copies = [j for j in range(i + 1) if tokens[0, j] == tokens[0, i]]
        assert float(pattern[i, copies].sum()) >= 0.99 - 1e-9, "reached exactly where all eight others are rivals"
        torch.testing.assert_close(pattern[i, copies], pattern[i, copies[:1]].expand(len(copies)))


@pytest.mark.parametrize(("bos", "leak"), [(True, 0.05), (False, 0.05), (True, 0.2)])
def test_behind_a_head_that_leaks(bos: bool, leak: float):
    """Exercise 3's second head: the gap counts the leak, and the worst score over many texts stays above the bound."""
    plan = Plan(d_vocab=8, n_ctx=24, leak=leak, bos=bos)
    layers = [[Part(Offset(1), Copy("content", "previous"))], [Part(Match("previous"), Copy())]]
    built = compile_model(layers, plan)
    assert built.notes["gap L1H0"] == pytest.approx(0.5 - leak if bos else 1 - 2 * leak)
    tokens = torch.randint(int(bos), 8, (20, 24), generator=torch.Generator().manual_seed(2))
    if bos:
        tokens[:, 0] = 0
    scores = run(built.weights, tokens).scores[1][:, 0]
    worst = math.inf
    for row, found in zip(tokens.tolist(), scores, strict=True):
        for i in range(1, 24):
            right = [j for j in range(1, i + 1) if row[j - 1] == row[i]]
            rest = [j for j in range(i + 1) if j not in right and (bos or j)]  # without BOS position 0 stores itself
            if right and rest:
                worst = min(worst, float(found[i, right].min() - found[i, rest].max()))
            elif bos:
                worst = min(worst, float(found[i, 0] - found[i, 1 : i + 1].max()))
    assert worst >= built.notes["sharpness L1H0"] * built.notes["gap L1H0"] - 1e-9


def test_what_it_reads():
    assert Match("previous").reads(Plan()) == ("content", "previous")
