"""Heads that look for their own content: matches in the text (exercise 2a), or in what a head wrote (exercise 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.sources.handmade.parts import Rows, sink_rows
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space


# Why it works.  Contents c_t are orthonormal.
#   query  q_i = T c_{t_i}      own content            key  k_j = the content in `key` at j
# key = content (2a):  s_ij = T where the tokens are equal, 0 elsewhere: gap 1. The query itself always matches.
# key = previous (3):  an earlier head has written, at j, the content before it, but for a leak:
#   v_j = (1 - e_j) c_{t_(j-1)} + e_j (an average of other contents),   e_j <= e
#   match  (t_(j-1) = t_i):  s_ij >= T (1 - e)         else  s_ij <= T e:  leaked contents are not negative
# so the head attends to the token AFTER each earlier copy of its own token, all copies alike. Gap 1 - 2e, so this bears
# any leak below 1/2 (exercises.md B5): contents, unlike positions, are orthogonal.
# Without BOS a query without a match then attends to everything about equally, and position 0, which attends to itself in
# the layer before, looks like the successor of its own token: a query equal to token 0 gives it as much as each true match
# (exercises.md C4).
# With BOS (token 0, no content) both faults go: v_0 = 0, and a constant query b_Q times a key that reads `start`, which
# BOS alone holds, gives position 0 the score T/2. A match wins against it by T (1/2 - e); without a match it wins by as
# much against everything else, and since BOS has no content the head then copies nothing.
@dataclass(frozen=True)
class Match:
    """Attends to the positions whose `key` holds the query's own content, all alike; to BOS where there is none.

    W_QK = T content^+T key^+.
    """

    key: str = "content"

    def reads(self, _: Plan) -> tuple[str, ...]:
        """Its own content, and `key`."""
        return ("content", self.key)

    def gap(self, plan: Plan, leaks: Mapping[str, float]) -> float:
        """1 for contents themselves; 1 - 2 e behind a leak e, 1/2 - e where BOS stands between."""
        leak = leaks.get(self.key, 0.0)
        return 0.5 - leak if self._sinks(plan) else 1 - 2 * leak

    def rows(self, space: Space, plan: Plan, sharpness: float) -> Rows:
        """One row a content dim, and one for the sink."""
        rows = Rows(Q=sharpness * space.read("content"), K=space.read(self.key))
        return rows.and_rows(sink_rows(space, sharpness / 2)) if self._sinks(plan) else rows

    def _sinks(self, plan: Plan) -> bool:
        # Among contents every query matches itself, so there the sink would never be used.
        return plan.bos and self.key != "content"
