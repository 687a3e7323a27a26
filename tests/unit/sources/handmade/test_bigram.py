"""The zero-layer model gives its table back, exactly."""

from __future__ import annotations

import pytest
import torch

from headway.errors import NotFinite, ShapeProblem
from headway.model.forward import logits
from headway.sources.handmade.bigram import bigram_model
from support.unchecked import as_users_run_it


def test_the_table_comes_back():
    table = torch.randn(7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = bigram_model(table, bos=0)
    torch.testing.assert_close(weights.W_U @ weights.W_E, table, rtol=0, atol=1e-12)
    tokens = torch.tensor([[3, 0, 6]])
    torch.testing.assert_close(logits(weights, tokens)[0], table.T[tokens[0]], rtol=0, atol=1e-12)
    assert weights.config.n_layers == 0 and weights.config.bos == 0 and weights.config.positions == "none"


def test_tables_that_are_none():
    with pytest.raises(NotFinite, match="NaN or infinity"):
        bigram_model(torch.zeros(3, 3).log())
    with as_users_run_it():
        for bad in (torch.zeros(3, 4), [[0.0]]):
            with pytest.raises(ShapeProblem, match="expected a square tensor"):
                bigram_model(bad)  # type: ignore[arg-type]
