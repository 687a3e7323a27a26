"""The previous-token model: the head of exercise 2c, and nothing else (its proof: offset.py)."""

from __future__ import annotations

import torch

from headway.sources.handmade.built import Built
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.offset import Offset
from headway.sources.handmade.parts import Copy, Part
from headway.sources.handmade.plan import Plan


def previous_token_model(
    *,
    d_vocab: int = 12,
    n_ctx: int = 32,
    leak: float = 1e-3,
    bos: bool = True,
    seed: int | None = 0,
    dtype: torch.dtype = torch.float64,
) -> Built:
    """One layer, one head: position i says the token at i - 1.

    Known: the pattern has at least 1 - leak on the previous token at every position but 0; the direct path is exactly
    uniform (W_U reads `out` alone, which embeddings do not write); the token at i - 1 has probability at least 1 - leak.
    bos: token 0 is BOS, without content, so that after it (position 1) all logits are near 0. seed: of the contents and
    of the stream's rotation; None leaves subspaces on the axes. notes: see `compile_model`.

    >>> from headway.model.forward import logits
    >>> logits(previous_token_model().weights, torch.tensor([[0, 3, 5, 7]])).argmax(-1)[0, 2:].tolist()
    [3, 5]
    """
    plan = Plan(d_vocab=d_vocab, n_ctx=n_ctx, leak=leak, bos=bos, seed=seed, dtype=dtype)
    return compile_model([[Part(Offset(1), Copy("content", "out"))]], plan, name="previous_token_model")
