"""An exact proof over every sequence: the worst margin of a head, from pairs of states (exercises.md 3.3).

A score depends on two states only, the query's and the key's, and any state may stand at any position that it fits. So
over all sequences the worst case is found pair by pair: for a query, the least score of a target minus the largest
score of a rival at another position. If that margin is positive, every target beats every rival in every sequence; if
not, the two states that make it are a counterexample. The key at the query's own position is the query's own state.
Cost: n^2 V^2 scores, in blocks of one query position (V^2 n numbers at a time).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TIE = 1e-6  # margins within this share of the score range are ties
NOTHING = 1e-10  # a range this small beside the scores themselves is rounding

# From a query position i and the labels there and of all keys 0..i, which keys are targets and which are rivals:
# two Bool arrays [query, key_pos, key_state]; what is neither takes no part.
Rule = Callable[["States", int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class States:
    """Every state that may stand at a position, as the head's queries and keys, with labels that a rule can read.

    Q, K: [n, state, d_head]. labels: [state, label], the same states at every position, the first label the token.
    at: [n, state], which states are possible where.
    """

    Q: Float[Tensor, "n state d_head"]
    K: Float[Tensor, "n state d_head"]
    labels: Int[Tensor, "state label"]
    at: Bool[Tensor, "n state"]

    @classmethod
    def of(cls, Q: Float[Tensor, "n state d_head"], K: Float[Tensor, "n state d_head"]) -> States:
        """States that are tokens, each possible everywhere."""
        n, states, _ = Q.shape
        return cls(Q, K, torch.arange(states)[:, None], torch.ones(n, states, dtype=torch.bool))


@dataclass(frozen=True)
class Worst:
    """A query and the two keys that come nearest to breaking the rule, each as (position, state)."""

    margin: float
    query: tuple[int, int]
    target: tuple[int, int]
    rival: tuple[int, int]


@dataclass(frozen=True)
class Proof:
    """The outcome over all sequences. margin: least of target minus rival; range: largest spread of a row of scores.

    positive, tie, zero: exclusive with failing. `first` is the failing case with the earliest query (shortest
    sequence), None when there is none; `by_query[i]` the worst margin of queries at position i (inf: no target there).
    """

    worst: Worst | None
    first: Worst | None
    range: float
    zero: bool
    by_query: tuple[float, ...]

    @property
    def margin(self) -> float:
        """Worst margin in units of the score."""
        return self.worst.margin if self.worst else float("inf")

    @property
    def passed(self) -> bool:
        """Every target beats every rival, in every sequence, by more than a tie."""
        return not self.zero and self.margin > TIE * self.range

    @property
    def tied(self) -> bool:
        """Nothing wrong ever wins, but something wrong comes level."""
        return not self.passed and not self.zero and self.margin >= -TIE * self.range

    def nothing_of(self, whole: Proof) -> bool:
        """Whether these scores, of a part of a head, are only rounding beside those of the whole."""
        return self.zero or self.range <= NOTHING * whole.range

    @property
    def works_to(self) -> int:
        """The largest number of positions up to which every sequence is right."""
        return self.first.query[0] if self.first else len(self.by_query)


def prove(states: States, rule: Rule) -> Proof:
    """Enumerate all pairs of states and decide. Exact up to rounding of the scores."""
    n = states.Q.shape[0]
    found: list[Worst] = []
    by_query: list[float] = []
    spread, largest = 0.0, 0.0
    for i in range(n):
        here = states.at[i].nonzero()[:, 0]  # only queries that can stand here
        scores = torch.einsum("qh,jsh->qjs", states.Q[i, here], states.K[: i + 1])
        impossible = ~_possible(states, i, here)
        most, least = scores.masked_fill(impossible, -torch.inf), scores.masked_fill_(impossible, torch.inf)
        top, low = most.amax((1, 2)), least.amin((1, 2))
        spread = max(spread, float((top - low).amax()) if len(here) else 0.0)
        largest = max(largest, float(torch.maximum(top.abs(), low.abs()).amax()) if len(here) else 0.0)
        worst = _worst_of(most, least, i, here, [mask[here] for mask in rule(states, i)])
        by_query.append(worst.margin if worst else float("inf"))
        if worst:
            found.append(worst)
    return concluded(found, by_query, spread, largest)


def concluded(found: Sequence[Worst], by_query: Sequence[float], spread: float, largest: float) -> Proof:
    """The proof from the worst case of each query position, in order; spread, largest: of scores in a row, and of all."""
    zero = spread <= NOTHING * largest or spread == 0
    first = next((w for w in found if zero or w.margin <= TIE * spread), None)
    return Proof(min(found, key=lambda w: w.margin, default=None), first, spread, zero, tuple(by_query))


def _possible(states: States, i: int, here: Int[Tensor, "query"]) -> Bool[Tensor, "query key_pos key"]:
    """Which key states may stand where for each query state at i: at i itself only the query's own."""
    possible = states.at[: i + 1].expand(len(here), -1, -1).clone()
    possible[:, i, :] = torch.eye(states.at.shape[1], dtype=torch.bool)[here]
    return possible


def _worst_of(most: Tensor, least: Tensor, i: int, here: Tensor, masks: Sequence[Tensor]) -> Worst | None:
    """most, least: scores with -inf or +inf where impossible; masks: targets and rivals of the same queries."""
    targets, rivals = masks
    low, low_at = least.masked_fill_(~targets, torch.inf).min(2)
    high, high_at = most.masked_fill_(~rivals, -torch.inf).max(2)
    # Distinct positions: one position holds one state, so a target there leaves no room for a rival.
    gaps = low[:, :, None] - high[:, None, :]
    gaps.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    flat = int(gaps.argmin())
    margin = float(gaps.flatten()[flat])
    if margin == float("inf"):
        return None
    width = i + 1
    q, j, k = flat // width**2, flat // width % width, flat % width
    return Worst(margin, (i, int(here[q])), (j, int(low_at[q, j])), (k, int(high_at[q, k])))
