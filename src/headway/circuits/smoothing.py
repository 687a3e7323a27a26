"""Bigram tables from counts: the best smoothed one, and the best that a stream of d dimensions could hold.

Both are what a direct path is measured against. [first, next] everywhere, natural logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize
from torch import Tensor

from headway.errors import BadInput, NotFinite, ShapeProblem, TextProblem, TokenProblem, TooLarge, UsageError

MAX_ELEMENTS = 64_000_000  # the size guard of dense tables
_BOUNDS = ((0.0, 0.999), (0.0, 1.999), (0.0, 2.999), (math.log(1e-3), math.log(1e5)))  # discounts, log concentration
BASES = ("unigram", "continuation")
_Parts = tuple[
    Tensor, Tensor, Tensor, Tensor
]  # count of the pair, count of first, kinds after first [.., 3], base of next
_STARTS = ((0.75, 1.0, 1.25, 0.0), (0.0, 0.0, 0.0, math.log(100.0)))


@dataclass(frozen=True, eq=False)
class BigramTable:
    """Smoothed log-probabilities [first, next], and how they were smoothed.

    p(next | first) = (c - D(c) + (sum_i D_i k_i + concentration) base(next)) / (n + concentration), with c the count of
    the pair, n that of first, D_1, D_2, D_3 the discounts of pairs counted once, twice, more often (D(0) = 0), and k_1,
    k_2, k_3 how many different tokens were seen that often after first. base: `unigram`, how often next occurs, or
    `continuation`, after how many different tokens it does (Kneser-Ney); one half is added to each count.
    Discounts 0 are Dirichlet smoothing, concentration near 0 interpolated absolute discounting, with continuation and
    three discounts modified Kneser-Ney (Chen and Goodman 1998).
    """

    log_probs: Float[Tensor, "first next"]
    discounts: tuple[float, float, float]
    concentration: float
    base: str
    validation_loss: float


def smoothed_bigrams(counts: Float[Tensor, "first next"], pairs: Int[np.ndarray, "2 n"]) -> BigramTable:
    """The smoothed table with the least validation loss: discounts, concentration and base are fitted on `pairs`.

    counts: how often each pair occurs in training; pairs: (first, next) of the validation text, two rows of ids.
    Every probability is positive. Deterministic, float64. Raises TooLarge, ShapeProblem, BadInput or NotFinite for
    counts that are none, TextProblem without pairs, TokenProblem for ids outside the table.

    >>> counts = torch.tensor([[0.0, 8.0], [8.0, 0.0]])
    >>> table = smoothed_bigrams(counts, np.array([[0, 1, 0, 0], [1, 0, 1, 0]]))
    >>> bool(table.log_probs.exp().sum(1).allclose(torch.ones(2).double()))
    True
    """
    counts = check_counts(counts)
    (first, follows), weight = _unique_pairs(pairs, len(counts))
    n, kinds = counts.sum(1), _kinds(counts)
    tried: list[tuple[float, tuple[float, float, float], float, str]] = []
    for base in BASES:
        share = _base(counts, base)
        here = counts[first, follows], n[first], kinds[first], share[follows]

        def loss(x: Float[np.ndarray, "4"], here: _Parts = here) -> tuple[float, Float[np.ndarray, "4"]]:
            at = torch.from_numpy(x).requires_grad_()
            value = -(_smooth(here, at[:3], at[3].exp()).log() * weight).sum()
            return float(value.detach()), torch.autograd.grad(value, at)[0].numpy()

        for start in _STARTS:  # a second start, should the first valley not be the deeper one
            found = minimize(loss, start, method="L-BFGS-B", jac=True, bounds=_BOUNDS, options={"ftol": 1e-13})
            one, two, more, size = (float(x) for x in found.x)
            tried.append((float(found.fun), (one, two, more), math.exp(size), base))
    least, discounts, concentration, base = min(tried)
    parts = counts, n[:, None], kinds[:, None], _base(counts, base)
    at = torch.tensor((*discounts, concentration), dtype=torch.float64)
    return BigramTable(_smooth(parts, at[:3], at[3]).log(), discounts, concentration, base, least)


def low_rank_bigrams(
    table: BigramTable, counts: Float[Tensor, "first next"], rank: int, *, iterations: int = 150
) -> Float[Tensor, "first next"]:
    """Log-probabilities of the best table softmax_next(U E) with U E of the given rank: what d dimensions can hold.

    Minimises sum_a p(a) KL(table(.|a) || softmax(U e_a)), nats, p(a) the share of `a` among first tokens (one half added
    to each count, so that every row is defined). Starts from the SVD that is best to second order, goes on by L-BFGS in
    coordinates in which the problem is nearly round. Deterministic. Not convex: what it finds is an upper bound of the
    least KL. Raises UsageError for a rank below 1.

    >>> counts = torch.tensor([[4.0, 1.0, 1.0], [1.0, 4.0, 1.0], [1.0, 1.0, 4.0]])
    >>> table = BigramTable((counts / 6).log().double(), (0.0, 0.0, 0.0), 1.0, "unigram", 0.0)
    >>> bool(low_rank_bigrams(table, counts, 3).allclose(table.log_probs, atol=1e-3))
    True
    """
    counts = check_counts(counts)
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise UsageError("no table of this rank", expected="a whole number >= 1", got=repr(rank))
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise UsageError("iterations", expected="a whole number >= 1", got=repr(iterations))
    if not isinstance(table, BigramTable):
        raise UsageError("no smoothed table", expected="what smoothed_bigrams gives", got=type(table).__name__)
    if table.log_probs.shape != counts.shape:
        raise ShapeProblem("table and counts", expected=tuple(counts.shape), got=tuple(table.log_probs.shape))
    target = table.log_probs.exp()
    first = first_shares(counts)
    follows = first @ target
    # With logits z_a . y_b / sqrt(p(a) p(b)) the second derivative of the KL is near the identity for every a and b.
    row, column = first.rsqrt()[:, None], follows.rsqrt()[:, None]
    centred = table.log_probs - (table.log_probs @ follows)[:, None]
    left, size, right = torch.linalg.svd(centred / row / column.T, full_matrices=False)
    half = size[:rank].sqrt()
    # float32: the loss is then known to about 1e-6 nats, and each step costs half.
    z, y = ((t[:, :rank] * half).float().contiguous().requires_grad_() for t in (left, right.mT))
    narrow = row.float(), column.float()
    target, first = target.float(), first.float()
    optimiser = torch.optim.LBFGS(
        [z, y], max_iter=iterations, history_size=20, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        log_q = ((z * narrow[0]) @ (y * narrow[1]).mT).log_softmax(1)
        loss = -((target * log_q).sum(1) * first).sum()
        loss.backward()
        return loss

    optimiser.step(closure)  # type: ignore[arg-type]
    with torch.no_grad():
        return ((z * row) @ (y * column).mT).log_softmax(1)


def check_counts(counts: Tensor) -> Float[Tensor, "first next"]:
    """Counts as float64 on the CPU. Raises ShapeProblem, TooLarge, NotFinite or BadInput where they are none.

    >>> check_counts(torch.ones(2, 2, dtype=torch.int64)).dtype
    torch.float64
    """
    if not isinstance(counts, Tensor):
        raise ShapeProblem("bigram counts", expected="a tensor (first, next)", got=type(counts).__name__)
    if counts.is_complex():
        raise ShapeProblem("bigram counts", expected="real numbers (first, next)", got=counts.dtype)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise ShapeProblem("bigram counts", expected="(first=d_vocab, next=d_vocab)", got=tuple(counts.shape))
    check_size(len(counts), "bigram counts")
    counts = counts.detach().to("cpu", torch.float64)
    if not bool(counts.isfinite().all()):
        raise NotFinite("NaN or infinity", where="bigram counts")
    if bool(((counts < 0) | (counts != counts.round())).any()):
        raise BadInput("not counts", where="bigram counts", expected="whole numbers >= 0", got=float(counts.min()))
    if not bool(counts.any()):
        raise BadInput("no pair was counted", where="bigram counts", next_step="Count a training text first")
    return counts


def check_size(d_vocab: int, where: str) -> None:
    """Raise TooLarge when a table [d_vocab, d_vocab] is above the size guard.

    >>> check_size(8000, "a table")
    """
    if d_vocab**2 > MAX_ELEMENTS:
        raise TooLarge(
            "the table [d_vocab, d_vocab] is above the size guard",
            where=where,
            expected=f"at most {MAX_ELEMENTS:,} elements",
            got=f"{d_vocab**2:,} (d_vocab={d_vocab})",
        )


def first_shares(counts: Float[Tensor, "first next"]) -> Float[Tensor, " first"]:
    """How often each token is a first one, one half added to each count: sums to 1.

    >>> first_shares(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).tolist()
    [0.5, 0.5]
    """
    n = counts.double().sum(1) + 0.5
    return n / n.sum()


def _base(counts: Float[Tensor, "first next"], name: str) -> Float[Tensor, " next"]:
    tally = (counts if name == "unigram" else (counts > 0).double()).sum(0) + 0.5
    return tally / tally.sum()


def _kinds(counts: Float[Tensor, "first next"]) -> Float[Tensor, "first 3"]:
    """How many different tokens follow each first token once, twice, and more often."""
    return torch.stack([(counts == 1).sum(1), (counts == 2).sum(1), (counts > 2).sum(1)], dim=1).double()


def _smooth(parts: _Parts, discounts: Float[Tensor, "3"], concentration: Float[Tensor, ""]) -> Tensor:
    """The formula of BigramTable; parts are c, n, k and base(next), broadcast."""
    c, n, kinds, share = parts
    taken = (c == 1) * discounts[0] + (c == 2) * discounts[1] + (c > 2) * discounts[2]
    return (c - taken + (kinds @ discounts + concentration) * share) / (n + concentration)


def _unique_pairs(pairs: Int[np.ndarray, "2 n"], d_vocab: int) -> tuple[Int[Tensor, "2 m"], Float[Tensor, " m"]]:
    """Each different pair once, with its share."""
    if not isinstance(pairs, np.ndarray) or pairs.ndim != 2 or len(pairs) != 2 or pairs.dtype.kind not in "iu":
        got = f"{pairs.shape} {pairs.dtype}" if isinstance(pairs, np.ndarray) else type(pairs).__name__
        raise ShapeProblem("pairs of tokens", expected="whole-number ids (2, n): first above next", got=got)
    if pairs.shape[1] == 0:
        raise TextProblem("no pairs of tokens to fit on", expected="two tokens or more", got="none")
    if pairs.min() < 0 or pairs.max() >= d_vocab:
        raise TokenProblem(
            "ids of the pairs", expected=f"0 .. d_vocab-1={d_vocab - 1}", got=f"{pairs.min()} .. {pairs.max()}"
        )
    pairs = pairs.astype(np.int64)  # narrow ids would wrap
    codes, times = np.unique(pairs[0] * d_vocab + pairs[1], return_counts=True)
    return torch.from_numpy(np.stack((codes // d_vocab, codes % d_vocab))), torch.from_numpy(times / times.sum())
