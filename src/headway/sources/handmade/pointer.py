"""Induction by pointer arithmetic (exercise 2f): a head reads where the copy stands, and looks one further."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from headway.sources.handmade.built import Built
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.kernels import kernel_gap, kernel_range
from headway.sources.handmade.match_not_self import MatchNotSelf
from headway.sources.handmade.parts import Copy, Part, Rows, kernel_rows, sink_rows
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space


# Why it works.  An earlier head has written, in `v`, the position p of what it attended to, but for a leak:
#   v_i = (1 - e_i) p_p + e_i (an average of other positions),   e_i <= e
#   key      k_j = p_j
#   query    q_i = T R(+a) diag(w_f / r_f^2) v_i      turning forwards: one step on in the text
#   score    s_ij / T = (1 - e_i) kappa(j - p - 1) + e_i (an average of kappas)
# With G and R the gap and range of the kernel over all distances 1 .. n-1,
#   the right j = p + 1 has at least  1 - e (1 - min kappa) = 1 - e R,    any other at most  (1 - e)(1 - G) + e
# so the margin is (1 - e) G - e R: it bears a leak below G / (G + R), which is small (exercises.md B5): sinusoids, unlike
# contents, are nowhere near orthogonal. p < i, so p + 1 is never hidden by the mask.
# With a BOS that has no position, a query whose v is (nearly) empty scores at most e anywhere, and a query bias takes it
# to `start`, BOS's own: at T/2 it is 1/2 - e above everything then, and 1/2 - e R below the right j else.
# Rotary positions cannot do this: nothing in the stream says where a token stands, so there is nothing to copy to `v`.
@dataclass(frozen=True)
class Pointer:
    """Attends one further than the position that `source` holds; to a BOS without position where it holds none.

    W_QK = T source^+T R(-a_f) diag(w_f / r_f^2) P^+, P the columns of `position`.
    """

    source: str = "v"

    def reads(self, _: Plan) -> tuple[str, ...]:
        """Positions, as copied and as they are."""
        return (self.source, "position")

    def gap(self, plan: Plan, leaks: Mapping[str, float]) -> float:
        """(1 - e) G - e R, and with a sink at most 1/2 - e R (R at least 1, since BOS has no position)."""
        offsets, leak = range(1, plan.n_ctx), leaks.get(self.source, 0.0)
        weights = plan.weights_for(offsets)
        gap, lost = (measure(plan.angles, offsets, weights) for measure in (kernel_gap, kernel_range))
        if not plan.bare_bos:
            return (1 - leak) * gap - leak * lost
        return min((1 - leak) * min(gap, 1.0) - leak * max(lost, 1.0), 0.5 - leak * max(lost, 1.0))

    def rows(self, space: Space, plan: Plan, sharpness: float) -> Rows:
        """Two rows a pair, one for the sink."""
        weights = tuple(sharpness * w for w in plan.weights_for(range(1, plan.n_ctx)))
        rows = kernel_rows(space, plan, weights, back=-1, query=self.source)
        return rows.and_rows(sink_rows(space, sharpness / 2)) if plan.bare_bos else rows


def pointer_model(
    *,
    d_vocab: int = 64,
    n_ctx: int = 128,
    leak: float = 1e-3,
    bos: bool = True,
    seed: int | None = 0,
    dtype: torch.dtype = torch.float64,
) -> Built:
    """Two layers of one head: L0H0 finds the copy and writes its position, L1H0 reads it and attends one further.

    Known, with k pairs of sinusoids and BOS:
    - L0H0 has at least 1 - leak on earlier copies of its token, on BOS where there are none; L1H0 has at least 1 - leak on
      the successor of a copy that is alone, on BOS where there is none;
    - Q-composition of (L1H0, L0H0) is 1 / sqrt(2k), K- and V-composition 0;
    - copying of L1H0 is 1, that of L0H0 is 0 / 0, and the direct path is uniform.
    Of several copies the one whose offset the penalty holds down most wins (exercises.md C9). L1H0 bears a share below
    G / (G + R) on others; between two copies that share more evenly it may look elsewhere.
    Without BOS nothing is lost on repeated random tokens: every query in the second copy has one earlier copy, and `v` of
    its own position alone is read, so what position 0 stores for want of a copy is asked for by nobody. Prefix matching
    reaches 1 there too (at least 1 - leak), unlike that of `induction_model`.
    notes: see `compile_model`.

    >>> from headway.model.forward import logits
    >>> logits(pointer_model().weights, torch.tensor([[0, 5, 9, 3, 5]])).argmax(-1)[0, -1].item()
    9
    """
    plan = Plan(d_vocab=d_vocab, n_ctx=n_ctx, leak=leak, bos=bos, bos_position=False, seed=seed, dtype=dtype)
    layers = [[Part(MatchNotSelf(), Copy("position", "v"))], [Part(Pointer("v"), Copy("content", "out"))]]
    return compile_model(layers, plan, name="pointer_model")
