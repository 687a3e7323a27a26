"""Weights from named arrays, in the paper's column convention or in TransformerLens' row convention.

The only place that knows the row convention: there W_Q, W_K, W_V are [d_model, d_head], W_O [d_head, d_model],
W_E [d_vocab, d_model], W_U [d_model, d_vocab], W_pos [n_ctx, d_model].
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headway.errors import ShapeProblem, UnknownName, UsageError, did_you_mean
from headway.model.config import ModelConfig
from headway.model.weights import AXES, REQUIRED, Weights, as_read
from headway.shapes import as_tensor
from headway.tokens.tokenizer import Tokenizer

CONVENTIONS = ("paper", "transformer-lens")

# TransformerLens state-dict keys: ours by theirs; `blocks.N.` keys are stacked over layers.
_ALIASES = {
    "embed.W_E": "W_E",
    "pos_embed.W_pos": "W_pos",
    "unembed.W_U": "W_U",
    "unembed.b_U": "b_U",
    "ln_final.w": "final_gain",
    "ln_final.b": "final_bias",
    "ln1.w": "norm_gain",
    "ln1.b": "norm_bias",
} | {f"attn.{name}": name for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")}
_IGNORED = ("attn.mask", "attn.IGNORE")  # buffers that TransformerLens keeps beside its weights
_LAYER = re.compile(r"blocks\.(\d+)\.(.+)")


def from_tensors(
    tensors: Mapping[str, Tensor],
    *,
    convention: str = "paper",
    tokenizer: Tokenizer | None = None,
    **config: Any,
) -> Weights:
    """Weights from arrays named as in the paper (stacked over layers) or with TransformerLens state-dict keys.

    convention: `paper` (columns, the shapes of `headway.model.weights.AXES`) or `transformer-lens` (rows).
    config: any ModelConfig field; sizes are read from the arrays, and a size given must agree. `positions` is `learned`
    when there is a W_pos. Raises ShapeProblem, UnknownName, ConfigProblem, NotFinite.

    >>> t = {"W_E": torch.eye(3), "W_U": torch.eye(3), "W_O": torch.zeros(1, 2, 3, 1)}
    >>> w = from_tensors({**t, **dict.fromkeys(("W_Q", "W_K", "W_V"), torch.ones(1, 2, 1, 3))}, n_ctx=8, attn_scale=1.0)
    >>> w.config.n_heads, w.config.d_head
    (2, 1)
    """
    if convention not in CONVENTIONS:
        raise UsageError("unknown convention", expected=" or ".join(CONVENTIONS), got=repr(convention))
    named: dict[str, Any] = _gather(tensors)
    missing = [name for name in REQUIRED if name not in named]
    if missing:
        raise ShapeProblem("tensors missing", expected=", ".join(REQUIRED), got="no " + ", ".join(missing))
    for name, tensor in named.items():
        if tensor.ndim != len(AXES[name]):
            raise ShapeProblem(name, expected=f"axes ({', '.join(AXES[name])})", got=tuple(tensor.shape))
    if convention == "transformer-lens":
        named = {n: t.transpose(-1, -2) if n.startswith("W_") else t for n, t in named.items()}
    sizes = _sizes(named, config)
    defaults: dict[str, Any] = {"positions": "learned" if "W_pos" in named else "none"}
    fields: dict[str, Any] = {**defaults, **sizes, **config}
    return Weights(config=ModelConfig.from_dict(fields), tokenizer=tokenizer, **as_read(named)).check_finite()


def _gather(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Our names for whatever names were given; per-layer arrays stacked in layer order."""
    if not isinstance(tensors, Mapping):
        raise ShapeProblem("tensors", expected="arrays by name: {'W_E': ..., ...}", got=type(tensors).__name__)
    named: dict[str, Tensor] = {}
    layers: dict[str, dict[int, Tensor]] = {}
    for key, tensor in tensors.items():
        match = _LAYER.fullmatch(str(key))
        short = match[2] if match else str(key)
        if short in _IGNORED:
            continue
        name = _ALIASES.get(short, short)
        if name not in AXES:
            raise UnknownName(f"unknown tensor {key!r}", next_step=did_you_mean(str(key), [*AXES, *_ALIASES]))
        if name in named or (name in layers and not match):
            raise ShapeProblem(f"{name} is given twice", expected="one of its names", got=f"{key!r} besides another")
        if match:
            layers.setdefault(name, {})[int(match[1])] = as_tensor(tensor, key)
        else:
            named[name] = as_tensor(tensor, key)
    for name, by_layer in layers.items():
        if sorted(by_layer) != list(range(len(by_layer))):
            raise ShapeProblem(f"layers of {name}", expected="every layer from 0", got=sorted(by_layer))
        kinds = [(tuple(t.shape), str(t.dtype), str(t.device)) for t in by_layer.values()]
        if len(set(kinds)) > 1:
            raise ShapeProblem(f"layers of {name}", expected="one shape, dtype and device", got=kinds)
        named[name] = torch.stack([by_layer[i] for i in range(len(by_layer))])
    return named


def _sizes(named: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, int]:
    """Sizes read off the arrays. The embedding decides d_model and d_vocab, W_Q the heads, W_K the key/value heads."""
    sizes: dict[str, int] = {}
    for name, axes in (("W_E", AXES["W_E"]), ("W_Q", AXES["W_Q"]), ("W_K", AXES["W_K"]), ("W_pos", AXES["W_pos"])):
        if name not in named:
            continue
        for axis, size in zip(axes, named[name].shape, strict=True):
            sizes.setdefault(axis, size)
    for axis, size in sizes.items():
        if axis in config and config[axis] != size:
            raise ShapeProblem(f"{axis} of the arrays", expected=f"{axis}={config[axis]} as given", got=size)
    if "n_ctx" not in sizes and "n_ctx" not in config:
        raise UsageError("n_ctx is not in the arrays", next_step="Say how long texts may be: n_ctx=...")
    return sizes
