from __future__ import annotations

import math

import pytest

from headway.errors import UsageError
from headway.sources.handmade.sharpness import sharpness_for


@pytest.mark.parametrize(("leak", "gap", "rivals"), [(0.01, 0.3, 63), (0.001, 2.0, 1), (0.4, 0.05, 1000)])
def test_rivals_at_the_gap_share_exactly_the_leak(leak: float, gap: float, rivals: int):
    T = sharpness_for(leak, gap=gap, rivals=rivals)
    rest = rivals * math.exp(-T * gap)
    assert math.isclose(rest / (1 + rest), leak, rel_tol=1e-9)
    necessary = math.log((1 - leak) / leak) / gap
    assert necessary <= T + 1e-12


def test_without_rivals_the_bound_is_that_of_one():
    assert sharpness_for(0.1, gap=1.0, rivals=0) == sharpness_for(0.1, gap=1.0, rivals=1)


@pytest.mark.parametrize("leak", [0.0, -0.1, 0.5, 1.0, float("nan")])
def test_a_leak_is_a_small_share(leak: float):
    with pytest.raises(UsageError, match="leak"):
        sharpness_for(leak, gap=1.0, rivals=3)


@pytest.mark.parametrize("gap", [0.0, -1.0, float("nan")])
def test_no_sharpness_helps_without_a_gap(gap: float):
    with pytest.raises(UsageError, match="rival scores as high"):
        sharpness_for(0.1, gap=gap, rivals=3)
