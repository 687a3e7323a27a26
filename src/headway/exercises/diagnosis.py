"""Why an answer fails, from its weights: what it reads, where its kernel peaks, which single change would mend it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.exercises.changes import Change, only
from headway.exercises.givens import Given
from headway.exercises.kernel import Kernel
from headway.exercises.proof import Proof, Rule
from headway.exercises.scoring import Head, proof_of

NEGLIGIBLE = 0.01  # of the score variance: a part this small is not what the head does
Facts = dict[str, Any]


@dataclass(frozen=True)
class Shares:
    """Shares of the variance of scores over keys, query by query (a row's constant counts nothing): they sum to 1.

    content, position: content x content and position x position. query_content: query's content with key's position;
    key_content: query's position with key's content. rest: terms that read anything else.
    """

    content: float
    position: float
    query_content: float
    key_content: float
    rest: float

    @property
    def mixed(self) -> float:
        """Both kinds of cross term."""
        return self.query_content + self.key_content


def shares(given: Given, head: Head) -> Shares:
    """What of a head's scores comes from where. Parts are compared by variance, so covariances are left aside."""
    names = ("content", "position")
    parts = {
        (q, k): _variance(given, Head(only(given, head, q).W_Q, only(given, head, k).W_K)) for q in names for k in names
    }
    both = only(given, head, *names)
    rest = _variance(given, Head(head.W_Q, head.W_K - both.W_K)) + _variance(given, Head(head.W_Q - both.W_Q, both.W_K))
    total = sum(parts.values()) + rest
    if total == 0:
        return Shares(0.0, 0.0, 0.0, 0.0, 0.0)
    return Shares(
        parts["content", "content"] / total,
        parts["position", "position"] / total,
        parts["content", "position"] / total,
        parts["position", "content"] / total,
        rest / total,
    )


def _variance(given: Given, head: Head) -> float:
    """Variance of x_i^T W_QK x_j over keys, averaged over queries: trace of (q covariance) with (k covariance)."""
    x = given.streams().flatten(0, 1)
    q, k = x @ head.W_Q.T, x @ head.W_K.T
    k = k - k.mean(0)
    return float(((q.T @ q / len(q)) * (k.T @ k / len(k))).sum())


def common_facts(proof: Proof) -> Facts:
    """Where the answer first errs: positions and tokens of query, target and rival, and the relative margin."""
    facts: Facts = {"margin": proof.margin / proof.range if proof.range > 0 else 0.0}
    if proof.first is not None:
        (i, q), (j, t), (k, r) = proof.first.query, proof.first.target, proof.first.rival
        facts |= {"query": i, "target": j, "rival": k, "tokens": (q, t, r), "works_to": proof.works_to}
    return facts


def repair(given: Given, head: Head, rule: Rule, changes: Mapping[str, Change]) -> str:
    """The first single change after which the head passes the proof, by name; "" when none does."""
    mends = (name for name, change in changes.items() if proof_of(given, change(given, head), rule).passed)
    return next(mends, "").split(".")[0]


def leak_reason(found: Shares, kind: str) -> str:
    """The reason for a head that would be right but for what else it reads: both sides mixed, or one kind leaking."""
    if min(found.query_content, found.key_content) > NEGLIGIBLE * max(found.content, found.position):
        return "CROSS_TERMS"
    return f"{kind}_LEAK"


def offset_reason(kernel: Kernel, proof: Proof, back: int, n: int, mended: str) -> tuple[str, Facts]:
    """The reason for a purely positional head: sign, offset, alias, or waves that offset does not decide."""
    best = kernel.best(n)
    facts: Facts = {"offset": best, "wanted_offset": back, "repair": mended}
    if mended == "NEGATE":
        return "SIGN", facts
    if kernel.share < 0.5:
        return "WRONG_READ", facts | {"reads": "where a pair stands, not how far apart it is"}
    if kernel.stands_out(back, range(n)):
        return "WRONG_READ", facts | {"reads": "where a pair stands besides how far apart it is"}
    if back and kernel.best(n, future=True) == -back:
        return "SIGN", facts | {"ahead": back}
    if kernel.peaks(back) and proof.worst is not None and proof.first is not None:
        i, j = proof.first.query[0], proof.first.rival[0]
        return "ALIAS", facts | {"offset": i - j, "works_to": proof.works_to}
    return ("TIE" if best == back and proof.tied else "OFFSET"), facts


def colliding_tokens(contents: Tensor, W: Tensor) -> tuple[int, int]:
    """The query token and the other token that beats or most nearly reaches it under content scores c_t^T W c_u."""
    scores = contents @ W @ contents.T
    gaps = scores.diagonal()[:, None] - scores
    gaps.fill_diagonal_(torch.inf)
    flat = int(gaps.argmin())
    return flat // len(gaps), flat % len(gaps)
