"""The plain copying head: shares of what was seen, exactly."""

from __future__ import annotations

import pytest
import torch

from headway.circuits import copying_scores
from headway.model.forward import run
from headway.sources.handmade.copying import Everywhere, copying_model
from headway.sources.handmade.plan import Plan


def test_logits_are_shares():
    built = copying_model(d_vocab=6, n_ctx=10)
    tokens = torch.tensor([[0, 3, 5, 3, 3, 1, 2, 5, 4, 3]])
    found = run(built.weights, tokens)
    for i in range(10):
        seen = torch.bincount(tokens[0, : i + 1], minlength=6).double() / (i + 1)
        seen[0] = 0
        torch.testing.assert_close(found.logits[0, i], built.notes["logit_scale"] * seen, rtol=0, atol=1e-9)
        assert float(found.patterns[0][0, 0, i, : i + 1].std(correction=0)) < 1e-12
    assert set(built.notes) == {"leak", "logit_scale"} and Everywhere().gap(Plan(), {}) is None


def test_copying_is_one():
    (row,) = copying_scores(copying_model(bos=False, d_vocab=9).weights, draws=20).rows()
    assert row["copying"] == pytest.approx(1, abs=1e-9)
