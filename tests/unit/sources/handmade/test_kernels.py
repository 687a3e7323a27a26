"""Kernels against brute force, a search over a fine grid, and the numbers of exercises.md B1-B5; impossible questions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from headway.errors import UsageError
from headway.sources.handmade.kernels import (
    best_weights,
    dirichlet_bound,
    kernel_gap,
    kernel_range,
    octaves,
    reachable,
    rotary_angles,
    rotary_base,
)
from headway.sources.handmade.sharpness import sharpness_for


def gap(weights: Sequence[float], alphas: Sequence[float], offsets: range) -> float:
    return min(sum(w * (1 - math.cos(a * d)) for w, a in zip(weights, alphas, strict=True)) for d in offsets)


def worst_leak(frequencies: tuple[float, ...], n: int, T: float) -> float:
    """Largest share of a previous-token head on wrong positions, over queries 1 .. n-1; T times the sum of cosines."""
    distances = np.subtract.outer(np.arange(n), np.arange(n)) - 1
    scores = T * sum(np.cos(a * distances) for a in frequencies)
    shares = np.tril(np.exp(scores - T * len(frequencies)))
    shares /= shares.sum(1, keepdims=True)
    return float(1 - shares[np.arange(1, n), np.arange(n - 1)].min())


def truth(frequencies: tuple[float, ...], n: int, leak: float = 0.01) -> float:
    """The least T with that leak, by bisection."""
    low, high = 0.0, 2000.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if worst_leak(frequencies, n, middle) <= leak else (middle, high)
    return high


@pytest.mark.parametrize(
    ("slow", "n", "published"),
    [(0.01, 8, 110), (0.1, 8, 21), (0.316, 8, 10), (0.75, 8, 7.3), (0.01, 32, 166), (0.1, 32, 21), (0.316, 32, 94)],
)
def test_the_bound_against_sharpness_found_by_bisection(slow: float, n: int, published: float):
    """B1: two pairs of amplitude 1 (so T times the mean of two is T / 2 times the sum), 1 % leak."""
    found = truth((1.0, slow), n)
    assert math.isclose(found, published, rel_tol=0.05)
    found_gap = kernel_gap((1.0, slow), reachable(n))
    bound = sharpness_for(0.01, gap=found_gap, rivals=n - 1) / 2
    assert math.log(99) / found_gap / 2 - 1e-6 <= found <= bound


def test_only_reachable_offsets_count():
    """B1: at n = 64 the alias 63 of (1, .1) cannot be reached: 23 is enough where all offsets would ask for 613."""
    everything = kernel_gap((1.0, 0.1), range(1, 64))
    assert truth((1.0, 0.1), 64) < 24 < sharpness_for(0.01, gap=everything, rivals=63) / 2
    assert sharpness_for(0.01, gap=everything, rivals=63) / 2 == pytest.approx(613, rel=0.03)
    assert everything < 0.01 < kernel_gap((1.0, 0.1), reachable(64))


def test_unscaled_published_weights_are_no_stripe():
    """B1: at T = 1/sqrt 4 and amplitudes 1 most of the attention is elsewhere."""
    leaks = {n: [worst_leak((1.0, slow), n, 0.5) for slow in (0.01, 0.1, 0.316, 0.75)] for n in (8, 32)}
    assert min(leaks[8]) == pytest.approx(0.74, abs=0.005) and max(leaks[8]) == pytest.approx(0.82, abs=0.005)
    assert min(leaks[32]) == pytest.approx(0.93, abs=0.005) and max(leaks[32]) == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize("back", [0, 1, 3, 15])
def test_reachable_offsets_by_brute_force(back: int):
    n = 16
    wanted = {abs(i - j - back) for i in range(back, n) for j in range(i + 1)} - {0}
    assert set(reachable(n, back=back)) == wanted


def test_the_gap_and_the_range_by_brute_force():
    frequencies, weights = (0.7, 2.0, 0.05), (0.5, 0.2, 0.3)
    offsets = range(1, 19)
    below = [sum(w * (1 - math.cos(a * d)) for w, a in zip(weights, frequencies, strict=True)) for d in offsets]
    assert math.isclose(kernel_gap(frequencies, offsets, weights), min(below))
    assert math.isclose(kernel_range(frequencies, offsets, weights), max(below))
    assert math.isclose(kernel_gap(frequencies, offsets), gap([1 / 3] * 3, frequencies, offsets))


@pytest.mark.parametrize("n", [2, 3, 5, 17, 64, 65, 66, 300])
def test_octaves_keep_their_promise(n: int):
    k = len(octaves(n))
    offsets = range(1, max(n - 1, 2))
    assert 2**k >= n - 1 and kernel_gap(octaves(n), offsets) >= 2 / k - 1e-12
    assert best_weights(octaves(n), n + 1, offsets)[1] >= 2 / k - 1e-9


@pytest.mark.parametrize(
    ("n", "pairs", "gaps", "published", "bound"),
    [
        (16, 1, [kernel_gap([2 * math.pi / 16], range(1, 16))], 0.0761, 0.0865),
        (64, 2, [kernel_gap([2 * math.pi / 8, 2 * math.pi / 9], range(1, 64))], 0.117, 0.297),
        (256, 3, [], None, 0.452),
        (1024, 2, [], None, 0.0192),
    ],
)
def test_no_frequencies_exceed_the_bound(n: int, pairs: int, gaps: list[float], published: float | None, bound: float):
    """B2: the bound's numbers, what simple frequencies reach, and many random ones at their best weights."""
    assert dirichlet_bound(n, pairs) == pytest.approx(bound, rel=2e-3)
    random = np.random.default_rng(n)
    offsets = range(1, n)
    tried = [best_weights(random.uniform(0, math.pi, pairs).tolist(), n, offsets)[1] for _ in range(5)]
    assert all(found <= dirichlet_bound(n, pairs) + 1e-9 for found in gaps + tried)
    assert published is None or gaps == pytest.approx([published], abs=1e-3)


