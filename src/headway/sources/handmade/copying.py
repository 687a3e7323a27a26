"""The plain copying head: attend to everything alike, and say what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from headway.sources.handmade.built import Built
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.parts import Copy, Part, Rows
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space


# Why it works.  W_QK = 0, so a query at position i gives each of its i + 1 positions 1 / (i + 1) exactly; W_OV = out
# content^+, so `out` holds how often each token has been seen, as a share of i + 1 (BOS counts as a position, not as a
# token). W_U turns shares into logits: U times the share. Nothing depends on order.
@dataclass(frozen=True)
class Everywhere:
    """Attends to every position alike. W_QK = 0."""

    def reads(self, _: Plan) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def gap(self, _: Plan, __: Mapping[str, float]) -> None:
        """None: no position is a rival."""
        return

    def rows(self, space: Space, _: Plan, __: float) -> Rows:
        """One row of zeros."""
        zero = space.read("content").new_zeros(1, space.d_model)
        return Rows(Q=zero, K=zero)


def copying_model(
    *,
    d_vocab: int = 64,
    n_ctx: int = 128,
    leak: float = 1e-3,
    bos: bool = True,
    seed: int | None = 0,
    dtype: torch.dtype = torch.float64,
) -> Built:
    """One layer, one head: the logit of a token is logit_scale times its share of the positions so far.

    Known: copying is 1, every pattern row is uniform, the direct path too. leak: of W_U alone, which gives a token that
    fills the context probability 1 - leak at least. notes: leak, logit_scale.

    >>> from headway.model.forward import logits
    >>> logits(copying_model().weights, torch.tensor([[0, 5, 9, 5]])).argmax(-1)[0, -1].item()
    5
    """
    plan = Plan(d_vocab=d_vocab, n_ctx=n_ctx, leak=leak, bos=bos, positions="none", seed=seed, dtype=dtype)
    return compile_model([[Part(Everywhere(), Copy())]], plan, name="copying_model")
