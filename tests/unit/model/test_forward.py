from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import ShapeProblem, TextProblem, TokenProblem
from headway.model.forward import logits, run, softmax_rows
from headway.model.positions import sinusoids
from headway.model.weights import Weights
from support.naive import naive_run
from support.random_models import FEATURES, feature_name, padding, random_tokens, random_weights
from support.unchecked import as_users_run_it

EVERY = pytest.mark.parametrize("features", FEATURES, ids=feature_name)
SIDES = pytest.mark.parametrize("side", ["left", "right", "both"])


def assert_close(a: Any, b: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-9, atol=1e-9)


@EVERY
def test_the_forward_pass_equals_plain_loops(features: dict[str, Any]):
    weights = random_weights(**features)
    tokens = random_tokens(weights, rows=2, n=6)
    found = run(weights, tokens, results=True)
    assert_close(logits(weights, tokens), found.logits)
    for row in range(2):
        naive = naive_run(weights, tokens[row].tolist())
        assert_close(found.logits[row], naive.logits)
        for layer in range(weights.config.n_layers):
            assert_close(found.scores[layer][row], naive.scores[layer])
            assert_close(found.patterns[layer][row], naive.patterns[layer])
            assert found.results is not None
            assert_close(found.results[layer][row], naive.results[layer])
        for kind, wanted in ((found.streams, naive.streams), (found.norm_scales or [], naive.scales)):
            for a, b in zip(kind, wanted, strict=bool(kind)):
                assert_close(a[row], b)


@EVERY
def test_results_and_bias_are_what_a_layer_adds(features: dict[str, Any]):
    weights = random_weights(**features)
    tokens = random_tokens(weights)
    keep = padding(*tokens.shape, side="left")
    found = run(weights, tokens, keep=keep, results=True)
    assert found.results is not None and len(found.results) == weights.config.n_layers
    for layer, result in enumerate(found.results):
        b_O = 0 if weights.b_O is None else weights.b_O[layer]
        assert_close(found.streams[layer + 1] - found.streams[layer], result.sum(1) + b_O)


def read_of(weights: Weights, layer: int, stream: torch.Tensor) -> torch.Tensor:
    """What a layer's heads read, from torch's own norms."""
    c = weights.config
    if c.norm == "none":
        return stream
    gain = None if weights.norm_gain is None else weights.norm_gain[layer]
    bias = None if weights.norm_bias is None else weights.norm_bias[layer]
    if c.norm == "layer":
        return torch.nn.functional.layer_norm(stream, (c.d_model,), gain, bias, c.norm_eps)
    read = torch.nn.functional.rms_norm(stream, (c.d_model,), gain, c.norm_eps)
    return read if bias is None else read + bias


@EVERY
def test_scores_are_the_formula_of_the_design(features: dict[str, Any]):
    """s_ij = attn_scale * x~_i^T qk(offset i - j, biases) x~_j at every layer, head and pair."""
    weights = random_weights(**features)
    c = weights.config
    tokens = random_tokens(weights, rows=2, n=7)
    found = run(weights, tokens)
    assert len(found.scores) == c.n_layers
    for layer, scores in enumerate(found.scores):
        x = read_of(weights, layer, found.streams[layer])
        if c.positions == "shortformer":
            x = x + sinusoids(torch.arange(7), c)
        x = torch.cat((x, torch.ones(2, 7, 1, dtype=x.dtype)), dim=-1)
        for h in range(c.n_heads):
            head = weights.head(f"L{layer}H{h}")
            for offset in range(7):
                qk = head.qk(offset, biases=True).dense()
                wanted = c.attn_scale * torch.einsum("bid,de,bie->bi", x[:, offset:], qk, x[:, : 7 - offset])
                assert_close(scores[:, h].diagonal(-offset, dim1=-2, dim2=-1), wanted)


