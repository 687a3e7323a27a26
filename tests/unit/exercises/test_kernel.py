"""The kernel of a head's positions against its scores, and the par against bounds worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from headway.exercises.givens import given
from headway.exercises.kernel import kernel_of, par
from headway.exercises.predicates.attention import pairs, turns
from headway.exercises.predicates.rotary import constant_rows
from headway.exercises.references import reference
from headway.exercises.scoring import Head

GIVEN = given("2c")


def heads():
    rows = pairs(GIVEN, 0, 1)
    return {
        "self": (Head(rows, rows), 0),
        "previous": (Head(turns(GIVEN, -1.0, 0, 1) @ rows, rows), 1),
        "two back, one pair": (Head(turns(GIVEN, -2.0, 2) @ pairs(GIVEN, 2), pairs(GIVEN, 2)), 2),
        "next": (Head(turns(GIVEN, 1.0, 0, 1) @ rows, rows), -1),
    }


@pytest.mark.parametrize("name", heads())
def test_the_kernel_is_the_score(name: str):
    head, peak = heads()[name]
    kernel = kernel_of(GIVEN, head)
    x = GIVEN.positions
    scores = x @ head.W_Q.T @ head.W_K @ x.T
    offsets = [i - j for i in range(GIVEN.n) for j in range(GIVEN.n)]
    assert torch.allclose(kernel.at(offsets), scores.flatten(), atol=1e-10)
    assert kernel.share == pytest.approx(1.0)
    assert kernel.best(GIVEN.n, future=True) == peak
    assert kernel.peaks(peak) and not kernel.peaks(peak + 1)


def test_scores_that_depend_on_place_have_no_share():
    exchanged = pairs(GIVEN, 0)[torch.tensor([1, 0])]
    kernel = kernel_of(GIVEN, Head(exchanged, pairs(GIVEN, 0)))
    assert kernel.share == pytest.approx(0.0, abs=1e-20)


def test_energy_is_the_sum_of_amplitudes():
    kernel = kernel_of(GIVEN, heads()["previous"][0])
    assert kernel.energy == pytest.approx(1.0**2 + 0.8**2)
    zero = kernel_of(GIVEN, Head(torch.zeros(1, 32).double(), torch.zeros(1, 32).double()))
    assert (zero.energy, zero.share) == (0.0, 0.0)


def test_aliases_are_offsets_that_come_near():
    pair = kernel_of(GIVEN, Head(pairs(GIVEN, 1), pairs(GIVEN, 1)))
    assert pair.aliases(0, 12) == ()
    assert pair.stands_out(0, range(16)) and not pair.stands_out(0, range(17))
    assert 16 in pair.aliases(0, 20)


def test_rotary_kernels_are_those_of_the_constant():
    g = given("2c-rotary")
    kernel = kernel_of(g, Head(*reference("2c-rotary", g).values()))
    expected = [sum(math.cos(float(t) * (d - 1)) for t in g.theta) for d in range(g.n)]
    # Contents are not read, so the mean stream gives the constant's own kernel.
    assert kernel.at(range(g.n)).tolist() == pytest.approx(expected, abs=1e-10)
    assert kernel_of(g, Head(constant_rows(g), constant_rows(g))).best(g.n) == 0


@pytest.mark.parametrize("n", [8, 16])
def test_the_par_of_one_pair_is_its_worst_offset(n: int):
    """alpha = 2 pi / n is the best single frequency: gap 1 - cos(2 pi / n) (exercises.md B2: .0761 at 16)."""
    alpha = 2 * math.pi / n
    assert par([alpha], n, 0, 1) == pytest.approx(1 - math.cos(alpha))
    assert par([alpha, 3.0], n, 0, 1) >= par([alpha], n, 0, 1)
    assert par([alpha, 3.0], n, 0, 2) >= par([alpha, 3.0], n, 0, 1)


def test_only_reachable_offsets_count():
    """A head that aims one back never sees the offset n - 1, so a frequency with that period has no alias there."""
    alpha = 2 * math.pi / 11
    assert par([alpha], 12, 0, 1) == pytest.approx(0.0, abs=1e-12)
    assert par([alpha], 12, 1, 1) > 0.1
