"""Induction by K-composition (exercise 3): what followed this token last time, said again."""

from __future__ import annotations

import torch

from headway.sources.handmade.built import Built
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.match import Match
from headway.sources.handmade.offset import Offset
from headway.sources.handmade.parts import Copy, Part
from headway.sources.handmade.plan import Plan

# Why it works.  Layer 0 writes at every position what stood before it (offset.py); layer 1 looks, there, for its own
# token (match.py), and copies what stands where it finds it: the token after each earlier copy of its own. Both proofs
# stand by their parts; together: the second head's gap is 1/2 - leak with BOS, 1 - 2 leak without, in any stream.
# Rotary positions change neither: the first head turns a constant, the second matches contents in dims that are not
# turned (partial rotary). In turned dims a match D tokens away would score cos(theta D) instead of 1, so they serve for
# contents only where theta (n_ctx - 1) is small (exercises.md B4).
_LAYERS = ((Part(Offset(1), Copy("content", "previous")),), (Part(Match("previous"), Copy("content", "out")),))


def induction_model(
    *,
    d_vocab: int = 64,
    n_ctx: int = 128,
    leak: float = 1e-3,
    bos: bool = True,
    seed: int | None = 0,
    dtype: torch.dtype = torch.float64,
) -> Built:
    """Two layers of one head: L0H0 previous-token, L1H0 induction, joined by K-composition alone.

    Known, with c = d_vocab - 1 contents (c = d_vocab without BOS):
    - L0H0 has at least 1 - leak on the previous token; L1H0 at least 1 - leak on the successors of earlier copies of its
      token (with BOS), and on BOS when there are none; the token copied from one copy has probability >= 1 - leak;
    - K-composition of (L1H0, L0H0) is 1 / sqrt(c), Q- and V-composition 0;
    - copying of L1H0 is 1: W_U W_OV W_E is U times the projection on all tokens but BOS; that of L0H0 is 0 / 0;
    - the direct path is uniform, so the loss of order 0 is ln d_vocab; order 1 gives all there is, order 2 nothing.
    Without BOS prefix matching on two copies of n tokens is (n - 1/2) / n, see `Match`. seed: of the contents and of the
    stream's rotation; None leaves subspaces on the axes. notes: see `compile_model`.

    >>> from headway.model.forward import logits
    >>> logits(induction_model().weights, torch.tensor([[0, 5, 9, 3, 5]])).argmax(-1)[0, -1].item()
    9
    """
    plan = Plan(d_vocab=d_vocab, n_ctx=n_ctx, leak=leak, bos=bos, seed=seed, dtype=dtype)
    return compile_model(_LAYERS, plan, name="induction_model")


def rotary_induction_model(
    *,
    d_vocab: int = 64,
    n_ctx: int = 128,
    leak: float = 1e-3,
    bos: bool = True,
    seed: int | None = 0,
    dtype: torch.dtype = torch.float64,
) -> Built:
    """The same circuit under rotary positions: nothing positional in the stream; all that `induction_model` says holds.

    The embedding also writes a constant direction `one`, which the first head's queries and keys read.

    >>> from headway.model.forward import logits
    >>> logits(rotary_induction_model().weights, torch.tensor([[0, 5, 9, 3, 5]])).argmax(-1)[0, -1].item()
    9
    """
    plan = Plan(d_vocab=d_vocab, n_ctx=n_ctx, leak=leak, bos=bos, positions="rotary", seed=seed, dtype=dtype)
    return compile_model(_LAYERS, plan, name="rotary_induction_model")
