"""Every way in which factors fail to form a product is named."""

from __future__ import annotations

import pytest
import torch

from headway.algebra.chain import broadcast, check_factors, check_same_kind, unit_factors
from headway.errors import ShapeProblem

ONE = torch.ones(3, 2)

BAD = {
    "no factors": [],
    "got list": [[[1.0, 2.0]]],
    r"factor 1.*got \(2,\)": [ONE, torch.ones(2)],
    "got.*torch.int64": [torch.ones(3, 2, dtype=torch.int64)],
    "got.*complex": [torch.ones(3, 2, dtype=torch.complex64)],
    "do not chain.*factor 1 with 2 rows": [ONE, torch.ones(3, 4)],
    "factors 1 and 2 do not chain": [ONE, torch.ones(2, 5), torch.ones(4, 5)],
    "dtype or device differs.*float64": [ONE, torch.ones(2, 4, dtype=torch.float64)],
    "do not broadcast": [torch.ones(4, 3, 2), torch.ones(5, 2, 2)],
}


@pytest.mark.parametrize("message", BAD)
def test_factors_that_form_no_product(message: str):
    with pytest.raises(ShapeProblem, match=message):
        check_factors(BAD[message])


def test_good_factors_come_back_as_they_are():
    factors = (torch.ones(4, 1, 3, 2), torch.ones(5, 2, 7))
    assert all(a is b for a, b in zip(check_factors(factors), factors, strict=True))


def test_device_counts_too():
    with pytest.raises(ShapeProblem, match="on meta"):
        check_same_kind([ONE, torch.ones(2, 2, device="meta")], "here")


def test_broadcast_is_the_common_shape():
    assert broadcast([(2, 1), (), (3,)], "here") == (2, 3)
    with pytest.raises(ShapeProblem, match="here: leading axes"):
        broadcast([(2,), (3,)], "here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fraction", [0.9, 0.5, -0.5, -0.9])
def test_scale_is_taken_out_of_factors_exactly(dtype: torch.dtype, fraction: float):
    tiny = torch.finfo(dtype).tiny
    a, b = torch.randn(3, 2, dtype=dtype) * tiny**fraction, torch.randn(2, 5, dtype=dtype)
    (x, y), exponent = unit_factors([a, b])
    assert 0.5 <= float(x.abs().max()) < 1 and 0.5 <= float(y.abs().max()) < 1
    whole = [float(t.abs().max()) for t in (a, b)]
    assert torch.equal(x * (whole[0] / float(x.abs().max())), a)
    assert float(x.abs().max()) * float(y.abs().max()) * 2.0**exponent == pytest.approx(whole[0] * whole[1], rel=1e-6)


def test_factors_without_scale_stay_as_they_are():
    for odd in (torch.zeros(2, 3), torch.zeros(0, 3), torch.full((2, 3), torch.inf)):
        (kept,), exponent = unit_factors([odd])
        assert torch.equal(kept, odd) and exponent == 0
