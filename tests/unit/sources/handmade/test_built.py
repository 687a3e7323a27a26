from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headway.errors import ShapeProblem, UsageError
from headway.model.config import ModelConfig
from headway.model.forward import run
from headway.model.head import Head, same_head
from headway.provenance import Provenance
from headway.sources.handmade.built import assemble, contents

ENDS = {"W_E": torch.eye(4, 6, dtype=torch.float64), "W_U": torch.eye(6, 4, dtype=torch.float64)}


def head(d_head: int, *, b_Q: bool = False, scale: float = 1.0) -> Head:
    W = torch.randn(4, d_head, 4, dtype=torch.float64)
    bias = torch.randn(d_head, dtype=torch.float64) if b_Q else None
    return Head(W_Q=W[0], W_K=W[1], W_V=W[2], W_O=W[3].T, b_Q=bias, attn_scale=scale)


def test_heads_of_different_widths_stand_side_by_side_unchanged():
    layers = [[head(2), head(5, b_Q=True)], [head(3), head(1)]]
    weights = assemble(layers, ENDS, n_ctx=8, bos=1, provenance=Provenance(source="test"))
    c = weights.config
    assert (c.n_layers, c.n_heads, c.d_head, c.d_model, c.d_vocab, c.n_ctx, c.bos) == (2, 2, 5, 4, 6, 8, 1)
    assert c.positions == "none" and c.attn_scale == 1.0 and weights.b_K is None and weights.b_Q is not None
    for i, layer in enumerate(layers):
        for j, given in enumerate(layer):
            assert same_head(weights.head(f"L{i}H{j}"), given)
    assert run(weights, torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 6)


def test_rotary_heads_make_a_rotary_model():
    turns = ModelConfig(
        n_layers=1, n_heads=1, d_model=4, d_head=3, d_vocab=6, n_ctx=8, positions="rotary", position_base=7.0,
        rotary_dims=2, rotary_pairs="adjacent",
    )  # fmt: skip
    turned = [replace(head(3), turns=turns), replace(head(5), turns=replace(turns, d_head=5))]
    weights = assemble([turned], ENDS, n_ctx=8, bos=None, provenance=Provenance())
    c = weights.config
    assert (c.positions, c.position_base, c.rotary_dims, c.rotary_pairs) == ("rotary", 7.0, 2, "adjacent")
    for j, given in enumerate(turned):
        assert same_head(weights.head(f"L0H{j}"), given)
    with pytest.raises(UsageError, match="share their rotary positions"):
        assemble([[turned[0], head(2)]], ENDS, n_ctx=8, bos=None, provenance=Provenance())


def test_no_layers():
    weights = assemble([], ENDS, n_ctx=8, bos=None, provenance=Provenance())
    assert weights.config.n_layers == 0 and weights.W_Q.shape == (0, 0, 1, 4)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ShapeProblem, match=r"same number of heads in each, got \[1, 2\]"):
        assemble([[head(2)], [head(2), head(2)]], ENDS, n_ctx=8, bos=None, provenance=Provenance())
    with pytest.raises(UsageError, match="share their scale"):
        assemble([[head(2), head(2, scale=0.5)]], ENDS, n_ctx=8, bos=None, provenance=Provenance())


@pytest.mark.parametrize("bos", [True, False])
def test_contents_are_orthonormal_and_bos_has_none(bos: bool):
    table = contents(7, bos=bos, seed=2, dtype=torch.float64)
    n = 7 - bos
    assert table.shape == (n, 7)
    gram = torch.eye(7, dtype=torch.float64)
    gram[0, 0] = 1 - bos
    torch.testing.assert_close(table.T @ table, gram)


def test_contents_need_two_tokens():
    with pytest.raises(UsageError, match="two tokens besides BOS"):
        contents(2, bos=True, seed=0, dtype=torch.float64)
