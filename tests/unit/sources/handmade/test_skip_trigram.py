"""Skip-trigrams in one head, and the bug its shape implies."""

from __future__ import annotations

import math

import pytest
import torch

from headway.errors import UsageError
from headway.model.forward import logits, run
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.parts import Part, Translate
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.skip_trigram import Seek, skip_trigram_model

KEEP, LIE, IN, AT, MIND, BAY, OTHER = range(1, 8)
LEAK = 1e-3


def test_it_says_c_after_b_with_an_a_before():
    weights = skip_trigram_model([(KEEP, IN, MIND), (LIE, AT, BAY)], d_vocab=9, n_ctx=12, leak=LEAK).weights
    said = logits(weights, torch.tensor([[0, KEEP, OTHER, LIE, IN, OTHER, AT, 8, IN, KEEP, AT, LIE]])).softmax(-1)[0]
    for i, wanted in ((4, MIND), (6, BAY), (8, MIND), (10, BAY)):
        assert float(said[i, wanted]) >= 1 - LEAK
    for i in (0, 1, 2, 3, 5, 7, 9, 11):
        torch.testing.assert_close(said[i], torch.full((9,), 1 / 9, dtype=torch.float64), rtol=0, atol=0.05)


def test_without_an_a_it_rests_on_bos():
    weights = skip_trigram_model([(KEEP, IN, MIND)], d_vocab=9, leak=LEAK).weights
    found = run(weights, torch.tensor([[0, OTHER, IN, AT, KEEP]]))
    assert float(found.patterns[0][0, 0, :, 0].min()) >= 1 - LEAK


def test_the_bug_of_every_head():
    """keep ... in -> mind and keep ... at -> bay say keep ... in -> bay just as loudly: f1(a, b) f2(a, c)."""
    weights = skip_trigram_model([(KEEP, IN, MIND), (KEEP, AT, BAY)], d_vocab=9, leak=LEAK).weights
    said = logits(weights, torch.tensor([[0, KEEP, OTHER, IN]]))[0, -1]
    assert math.isclose(float(said[MIND]), float(said[BAY]), rel_tol=1e-9)
    assert float(said[[MIND, BAY]].softmax(-1)[0]) == pytest.approx(0.5) and float(said[MIND] - said[OTHER]) > 8


def test_circuits_by_hand():
    built = skip_trigram_model([(KEEP, IN, MIND), (LIE, IN, BAY)], d_vocab=9)
    weights, head = built.weights, built.weights.head("L0H0")
    QK, OV = weights.W_E.T @ head.qk().dense() @ weights.W_E, weights.W_U @ head.ov.dense() @ weights.W_E
    wanted = torch.zeros(2, 9, 9, dtype=torch.float64)
    wanted[0, IN, KEEP] = wanted[0, IN, LIE] = built.notes["sharpness L0H0"]
    wanted[1, MIND, KEEP] = wanted[1, BAY, LIE] = built.notes["logit_scale"]
    torch.testing.assert_close(torch.stack((QK, OV)), wanted, rtol=0, atol=1e-9)
    assert torch.linalg.matrix_rank(OV) == 2


def test_without_bos_the_gap_is_one():
    part = Part(Seek(((3, 1),)), Translate(((1, 2),)))
    built = compile_model([[part]], Plan(d_vocab=5, n_ctx=8, bos=False, positions="none"))
    assert built.notes["gap L0H0"] == 1.0 and built.weights.b_Q is None
    assert logits(built.weights, torch.tensor([[4, 1, 0, 3]])).argmax(-1)[0, -1] == 2


def test_rules_that_cannot_be():
    with pytest.raises(UsageError, match="at least one rule"):
        skip_trigram_model([])
    with pytest.raises(UsageError, match=r"ids 1 to 63, token 0 being BOS"):
        skip_trigram_model([(0, 3, 4)])
    for empty in (Seek, Translate):
        with pytest.raises(UsageError, match="at least one"):
            empty(())
    with pytest.raises(UsageError, match="without content"):
        skip_trigram_model([(1, 3, 64)])
