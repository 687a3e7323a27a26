"""(e) The workbook's deciding: a check of each exercise, and the proof at n = 64, vocabulary 64, on one core.

.venv/bin/python benchmarks/exercises.py
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from headway.exercises.catalogue import exercises
from headway.exercises.checking import check
from headway.exercises.givens import given
from headway.exercises.proof import States, prove
from headway.exercises.references import reference
from headway.exercises.rules import earlier_copy, offset, same_token

IDS = tuple(exercise.id for exercise in exercises())
CHECK, PROOF = 1.0, 5.0  # seconds of computing allowed


def seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Median processor time; the first call, which loads data, does not count."""
    work()
    took: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return statistics.median(took)


def changed(id: str) -> dict[str, Any]:
    """The reference with the rows of its first array in another order: most often wrong, and then diagnosed."""
    answer = reference(id, given(id))
    first = next((name for name, value in answer.items() if isinstance(value, torch.Tensor)), None)
    return answer if first is None else {**answer, first: answer[first].roll(1, 0)}


def report(name: str, took: float, bound: float) -> bool:
    good = took <= bound
    print(f"{name:34} {took:6.3f} s   bound {bound:.0f} s {'holds' if good else 'FAILS'}")
    return good


def main() -> int:
    torch.set_num_threads(1)
    held = True
    for id in IDS:
        held &= report(
            f"check {id}, a function", seconds(lambda id=id: check(id, solve=lambda g: reference(id, g))), CHECK
        )
        held &= report(f"check {id}, changed", seconds(lambda id=id: check(id, **changed(id))), CHECK)
    random = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 64, 64, 8, generator=random, dtype=torch.float64)
    for name, rule in (("same token", same_token()), ("previous", offset(1)), ("earlier copy", earlier_copy())):
        took = seconds(lambda rule=rule: prove(States.of(queries, keys), rule), rounds=3)
        held &= report(f"proof, n = V = 64, {name}", took, PROOF)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    print(f"peak {peak:,.0f} MB")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
