"""The virtual two-back head (exercise 1): two previous-token heads, the second moving what the first moved."""

from __future__ import annotations

import torch

from headway.sources.handmade.built import Built
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.offset import Offset
from headway.sources.handmade.parts import Copy, Part
from headway.sources.handmade.plan import Plan


# Why it works.  W_OV of layer 0 is previous content^+, that of layer 1 out previous^+, so that
#   W_OV1 W_OV0 = out content^+      moves contents         A1 A0 = two steps back, but for leak + leak
# Neither head alone says anything: what layer 0 writes W_U does not read, and what layer 1 reads tokens do not write. All
# there is comes over the path of order 2, by V-composition, which is 1/sqrt(c) for c contents. Position 0 attends to
# itself in both layers, so positions 0 and 1 both say token 0 (exercises.md C2).
def two_back_model(
    *,
    d_vocab: int = 12,
    n_ctx: int = 32,
    leak: float = 1e-3,
    bos: bool = True,
    seed: int | None = 0,
    dtype: torch.dtype = torch.float64,
) -> Built:
    """Two layers of one head, each one step back: position i says the token at i - 2.

    Known: the pattern of L0H0-L1H0 has at least 1 - 2 leak two back; orders 0 and 1 are uniform; the token at i - 2 has
    probability at least 1 - leak. V-composition is 1 / sqrt(contents), Q- and K-composition 0. notes: see `compile_model`.

    >>> from headway.model.forward import logits
    >>> logits(two_back_model().weights, torch.tensor([[0, 3, 5, 7, 2]])).argmax(-1)[0, 3:].tolist()
    [3, 5]
    """
    plan = Plan(d_vocab=d_vocab, n_ctx=n_ctx, leak=leak, bos=bos, seed=seed, dtype=dtype)
    layers = [[Part(Offset(1), Copy("content", "previous"))], [Part(Offset(1), Copy("previous", "out"))]]
    return compile_model(layers, plan, name="two_back_model")
