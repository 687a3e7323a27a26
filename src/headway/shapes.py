"""The axis names used in every signature, and the few aliases worth having.

    batch    rows of tokens                  layer    0 .. n_layers-1
    pos      positions of a row              head     query heads 0 .. n_heads-1
    dst      destination (query) positions   kv_head  key/value heads 0 .. n_kv_heads-1
    src      source (key) positions          vocab    tokens
    d_model  width of the residual stream    d_head   width of a head
    rank     inner width of a factored product

Column vectors as in the paper: W_Q, W_K, W_V are [d_head, d_model], W_O is [d_model, d_head]; activations keep d_model
last. jaxtyping checks these names in the tests only.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from headway.errors import ShapeProblem

Tokens = Integer[Tensor, "batch pos"]
Keep = Bool[Tensor, "batch pos"]
Stream = Float[Tensor, "batch pos d_model"]
Logits = Float[Tensor, "batch pos vocab"]
Pattern = Float[Tensor, "batch head dst src"]
PerHead = Float[Tensor, "batch head pos d_model"]


def as_tensor(values: Any, what: str) -> Tensor:
    """A tensor from a tensor, an array or nested lists of numbers. Raises ShapeProblem for all else.

    >>> as_tensor([[1.0, 2.0]], "a row").shape
    torch.Size([1, 2])
    """
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeProblem(what, expected="a tensor, array or nested lists of numbers", got=str(error)) from None


def whole_ids(ids: Any, what: str, axes: str) -> Integer[Tensor, "..."]:
    """Token ids as int64, from a tensor of any integer type with the named axes. Raises ShapeProblem for all else.

    >>> whole_ids(torch.tensor([[3, 1]], dtype=torch.uint16), "tokens", "batch pos").dtype
    torch.int64
    """
    whole = isinstance(ids, Tensor) and not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
    if not whole or ids.ndim != len(axes.split()):
        got = f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, Tensor) else type(ids).__name__
        hint = None if isinstance(ids, Tensor) else "Make a tensor of them: torch.tensor(...)"
        expected = f"whole-number ids ({', '.join(axes.split())})"
        raise ShapeProblem(what, expected=expected, got=got, next_step=hint)
    return ids.long()
