from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.errors import ConfigProblem, NotFinite, ShapeProblem, UnknownName, UsageError
from headway.model.conventions import from_tensors
from headway.model.weights import Weights
from support.random_models import random_weights
from support.unchecked import as_users_run_it

MODELS = pytest.mark.parametrize(
    "features",
    [
        {"positions": "learned", "norm": "layer"},
        {"positions": "rotary", "n_kv_heads": 4},
        {"biases": "none", "d_head": 3},
    ],
    ids=str,
)
CHOICES = ("attn_scale", "norm", "positions", "position_base", "bos", "n_ctx")


def choices(weights: Weights) -> dict[str, Any]:
    return {name: getattr(weights.config, name) for name in CHOICES}


def rows_of(weights: Weights) -> dict[str, torch.Tensor]:
    """The model in row convention: every matrix transposed."""
    return {n: t.mT.contiguous() if n.startswith("W_") else t for n, t in weights.tensors().items()}


def state_dict(weights: Weights) -> dict[str, torch.Tensor]:
    """The keys of a TransformerLens state dict."""
    outside = {
        "W_E": "embed.W_E",
        "W_U": "unembed.W_U",
        "b_U": "unembed.b_U",
        "W_pos": "pos_embed.W_pos",
        "final_gain": "ln_final.w",
        "final_bias": "ln_final.b",
    }
    found: dict[str, torch.Tensor] = {}
    for name, tensor in rows_of(weights).items():
        if name in outside:
            found[outside[name]] = tensor
            continue
        inner = {"norm_gain": "ln1.w", "norm_bias": "ln1.b"}.get(name, f"attn.{name}")
        found |= {f"blocks.{layer}.{inner}": part for layer, part in enumerate(tensor)}
    masks = {f"blocks.{layer}.attn.{n}": torch.ones(1) for layer in range(2) for n in ("mask", "IGNORE")}
    return found | masks


@MODELS
def test_every_way_of_giving_the_arrays_gives_the_same_model(features: dict[str, Any]):
    weights = random_weights(**features)
    options = choices(weights)
    for found in (
        from_tensors(weights.tensors(), **options),
        from_tensors(rows_of(weights), convention="transformer-lens", **options),
        from_tensors(state_dict(weights), convention="transformer-lens", **options),
    ):
        assert found.config == weights.config
        for name, tensor in weights.tensors().items():
            assert torch.equal(getattr(found, name), tensor), name


def test_shape_alone_cannot_tell_so_the_convention_does():
    """Square matrices fit both ways round; only the word decides."""
    weights = random_weights(d_model=5, d_head=5, d_vocab=5, n_ctx=5, biases="none", bos=None)
    paper, rows = (from_tensors(weights.tensors(), convention=c, n_ctx=5) for c in ("paper", "transformer-lens"))
    assert torch.equal(paper.W_Q, rows.W_Q.mT) and not torch.equal(paper.W_Q, rows.W_Q)


def test_a_wrong_convention_gets_a_hint():
    weights = random_weights(biases="none")
    with as_users_run_it(), pytest.raises(ShapeProblem):
        from_tensors(rows_of(weights), n_ctx=16)
    mixed = {**weights.tensors(), "W_O": weights.W_O.mT}
    with as_users_run_it(), pytest.raises(ShapeProblem, match=r"W_O.*stored transposed"):
        from_tensors(mixed, n_ctx=16)


def test_sizes_come_from_the_arrays_and_must_agree():
    tensors = random_weights(biases="none").tensors()
    found = from_tensors(tensors, n_ctx=9).config
    assert (found.d_model, found.d_vocab, found.n_layers, found.n_heads, found.n_kv_heads, found.d_head) == (
        *(10, 13),
        *(2, 4, 2, 5),
    )
    assert found.positions == "none"
    with pytest.raises(ShapeProblem, match="d_head of the arrays; expected d_head=4"):
        from_tensors(tensors, n_ctx=9, d_head=4)
    with pytest.raises(UsageError, match="n_ctx="):
        from_tensors(tensors)
    learned = random_weights(positions="learned", biases="none").tensors()
    found = from_tensors(learned).config
    assert (found.n_ctx, found.positions) == (16, "learned")


def test_bad_input_is_named():
    weights = random_weights(biases="none")
    tensors = weights.tensors()
    with pytest.raises(UsageError, match="paper or transformer-lens"):
        from_tensors(tensors, convention="rows", n_ctx=9)
    with pytest.raises(ShapeProblem, match="no W_U"):
        from_tensors({n: t for n, t in tensors.items() if n != "W_U"}, n_ctx=9)
    with pytest.raises(UnknownName, match=r"'W_QK'.*Did you mean"):
        from_tensors({**tensors, "W_QK": weights.W_Q}, n_ctx=9)
    with pytest.raises(UnknownName, match=r"blocks.0.mlp.W_in"):
        from_tensors({**tensors, "blocks.0.mlp.W_in": torch.ones(10, 40)}, n_ctx=9)
    with pytest.raises(ShapeProblem, match=r"W_Q; expected axes \(n_layers, n_heads, d_head, d_model\)"):
        from_tensors({**tensors, "W_Q": weights.W_Q[0]}, n_ctx=9)
    with pytest.raises(NotFinite, match=r"W_E\[0, 0\]"):
        from_tensors({**tensors, "W_E": weights.W_E * float("nan")}, n_ctx=9)
    with pytest.raises(ConfigProblem, match="norm"):
        from_tensors(tensors, n_ctx=9, norm="batch")
    with pytest.raises(ConfigProblem, match=r"'atn_scale'.*Did you mean attn_scale"):
        from_tensors(tensors, n_ctx=9, atn_scale=1.0)


def test_a_missing_layer_is_noticed():
    weights = random_weights(biases="none")
    keys = {n: t for n, t in state_dict(weights).items() if n != "blocks.0.attn.W_K"}
    with pytest.raises(ShapeProblem, match=r"layers of W_K; expected every layer from 0, got \[1\]"):
        from_tensors(keys, convention="transformer-lens", n_ctx=9)
