"""The kernel of a head's positions against its scores, and the par against bounds worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from headway.exercises.givens import given
from headway.exercises.kernel import kernel_of, par, par_fraction
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


def test_near_are_aliases_and_whatever_is_higher():
    pair = kernel_of(GIVEN, Head(pairs(GIVEN, 1), pairs(GIVEN, 1)))  # period 16
    assert pair.near(0, 12) == ()
    assert pair.stands_out(0, range(16)) and not pair.stands_out(0, range(17))
    assert pair.near(0, 20) == (
        15,
        16,
        17,
    )  # cos(2 pi / 16) = .92 is within a tenth of the range, cos(4 pi / 16) is not
    # Of a head that looks at 0 instead of 2, all that is higher is marked, neighbours too.
    assert pair.near(2, 12) == (0, 1)
    flat = kernel_of(GIVEN, Head(torch.zeros(1, 32).double(), torch.zeros(1, 32).double()))
    assert flat.near(0, 12) == ()


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
    alpha, within = 2 * math.pi / n, range(1, n)
    assert par([alpha], within, 1) == pytest.approx(1 - math.cos(alpha))
    assert par([alpha, 3.0], within, 1) >= par([alpha], within, 1)
    assert par([alpha, 3.0], within, 2) >= par([alpha, 3.0], within, 1)


def test_only_reachable_offsets_count():
    """A head that aims one back never sees the offset n - 1, so a frequency with that period has no alias there."""
    alpha = 2 * math.pi / 11
    assert par([alpha], range(1, 12), 1) == pytest.approx(0.0, abs=1e-12)
    assert par([alpha], range(1, 11), 1) > 0.1


def test_a_fraction_of_the_par_is_of_sums_of_cosines_alone():
    """By hand: one pair of period 16 among 12 positions has gap 1 - cos(2 pi / 16) at 0, the par of that pair."""
    pair = pairs(GIVEN, 1)
    size = float(GIVEN.amplitude[1]) ** 2
    here, gap = kernel_of(GIVEN, Head(pair, pair)), size * (1 - math.cos(2 * math.pi / 16))
    assert par_fraction(here, gap, range(12), 0, 1) == pytest.approx(
        (1 - math.cos(2 * math.pi / 16)) / par(GIVEN.alpha.tolist(), range(1, 12), 1)
    )
    half = par_fraction(here, gap / 2, range(12), 0, 1)  # content may take from the margin
    assert half is not None and 2 * half == pytest.approx(par_fraction(here, gap, range(12), 0, 1))
    assert par_fraction(here, 1.01 * gap, range(12), 0, 1) is None, "but what it adds is not the kernel's"
    turned = kernel_of(GIVEN, Head(turns(GIVEN, 1.0, 1) @ pair, pair))  # crests ahead, at -1
    assert par_fraction(turned, 0.1 * gap, range(12), 0, 1) is None
    mixed = kernel_of(GIVEN, Head(pairs(GIVEN, 1) + pairs(GIVEN, 0), pairs(GIVEN, 1) + pairs(GIVEN, 0)))
    assert mixed.share < 0.9 and par_fraction(mixed, 1e-3, range(12), 0, 1) is None