@EVERY
@SIDES
def test_padded_rows_equal_the_rows_alone(features: dict[str, Any], side: str):
    weights = random_weights(**features)
    tokens = random_tokens(weights, rows=3, n=8)
    keep = padding(3, 8, side)
    found, fast = run(weights, tokens, keep=keep), logits(weights, tokens, keep=keep)
    for row in range(3):
        alone = run(weights, tokens[row][keep[row]][None])
        assert_close(found.logits[row][keep[row]], alone.logits[0])
        assert_close(fast[row][keep[row]], alone.logits[0])
        for layer, pattern in enumerate(found.patterns):
            assert_close(pattern[row][:, keep[row]][:, :, keep[row]], alone.patterns[layer][0])


@SIDES
def test_rows_with_nothing_to_attend_to_are_zero(side: str):
    weights = random_weights(norm="layer")
    tokens = random_tokens(weights, rows=3, n=8)
    keep = padding(3, 8, side)
    keep[2] = False
    found = run(weights, tokens, keep=keep, results=True)
    assert bool(found.logits.isfinite().all()) and bool(logits(weights, tokens, keep=keep).isfinite().all())
    assert found.results is not None
    for pattern, result in zip(found.patterns, found.results, strict=True):
        hidden = ~keep
        assert bool((pattern.transpose(1, 2)[hidden] == 0).all())
        assert bool((result.transpose(1, 2)[hidden] == 0).all())
        sums = pattern.sum(-1).transpose(1, 2)
        assert_close(sums[keep], torch.ones_like(sums[keep]))
        assert bool((pattern.permute(0, 3, 1, 2)[hidden] == 0).all()), "padding is never attended to"


@pytest.mark.parametrize("positions", ["none", "shortformer", "rotary"])
def test_huge_scores_never_look_ahead(positions: str):
    base = random_weights(positions=positions)
    weights = base.replace(W_Q=base.W_Q * -1e6)  # every score far below any finite mask value would do
    tokens = random_tokens(weights, n=9)
    found = run(weights, tokens)
    assert float(torch.cat([s[s.isfinite()] for s in found.scores]).min()) < -1e5
    for pattern in found.patterns:
        assert bool((pattern.triu(1) == 0).all())
        assert_close(pattern.sum(-1), torch.ones_like(pattern.sum(-1)))
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % weights.config.d_vocab
    for forward in (lambda t: run(weights, t).logits, lambda t: logits(weights, t)):
        assert torch.equal(forward(tokens)[:, :-1], forward(changed)[:, :-1])


def test_query_heads_share_the_key_value_head_of_their_group():
    weights = random_weights(n_heads=6, n_kv_heads=2, n_layers=1)
    W_V = weights.W_V.clone()
    W_V[0, 1] = 0
    tokens = random_tokens(weights)
    before = run(weights.replace(b_V=None), tokens, results=True).results
    after = run(weights.replace(W_V=W_V, b_V=None), tokens, results=True).results
    assert before is not None and after is not None
    for head in range(6):
        assert torch.equal(before[0][:, head], after[0][:, head]) == (head < 3)
        assert bool((after[0][:, head] == 0).all()) == (head >= 3)


@pytest.mark.parametrize("scale", [1.0, 0.0, -0.5, -1.0, -2.0, -1e-9, 1.000001])
def test_the_scale_is_a_plain_number(scale: float):
    weights = random_weights(attn_scale=scale)
    tokens = random_tokens(weights)
    unit = run(random_weights(attn_scale=1.0), tokens).scores[0]
    here = run(weights, tokens).scores[0]
    allowed = unit.isfinite()
    assert_close(here[allowed], scale * unit[allowed])
    assert_close(logits(weights, tokens), run(weights, tokens).logits)


