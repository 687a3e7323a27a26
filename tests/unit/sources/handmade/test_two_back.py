"""The virtual two-back head: all there is comes over order 2."""

from __future__ import annotations

import math

import torch

from headway.circuits import composition_scores
from headway.model.forward import run
from headway.paths.expand import order_logits
from headway.sources.handmade.two_back import two_back_model

LEAK = 0.01
MODEL = two_back_model(leak=LEAK, bos=False)


def test_it_says_what_stood_two_back():
    tokens = torch.randint(0, 12, (4, 32), generator=torch.Generator().manual_seed(0))
    found = run(MODEL.weights, tokens)
    virtual = found.patterns[1][:, 0] @ found.patterns[0][:, 0]
    assert float(virtual.diagonal(-2, dim1=-2, dim2=-1).min()) >= 1 - 2 * LEAK
    said = found.logits.softmax(-1)
    assert float(said[:, 2:].gather(-1, tokens[:, :-2, None]).min()) >= 1 - LEAK
    assert torch.equal(said[:, :2].argmax(-1), tokens[:, :1].expand(-1, 2)), "positions 0 and 1 say token 0 (C2)"
    none, one, two = order_logits(found)
    assert float(none.abs().max()) < 1e-9 and float(one.abs().max()) < 1e-9
    torch.testing.assert_close(two, found.logits, rtol=0, atol=1e-9)


def test_v_composition_by_hand():
    """out P^T P C^T over products of norms sqrt(12) each: sqrt(12) / 12. Its QK reads positions, which nobody writes."""
    scores = {row["via"]: row["score"] for row in composition_scores(MODEL.weights).rows()}
    assert math.isclose(scores["V"], 1 / math.sqrt(12), rel_tol=1e-9)
    assert scores["Q"] < 1e-9 and scores["K"] < 1e-9
    with_bos = two_back_model().weights
    assert run(with_bos, torch.tensor([[0, 4, 2, 7]])).logits.argmax(-1)[0, 3] == 4
