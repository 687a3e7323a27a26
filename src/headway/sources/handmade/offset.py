"""The head that looks a fixed number of positions back (exercises 2b, 2c and their rotary twins)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.sources.handmade.kernels import kernel_gap, reachable
from headway.sources.handmade.parts import Rows, kernel_rows
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space


# Why it works, with sinusoids.  Position m of the stream holds  p_m = (r_f cos a_f m, r_f sin a_f m)_f  in `position`.
#   key      k_j = p_j                              W_K reads `position`
#   query    q_i = T R(-back a) diag(w_f / r_f^2) p_i     turning every pair back by `back` angles: `back` steps in the text
#   score    s_ij = T sum_f w_f cos(a_f (i - j - back))
# The cosines are all 1 exactly at j = i - back, and every other reachable j scores at least T gap less, so T >=
# log((n-1)(1-leak)/leak) / gap leaves at most `leak` to all of them together (kernel_gap, sharpness_for).
# The weights w are the best there are for these angles: a linear programme (best_weights). The amplitudes r do not
# matter, since w_f / r_f^2 undoes them.
# The sign matters: R(+a) on the query would point at j = i + 1, which the causal mask hides, and the head would look
# wherever the kernel is next highest: at itself, when all pairs turn slowly.
#
# Why it works, with rotary positions.  The model turns queries and keys itself, q_i -> R_i q_i and k_j -> R_j k_j, so the
# stream need not know positions: with a key e = (1, 0, 1, 0, ...) and a query T diag(w) R_-back e, the same for every
# token (both read `one`, which every token holds),
#   score    s_ij = T e^T diag(w) R_(i-back)^T R_j e = T sum_f w_f cos(theta_f (i - j - back)),
# the same kernel with the same bound; theta is the model's. No stream, no choice of angles: only weights (exercises.md B4).
#
# A query at position i < back has nothing `back` before it and looks where the kernel is highest: position 0 looks at
# itself. Contents take no part: dual rows of `position` and `one` vanish on every other subspace.
@dataclass(frozen=True)
class Offset:
    """Attends to the position `back` before the query's: 0 itself, 1 the previous token.

    W_QK = T P diag(w_f / r_f^2) R(+back a_f) P^+, P the columns of `position`.
    """

    back: int = 1

    def reads(self, plan: Plan) -> tuple[str, ...]:
        """`position`, or under rotary positions the constant."""
        return (plan.place,)

    def gap(self, plan: Plan, _: Mapping[str, float]) -> float:
        """Gap of the kernel at its best weights; at most 1 where a BOS without position scores 0."""
        offsets = reachable(plan.n_ctx, back=self.back)
        gap = kernel_gap(plan.angles, offsets, plan.weights_for(offsets))
        return min(gap, 1.0) if plan.bare_bos else gap

    def rows(self, space: Space, plan: Plan, sharpness: float) -> Rows:
        """2 rows a pair."""
        weights = plan.weights_for(reachable(plan.n_ctx, back=self.back))
        return kernel_rows(space, plan, tuple(sharpness * w for w in weights), back=self.back)