def test_gradients_reach_every_tensor():
    weights = random_weights(norm="layer", positions="learned")
    leaves: dict[str, Any] = {n: t.clone().requires_grad_() for n, t in weights.tensors().items()}
    tokens = random_tokens(weights)
    logits(weights.replace(**leaves), tokens).square().sum().backward()
    for name, leaf in leaves.items():
        # A key bias adds the same to a whole row of scores without rotary, so its gradient is rounding at most.
        assert float(leaf.grad.abs().max()) > (0 if name == "b_K" else 1e-9), name


def test_no_layers_no_heads():
    weights = random_weights(n_layers=0, n_heads=0, n_kv_heads=0)
    tokens = random_tokens(weights)
    assert weights.b_U is not None
    assert_close(logits(weights, tokens), (weights.W_U @ weights.W_E).T[tokens] + weights.b_U)
    empty = random_weights(n_layers=2, n_heads=0, n_kv_heads=0, biases=("b_O",))
    assert empty.b_O is not None
    assert_close(logits(empty, tokens), (empty.W_U @ (empty.W_E + empty.b_O.sum(0)[:, None])).T[tokens])
    assert_close(run(empty, tokens).logits, logits(empty, tokens))


def test_float32_and_bfloat16_run_and_agree_roughly():
    weights = random_weights(norm="rms", positions="rotary")
    tokens = random_tokens(weights)
    exact = logits(weights, tokens)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.3)):
        low = weights.to(dtype)
        found = run(low, tokens)
        assert found.logits.dtype == dtype
        assert float((found.logits.double() - exact).abs().max()) < tolerance
        assert float((logits(low, tokens).double() - exact).abs().max()) < tolerance


def test_the_same_call_twice_gives_the_same_and_changes_nothing():
    weights = random_weights(norm="layer")
    tokens, before = random_tokens(weights), weights.content_hash()
    kept = tokens.clone()
    first, second = run(weights, tokens), run(weights, tokens)
    assert torch.equal(first.logits, second.logits)
    assert torch.equal(tokens, kept) and weights.content_hash() == before


def test_softmax_rows():
    scores = torch.tensor([[1.0, 3.0, -math.inf], [-math.inf, -math.inf, -math.inf]], dtype=torch.float64)
    found = softmax_rows(scores)
    wanted = np.exp([1.0, 3.0]) / np.exp([1.0, 3.0]).sum()
    assert_close(found[0, :2], wanted)
    assert found[1].tolist() == [0, 0, 0] and float(found[0, 2]) == 0


@pytest.mark.parametrize("forward", [logits, run])
@pytest.mark.parametrize(
    ("tokens", "keep", "problem", "word"),
    [
        (torch.zeros(2, 3), None, ShapeProblem, "whole-number ids"),
        (torch.zeros(3, dtype=torch.int64), None, ShapeProblem, "batch, pos"),
        (torch.zeros(0, 3, dtype=torch.int64), None, TextProblem, "at least one row"),
        (torch.zeros(2, 0, dtype=torch.int64), None, TextProblem, "at least one row"),
        (torch.tensor([[0, 13]]), None, TokenProblem, "d_vocab-1=12"),
        (torch.tensor([[-1, 3]]), None, TokenProblem, "-1 .. 3"),
        (torch.tensor([[1, 3]]), torch.ones(2, 2, dtype=torch.bool), ShapeProblem, "like tokens"),
        (torch.tensor([[1, 3]]), torch.ones(1, 2), ShapeProblem, "bool"),
        (torch.zeros(1, 17, dtype=torch.int64), None, TextProblem, "n_ctx=16"),
    ],
)
def test_odd_tokens_are_refused(forward: Any, tokens: Any, keep: Any, problem: type[Exception], word: str):
    weights = random_weights(positions="learned")
    with as_users_run_it(), pytest.raises(problem, match=word):
        forward(weights, tokens, keep=keep)


def test_texts_longer_than_the_context_run_without_a_position_table():
    weights = random_weights(positions="rotary")
    assert logits(weights, random_tokens(weights, n=20)).shape == (3, 20, 13)
