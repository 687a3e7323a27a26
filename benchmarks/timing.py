"""Interleaved medians: the contestants take turns, so that a machine that speeds up or slows down does so for all.

The order is drawn anew for each turn: whoever follows the one that frees most memory pays for its page faults.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np


def interleaved(contestants: Mapping[str, Callable[[], object]], *, rounds: int, warmup: int = 2) -> dict[str, float]:
    """Median seconds of each contestant over `rounds` turns, after `warmup` turns that do not count."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    order, chance = list(contestants), np.random.default_rng(0)
    for turn in range(warmup + rounds):
        chance.shuffle(order)
        for name in order:
            work = contestants[name]
            start = time.perf_counter()
            work()
            if turn >= warmup:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def peak_megabytes() -> float:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024**2


def show(title: str, medians: Mapping[str, float], ours: str, bounds: Mapping[str, float]) -> bool:
    """Print medians and how many times faster `ours` is than each peer with a bound; whether all bounds hold."""
    print(title)
    held = True
    for name, seconds in medians.items():
        ratio = seconds / medians[ours]
        verdict = ""
        if name in bounds:
            good = ratio >= bounds[name]
            held &= good
            verdict = f"  bound {bounds[name]:.2f}x: {'holds' if good else 'FAILS'}"
        print(f"  {name:34} {seconds * 1e3:10.2f} ms   {ratio:6.2f}x ours{verdict}")
    return held