def test_few_positions_have_no_bound():
    assert dirichlet_bound(3, 4) == 2.0
    with pytest.raises(UsageError, match="pairs >= 1"):
        dirichlet_bound(8, 0)


@pytest.mark.parametrize(
    "n,slow,amplitudes,published,par",
    [(24, 0.1**0.5, (1.0, 0.8), 0.0215, 0.0360), (32, 0.316, (1.0, 0.3), 0.0136, 0.0370)],
)
def test_the_published_weights_and_the_par(
    n: int, slow: float, amplitudes: tuple[float, float], published: float, par: float
):
    """B3."""
    alphas, offsets = [1.0, slow], range(1, n)
    energy = sum(a**2 for a in amplitudes)
    equal = tuple(a**2 / energy for a in amplitudes)
    assert gap(equal, alphas, offsets) == pytest.approx(published, abs=1e-4)
    weights, best = best_weights(alphas, n, offsets)
    assert best == pytest.approx(par, abs=1e-4)
    assert best == pytest.approx(gap(weights, alphas, offsets), abs=1e-9)
    assert sum(weights) == pytest.approx(1.0) and min(weights) >= -1e-12


def test_no_weights_on_a_grid_are_better():
    alphas, offsets = [1.0, 0.4], range(1, 20)
    _, best = best_weights(alphas, 20, offsets)
    grid = max(gap((w / 500, 1 - w / 500), alphas, offsets) for w in range(501))
    assert grid <= best + 1e-12
    assert grid == pytest.approx(best, abs=2e-3)


def test_rotary_heads_of_language_models():
    """B4: base 10 000 and 64 dims a head, 2048 positions, 1 % leak: equal weights against the best."""
    angles, offsets = rotary_angles(1e4, 32), reachable(2048, back=1)
    weights, best = best_weights(angles, 2048, offsets)
    equal = kernel_gap(angles, offsets)
    assert equal == pytest.approx(0.034, abs=5e-4) and best == pytest.approx(0.296, abs=5e-4)
    assert sum(w > 1e-6 for w in weights) == 20
    sharp = [sharpness_for(0.01, gap=g, rivals=2047) for g in (equal, best)]
    assert sharp == pytest.approx([361, 41.3], rel=0.01)
    assert kernel_gap(angles[:2], offsets) == pytest.approx(0.0003, abs=5e-5)
    small = rotary_angles(1e4, 8)
    assert kernel_gap(small, range(1, 32)) == pytest.approx(0.064, abs=5e-4)
    assert best_weights(small, 32, range(1, 32))[1] == pytest.approx(0.292, abs=5e-4)


def test_content_in_turned_dims_needs_slow_pairs():
    """B4: pairs with theta (n-1) below .3 rad keep a match's score within 5 %: few, and none in a long context."""
    angles = rotary_angles(1e4, 32)
    slow = {n: sum(theta * (n - 1) < 0.3 for theta in angles) for n in (256, 2048, 32_768)}
    assert slow == {256: 8, 2048: 1, 32_768: 0}
    assert sum(theta * 2047 < 0.3 for theta in rotary_angles(5e5, 64)) == 20
    assert math.cos(angles[-1] * 32_767) == pytest.approx(-0.84, abs=0.6) and math.cos(0.3) > 0.95


@pytest.mark.parametrize("n", [12, 100])
def test_the_rotary_base_beats_the_usual_one(n: int):
    pairs = math.ceil(math.log2(n))
    base = rotary_base(n, pairs)
    best = best_weights(rotary_angles(base, pairs), n, range(1, n))[1]
    assert base > 1 and best > best_weights(rotary_angles(1e4, pairs), n, range(1, n))[1] and best > 0.3


def test_the_pointers_budget():
    """B5: with the exercise's example frequencies a leak below G / (G + R): .13 at 12 positions, .011 from 24 on."""
    alphas, weights = (1.0, 0.316), (1 / 1.64, 0.64 / 1.64)
    budgets = {}
    for n in (12, 24, 48):
        low, high = (f(alphas, range(1, n), weights) for f in (kernel_gap, kernel_range))
        budgets[n] = low / (low + high)
    assert budgets[12] == pytest.approx(0.13, abs=0.005)
    assert budgets[24] == pytest.approx(0.011, abs=5e-4) and budgets[48] == pytest.approx(0.011, abs=5e-4)


def test_questions_without_an_answer():
    with pytest.raises(UsageError, match="at least one"):
        best_weights([], 8, range(1, 8))
    with pytest.raises(UsageError, match="out of reach"):
        best_weights([1.0], 8, [8])
    with pytest.raises(UsageError, match="previous token"):
        octaves(1)
    with pytest.raises(UsageError, match="0 to n_ctx-1 = 7"):
        reachable(8, back=8)
