"""Plans: defaults, positions of the stream, and what cannot be planned."""

from __future__ import annotations

import math

import pytest
import torch

from headway.errors import UsageError
from headway.sources.handmade.kernels import octaves, rotary_angles
from headway.sources.handmade.plan import Plan


def test_positions_of_the_stream():
    plan = Plan(n_ctx=9, frequencies=(1.0, 0.25), amplitudes=(2.0, 0.5), bos_position=False)
    waves = plan.waves()
    wanted = [[r * f(a * m) for m in range(9)] for r, a in ((2.0, 1.0), (0.5, 0.25)) for f in (math.cos, math.sin)]
    expected = torch.tensor(wanted, dtype=torch.float64)
    expected[:, 0] = 0
    torch.testing.assert_close(waves, expected)
    assert Plan(n_ctx=9, frequencies=(1.0, 0.25)).waves().norm(dim=0).tolist() == pytest.approx([1.0] * 9)


def test_angles_of_each_kind():
    assert Plan(n_ctx=64).angles == octaves(64) and Plan(positions="none").angles == ()
    turned = Plan(n_ctx=64, positions="rotary")
    assert turned.angles == rotary_angles(turned.base, 6) and turned.angles[0] == 1.0
    assert (turned.place, Plan().place) == ("one", "position") and set(turned.lengths) == {1.0}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"positions": "shortformer"}, "positions of a plan"),
        ({"n_ctx": 1}, "previous token"),
        ({"leak": 0.5}, "below 1/2"),
        ({"leak": float("nan")}, "below 1/2"),
        ({"positions": "rotary", "frequencies": (1.0,)}, "positions='learned'"),
        ({"frequencies": (1.0, 0.5), "amplitudes": (1.0,)}, "one for each of 2 pairs"),
        ({"frequencies": (1.0,), "amplitudes": (0.0,)}, "above 0"),
    ],
)
def test_impossible_plans(options: dict, says: str):
    with pytest.raises(UsageError, match=says):
        Plan(**options)


def test_no_weights_without_positions():
    with pytest.raises(UsageError, match="model without positions"):
        Plan(positions="none").weights_for(range(1, 4))
