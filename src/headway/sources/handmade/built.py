"""A hand-made model with what is known about it, and the way from heads to `Weights`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from headway.errors import ShapeProblem, UsageError
from headway.model.config import ModelConfig
from headway.model.head import Head
from headway.model.weights import AXES, REQUIRED, Weights
from headway.provenance import Provenance
from headway.sources.handmade.subspaces import Space, orthogonal


@dataclass(frozen=True, eq=False)
class Built:
    """A model, the subspaces it was written in, and the numbers its construction chose or promises, by name."""

    weights: Weights
    space: Space
    notes: Mapping[str, float]


def assemble(
    layers: Sequence[Sequence[Head]],
    ends: Mapping[str, Float[Tensor, "..."]],
    *,
    n_ctx: int,
    bos: int | None,
    provenance: Provenance,
) -> Weights:
    """One model from heads, layer by layer, and its ends (W_E, W_U, and W_pos where positions are in the stream).

    Heads narrower than the widest get zero rows, which change neither circuit. Heads with rotary positions make a rotary
    model. Raises ShapeProblem when layers have different numbers of heads, UsageError when heads have different scales or
    turn by different angles.
    """
    every = [head for layer in layers for head in layer]
    if len({len(layer) for layer in layers}) > 1:
        raise ShapeProblem("layers", expected="the same number of heads in each", got=[len(layer) for layer in layers])
    if len({head.attn_scale for head in every}) > 1:
        raise UsageError("heads of one model share their scale", got=sorted({head.attn_scale for head in every}))
    d_head = max((head.W_Q.shape[0] for head in every), default=1)
    config = ModelConfig(
        n_layers=len(layers),
        n_heads=len(layers[0]) if layers else 0,
        d_model=ends["W_E"].shape[0],
        d_head=d_head,
        d_vocab=ends["W_E"].shape[1],
        n_ctx=n_ctx,
        attn_scale=every[0].attn_scale if every else 1.0,
        bos=bos,
        **_positions(every, "W_pos" in ends),
    )
    parts: dict[str, Any] = {}
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
        given = [getattr(head, name) for head in every]
        if every and any(tensor is not None for tensor in given):
            wide = [_widened(tensor, name, head, d_head) for tensor, head in zip(given, every, strict=True)]
            parts[name] = torch.stack(wide).unflatten(0, (config.n_layers, config.n_heads))
        elif name in REQUIRED:  # no heads at all: nothing to stack, but an empty tensor of the right shape
            parts[name] = ends["W_E"].new_zeros([getattr(config, axis) for axis in AXES[name]])
    return Weights(config=config, provenance=provenance, **ends, **parts).check_finite()


def contents(d_vocab: int, *, bos: bool, seed: int, dtype: torch.dtype) -> Float[Tensor, "content vocab"]:
    """Content coordinates of every token: orthonormal, in no special basis; with BOS, token 0 has none (zeros)."""
    n = d_vocab - bos
    if n < 2:
        raise UsageError("d_vocab", expected="at least two tokens" + (" besides BOS" if bos else ""), got=d_vocab)
    table = orthogonal(n, seed)
    return (pad(table, (1, 0)) if bos else table).to(dtype)


def _positions(heads: Sequence[Head], learned: bool) -> dict[str, Any]:
    """The config's fields on positions."""
    fields = ("positions", "position_base", "rotary_dims", "rotary_pairs")
    turns = {tuple(getattr(head.turns, name) for name in fields) if head.turns else None for head in heads}
    if len(turns) > 1:
        raise UsageError("heads of one model share their rotary positions", got=", ".join(sorted(map(str, turns))))
    turned = next(iter(turns), None)
    return dict(zip(fields, turned, strict=True)) if turned else {"positions": "learned" if learned else "none"}


def _widened(tensor: Tensor | None, name: str, head: Head, d_head: int) -> Tensor:
    if tensor is None:
        tensor = head.W_Q.new_zeros(head.W_Q.shape[0])
    extra = d_head - head.W_Q.shape[0]
    return pad(tensor, (0, extra)) if name == "W_O" or tensor.ndim == 1 else pad(tensor, (0, 0, 0, extra))
