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

from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens = Int[Tensor, "batch pos"]
Keep = Bool[Tensor, "batch pos"]
Stream = Float[Tensor, "batch pos d_model"]
Logits = Float[Tensor, "batch pos vocab"]
Pattern = Float[Tensor, "batch head dst src"]
PerHead = Float[Tensor, "batch head pos d_model"]
