"""Position kernels: which offset a sum of cosines prefers, how clearly, and the weights that make it clearest.

kappa(D) = sum_f w_f cos(alpha_f D) over pairs f with angle alpha_f a position, weights w_f >= 0 of sum 1: 1 at D = 0.
The gap is 1 - kappa at the best wrong D; a score T kappa leaves a stated leak when T is large enough for the gap
(sharpness.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from headway.errors import UsageError


def octaves(n_ctx: int) -> tuple[float, ...]:
    """Angles a position, pi, pi/2, pi/4, ...: the fewest octaves with which no wrong offset of n_ctx positions is near.

    With k of them every offset 0 < |D| < 2^k has gap >= 2/k at equal weights. Proof: write D = 2^a odd with a < k. Pair
    a turns by pi odd, so its term 1 - cos is 2; the other terms are not negative, and each pair weighs 1/k.

    >>> [round(math.pi / angle) for angle in octaves(64)]
    [1, 2, 4, 8, 16, 32]
    """
    if n_ctx < 2:
        raise UsageError("n_ctx", expected="at least 2, so that there is a previous token", got=n_ctx)
    return tuple(math.pi / 2**f for f in range(max(1, math.ceil(math.log2(n_ctx - 1)))))


def reachable(n_ctx: int, *, back: int = 1) -> range:
    """Distances |D| of wrong offsets from `back` that a causal query within n_ctx positions can reach.

    D = i - j - back runs over -back .. n_ctx - 1 - back without 0; kernels are even, so distances are enough. Raises
    UsageError when no position has another one `back` before it.
    """
    if not 0 <= back < n_ctx:
        raise UsageError("back", expected=f"0 to n_ctx-1 = {n_ctx - 1}", got=back)
    return range(1, max(back, n_ctx - 1 - back) + 1)


def gaps(
    frequencies: Sequence[float], offsets: Sequence[int], weights: Sequence[float] | None = None
) -> Float[np.ndarray, "offset"]:
    """How far each wrong offset stays below the right one: 1 - kappa(D), between 0 and 2.

    weights: of sum 1; equal without.

    >>> gaps([math.pi], [1, 2]).tolist()
    [2.0, 0.0]
    """
    w = np.full(len(frequencies), 1 / max(len(frequencies), 1)) if weights is None else np.asarray(weights, float)
    return (1 - _cosines(frequencies, offsets)) @ w


def kernel_gap(frequencies: Sequence[float], offsets: Sequence[int], weights: Sequence[float] | None = None) -> float:
    """How far the best wrong offset stays below the right one, the least of `gaps`; 0 (or rounding) means that a wrong
    position ties, so that no scale helps.
    """
    return float(gaps(frequencies, offsets, weights).min())


def kernel_range(frequencies: Sequence[float], offsets: Sequence[int], weights: Sequence[float]) -> float:
    """How far the worst offset stays below the right one, the largest of `gaps`. Between the gap and 2."""
    return float(gaps(frequencies, offsets, weights).max())


def best_weights(alphas: Sequence[float], n: int, reachable: Sequence[int]) -> tuple[tuple[float, ...], float]:
    """Weights w >= 0 of sum 1 with the largest gap  min over d in reachable of  sum_f w_f (1 - cos(alpha_f d)).

    alphas: radians a position; reachable: the wrong offsets, in distance from the right one, each from 1 to n - 1.
    Dimensionless, 0 to 2; exact (a linear programme in w and the gap; exercises.md B3). Raises UsageError without
    frequencies or offsets, or for an offset that n positions do not have.

    >>> weights, gap = best_weights([1.0, 0.1**0.5], 24, range(1, 24))
    >>> [round(w, 2) for w in weights], round(gap, 4)
    ([0.06, 0.94], 0.036)
    """
    if not len(alphas) or not len(reachable):
        raise UsageError(
            "best weights", expected="at least one frequency and one offset", got=(len(alphas), len(reachable))
        )
    if not all(1 <= d < n for d in reachable):
        raise UsageError(
            "offsets out of reach", expected=f"1 to n-1 = {n - 1}", got=[d for d in reachable if not 1 <= d < n]
        )
    k = len(alphas)
    below = 1 - _cosines(alphas, reachable)
    # Unknowns: w and g. Maximise g with below @ w >= g for every offset.
    solved = linprog(
        np.r_[np.zeros(k), -1.0],
        A_ub=np.c_[-below, np.ones(len(below))],
        b_ub=np.zeros(len(below)),
        A_eq=np.r_[np.ones(k), 0.0][None],
        b_eq=np.ones(1),
        bounds=[(0, None)] * k + [(None, None)],
    )
    return tuple(float(w) for w in solved.x[:k]), float(-solved.fun)


def dirichlet_bound(n: int, pairs: int) -> float:
    """The gap that no `pairs` frequencies exceed within n positions, whatever their weights: Theta(n^(-2/pairs)).

    1 - cos(2 pi (n-1)^(-1/pairs)), or 2 where that angle is over pi. Proof: by Dirichlet's theorem on simultaneous
    approximation some 1 <= d <= n-1 has every alpha_f d / 2 pi within (n-1)^(-1/pairs) of an integer, and there each
    term of the gap is at most the bound (exercises.md B2).

    >>> round(dirichlet_bound(16, 1), 4), round(1 - math.cos(2 * math.pi / 16), 4)
    (0.0865, 0.0761)
    """
    if n < 2 or pairs < 1:
        raise UsageError("dirichlet bound", expected="n >= 2 and pairs >= 1", got=(n, pairs))
    angle = 2 * math.pi * (n - 1) ** (-1 / pairs)
    return 1 - math.cos(angle) if angle <= math.pi else 2.0


def rotary_base(n_ctx: int, pairs: int) -> float:
    """The position_base for which `pairs` rotary pairs tell offsets within n_ctx positions apart best, of 40 tried.

    Rotary angles are base^(-f / pairs): the fastest is 1, so only the slowest is free. Bases are tried for slowest angles
    from 8 pi / n_ctx down to pi / (4 n_ctx), evenly in the logarithm, each at its own best weights.
    """
    slowest = np.geomspace(min(8 * math.pi / n_ctx, 0.9), math.pi / (4 * n_ctx), 40)
    bases = [float(angle ** (-pairs / max(pairs - 1, 1))) for angle in slowest]
    offsets = reachable(n_ctx)
    return max(bases, key=lambda base: best_weights(rotary_angles(base, pairs), n_ctx + 1, offsets)[1])


def rotary_angles(base: float, pairs: int) -> tuple[float, ...]:
    """Angles a position of `pairs` rotary pairs: base^(-f / pairs)."""
    return tuple(base ** (-f / pairs) for f in range(pairs))


def _cosines(frequencies: Sequence[float], offsets: Sequence[int]) -> np.ndarray:
    """cos(alpha_f D), [offset, pair]."""
    return np.cos(np.outer(np.asarray(offsets, float), np.asarray(frequencies, float)))
