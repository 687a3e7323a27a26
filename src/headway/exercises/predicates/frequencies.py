"""Design of frequencies: k pairs that keep every distance of n positions apart.

gap = min over D = 1 .. n-1 of the mean over pairs of 1 - cos(alpha_f D). Some D always brings all pairs near full turns
(`dirichlet_bound`), so that the gap falls as n^(-2/k): the law that makes another pair worth more than better pairs
(exercises.md B2).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.exercises.givens import Given
from headway.exercises.verdict import Note, Picture, Verdict, failed, passed
from headway.sources.handmade.kernels import dirichlet_bound, gaps, kernel_gap

Answer = Mapping[str, Tensor]
Earlier = Mapping[str, Mapping[str, Any]]
_SIZES = {False: (64, 2, 0.11), True: (128, 3, 0.15)}  # n, k, the gap asked for


def design(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """The least gap over all distances is what was asked for, or more."""
    gaps = _gaps(answer["alpha"], given.n)
    worst = int(gaps.argmin())
    least, bound = float(gaps[worst]), dirichlet_bound(given.n, given.axis("k"))
    picture = _picture(given, gaps)
    if least >= given.gap:
        return passed(given.id, notes=(Note("GAP", {"gap": least, "bound": bound}),), picture=picture)
    facts = {"offset": worst + 1, "works_to": worst + 1, "gap": least, "wanted": given.gap, "repair": ""}
    facts |= {"slow": 1} if worst == 0 else {}  # not come round again, but hardly moved
    return failed(given.id, "TIE" if least <= 1e-9 else "ALIAS", facts, picture=picture)


def _gaps(alpha: Tensor, n: int) -> Float[Tensor, "distance"]:
    """Mean over pairs of 1 - cos(alpha_f D) at D = 1 .. n-1."""
    return torch.from_numpy(gaps(alpha.tolist(), range(1, n)))


def frequencies_given(id: str, *, hidden: bool, seed: int) -> Given:
    """n positions, k pairs (`alpha`: a poor choice to start from), and the gap to reach."""
    n, k, gap = _SIZES[hidden]
    start = torch.tensor([10.0**-f for f in range(k)], dtype=torch.float64)
    extra = {"gap": gap, "k": k}
    return Given(id=id, d_model=0, d_head=0, n=n, n_tokens=0, hidden=hidden, seed=seed, alpha=start, extra=extra)


def _picture(given: Given, gaps: Tensor) -> Picture:
    """Score kappa(D) = 1 - gap against distance, from 0; what is wanted lies below 1 - gap asked for everywhere."""
    yours = torch.cat((torch.ones(1, dtype=gaps.dtype), 1 - gaps))
    wanted = torch.full_like(yours, 1 - given.gap)
    wanted[0] = 1
    marks = tuple(int(d) + 1 for d in (gaps < given.gap).nonzero()[:, 0])
    columns = tuple(str(d) for d in range(given.n))
    return Picture("kernel", yours.numpy(), wanted.numpy(), (yours - wanted).numpy(), ("score",), columns, marks)


def _periods(given: Given) -> dict[str, Tensor]:
    """Whole periods near n^(1/k): the best of a small search."""
    k = given.axis("k")
    middle = round(given.n ** (1 / k))
    tried = (
        2 * math.pi / torch.tensor(periods, dtype=torch.float64)
        for periods in itertools.combinations(range(max(2, middle - 2), middle + 9), k)
    )
    return {"alpha": max(tried, key=lambda alpha: kernel_gap(alpha.tolist(), range(1, given.n)))}


PREDICATES = {"frequencies": design}
REFERENCES: dict[str, Callable[[Given], dict[str, Tensor]]] = {"frequencies": _periods}
GIVENS = {"frequencies": partial(frequencies_given, "frequencies")}
