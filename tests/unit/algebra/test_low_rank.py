"""LowRank equals the dense matrix, multiplied out here without it, for every operation."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headway.algebra.low_rank import LowRank
from headway.errors import ShapeProblem, TooLarge, UsageError

BATCHES = [(), (1,), (3,), (2, 1), (2, 3)]  # any of these broadcast together
KINDS = ["normal", "zero", "orthonormal", "repeated columns"]


def make(shape: tuple[int, ...], kind: str, seed: int) -> Tensor:
    t = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    if kind == "zero":
        return t * 0
    if kind == "orthonormal":  # all singular values 1
        u, _, vh = torch.linalg.svd(t, full_matrices=False)
        return u @ vh
    return t[..., :1].expand(shape).contiguous() if kind == "repeated columns" else t


@st.composite
def chains(draw: st.DrawFn, *, square: bool = False, ends: tuple[int, int] | None = None) -> list[Tensor]:
    """One to four factors with unrelated widths and leading axes; some zero, some with repeated singular values."""
    widths = draw(st.lists(st.integers(1, 6), min_size=2, max_size=5))
    if ends:
        widths[0], widths[-1] = ends
    if square:
        widths[-1] = widths[0]
    seed = draw(st.integers(0, 10_000))
    return [
        make((*draw(st.sampled_from(BATCHES)), a, b), draw(st.sampled_from(KINDS)), seed + i)
        for i, (a, b) in enumerate(pairwise(widths))
    ]


def dense(factors: list[Tensor]) -> Tensor:
    return reduce(torch.matmul, factors)


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-9)


@given(chains())
def test_shape_dense_transpose_and_pair(factors: list[Tensor]):
    m, lr = dense(factors), LowRank(*factors)
    assert lr.shape == tuple(m.shape)
    assert same(lr.dense(), m)
    assert same(lr.T.dense(), m.mT)
    left, right = lr.pair()
    assert left.shape[-1] == right.shape[-2] == lr.rank
    assert same(left @ right, m)
    assert int(torch.linalg.matrix_rank(m).max()) <= lr.rank <= min(m.shape[-2:])


@given(chains(), st.data())
def test_products(factors: list[Tensor], data: st.DataObject):
    m, lr = dense(factors), LowRank(*factors)
    after = data.draw(chains(ends=(m.shape[-1], 4)))
    before = data.draw(chains(ends=(5, m.shape[-2])))
    assert same((lr @ LowRank(*after)).dense(), m @ dense(after))
    assert same((lr @ after[0]).dense(), m @ after[0])
    assert same((before[-1] @ lr).dense(), before[-1] @ m)
    column, row = make((m.shape[-1],), "normal", 1), make((m.shape[-2],), "normal", 2)
    assert same(lr @ column, m @ column)
    assert same(row @ lr, row @ m)


@given(chains(ends=(4, 5)), chains(ends=(4, 5)), st.floats(-3, 3))
def test_sums_and_scalars(a: list[Tensor], b: list[Tensor], c: float):
    x, y = LowRank(*a), LowRank(*b)
    assert same((x + y).dense(), dense(a) + dense(b))
    assert same((x - y).dense(), dense(a) - dense(b))
    assert same((-x).dense(), -dense(a))
    assert same((c * x).dense(), c * dense(a))
    assert same((x * c).dense(), c * dense(a))
    assert same((x / (c + 4)).dense(), dense(a) / (c + 4))
    assert same((x + x - y).norm(), torch.linalg.matrix_norm(2 * dense(a) - dense(b)))
    assert same((x + y - x).spectral_norm(), torch.linalg.matrix_norm(dense(b) + dense(a) - dense(a), ord=2))


@given(chains(ends=(4, 5)), st.sampled_from(BATCHES))
def test_one_number_for_each_leading_index(a: list[Tensor], batch: tuple[int, ...]):
    c = make(batch, "normal", 7)
    assert same((c * LowRank(*a)).dense(), c[..., None, None] * dense(a))
    assert same((LowRank(*a) / c).dense(), dense(a) / c[..., None, None])


def test_numpy_scalars_on_either_side():
    a = [make((3, 2), "normal", 0), make((2, 4), "normal", 1)]
    for two in (np.float64(2), np.float32(2), np.int64(2), 2):
        assert same((two * LowRank(*a)).dense(), 2 * dense(a))
        assert same((LowRank(*a) * two).dense(), 2 * dense(a))


@given(chains())
def test_norms_and_diagonal(factors: list[Tensor]):
    m, lr = dense(factors), LowRank(*factors)
    assert same(lr.norm(), torch.linalg.matrix_norm(m))
    assert same(lr.spectral_norm(), torch.linalg.matrix_norm(m, ord=2))
    assert same(lr.diagonal(), m.diagonal(dim1=-2, dim2=-1))


@given(chains())
def test_svd_returns_v_and_not_its_transpose(factors: list[Tensor]):
    m, lr = dense(factors), LowRank(*factors)
    u, s, v = lr.svd()
    r = lr.rank
    assert u.shape[-2:] == (m.shape[-2], r) and s.shape[-1] == r and v.shape[-2:] == (m.shape[-1], r)
    assert same(u * s[..., None, :] @ v.mT, m)
    assert same(u.mT @ u, torch.eye(r, dtype=m.dtype).expand(*u.shape[:-2], r, r))
    assert same(v.mT @ v, torch.eye(r, dtype=m.dtype).expand(*v.shape[:-2], r, r))
    assert bool((s.diff(dim=-1) <= 0).all())
    every = torch.linalg.svdvals(m)
    assert same(s, every[..., :r])
    assert float(every[..., r:].abs().sum()) < 1e-9


@given(chains(square=True))
def test_trace_and_eigenvalues(factors: list[Tensor]):
    """Power sums tr M^k, k <= n, fix the eigenvalues with multiplicity, even where M is defective."""
    m, lr = dense(factors), LowRank(*factors)
    assert same(lr.trace(), m.diagonal(dim1=-2, dim2=-1).sum(-1))
    found = lr.eigenvalues()
    assert found.shape == (*m.shape[:-2], lr.rank)
    power, scale = m, 1.0
    for k in range(1, m.shape[-1] + 1):
        scale *= max(1.0, float(torch.linalg.matrix_norm(m, ord=2).max()))
        sums = (found**k).sum(-1)
        assert float((sums - power.diagonal(dim1=-2, dim2=-1).sum(-1)).abs().max()) < 1e-9 * scale
        power = power @ m


def test_eigenvalues_known_by_hand():
    """In the plane of its first two axes the matrix turns by 90 degrees and doubles; the third is kept; rest zero."""
    block = torch.tensor([[0.0, -2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    basis = make((6, 6), "normal", 3)
    lr = LowRank(basis[:, :3], block, torch.linalg.inv(basis)[:3])
    found = sorted(lr.eigenvalues().tolist(), key=lambda z: z.imag)
    assert np.allclose(found, [-2j, 1, 2j], atol=1e-12)


ROWS = 5
INDEXES = [
    0,
    4,
    -1,
    -5,
    np.int64(2),
    torch.tensor(-2),
    slice(None),
    slice(1, 4),
    slice(None, None, 2),
    slice(-2, None),
    slice(3, 1),
    slice(100),
    [0, -1, 0],
    [],
    range(1, 3),
    (2, 3),
    np.array([1, -1]),
    torch.tensor([[0, -1, 2], [3, 3, 1]]),
    torch.tensor([True, False, True, False, True]),
    [False, True, False, False, True],
    torch.zeros(0, dtype=torch.int64),
    torch.tensor([4, 0], dtype=torch.int32),
]


@pytest.mark.parametrize("index", INDEXES, ids=repr)
@pytest.mark.parametrize("batch", [(), (3,), (2, 1)], ids=str)
def test_rows_and_columns_follow_dense_indexing(index: Any, batch: tuple[int, ...]):
    factors = [make((*batch, ROWS, 3), "normal", 0), make((3, 2), "normal", 1), make((3, 2, ROWS), "normal", 2)]
    m, lr = dense(factors), LowRank(*factors)
    plain = list(index) if isinstance(index, range | tuple) else index  # a tuple would mean several axes to torch
    assert same(lr.rows(index), m[..., plain, :])
    assert same(lr.columns(index), m[..., plain])


def test_slices_that_run_backwards():
    factors = [make((ROWS, 3), "normal", 0), make((3, 7), "normal", 1)]
    assert same(LowRank(*factors).rows(slice(None, None, -2)), dense(factors)[[4, 2, 0]])
    assert same(LowRank(*factors).columns(slice(2, None, -1)), dense(factors)[:, [2, 1, 0]])


@pytest.mark.parametrize("index", [5, -6, [0, 5], torch.tensor([-6])], ids=repr)
def test_entries_outside_are_refused(index: Any):
    lr = LowRank(torch.ones(ROWS, 2), torch.ones(2, ROWS))
    with pytest.raises(UsageError, match="row index is out of range"):
        lr.rows(index)
    with pytest.raises(UsageError, match="column index is out of range"):
        lr.columns(index)


def test_at_picks_leading_axes_without_copying():
    factors = [make((2, 1, 4, 3), "normal", 0), make((3, 5), "normal", 1), make((3, 5, 6), "normal", 2)]
    m, lr = dense(factors), LowRank(*factors)
    for index in [(), (0,), (-1,), (1, 2), (0, -3)]:
        assert same(lr.at(*index).dense(), m[index])
    assert same(lr.at(1).at(2).dense(), m[1, 2])
    assert lr.at(1, 2).factors[1] is factors[1]
    assert lr.at(1, 2).factors[2].data_ptr() == factors[2][2].data_ptr()
    with pytest.raises(ShapeProblem, match="at most 2 integers"):
        lr.at(0, 0, 0)
    with pytest.raises(UsageError, match="leading-axis index is out of range"):
        lr.at(0, 3)


def test_sum_adds_ranks_and_stays_right_beyond_full_rank():
    parts = [LowRank(make((6, 2), "normal", i), make((2, 5), "normal", 9 + i)) for i in range(4)]
    assert (parts[0] + parts[1]).rank == 4
    total = reduce(LowRank.__add__, parts)
    expected = reduce(torch.add, [p.dense() for p in parts])
    assert total.rank == 5  # eight columns are stored, the shape allows five
    assert same(total.dense(), expected)
    assert same(total.svd().S, torch.linalg.svdvals(expected))


def test_difference_of_equals_is_zero_to_rounding():
    a = LowRank(make((7, 2), "normal", 0), make((2, 5), "normal", 1))
    assert float((a - a).norm()) < 1e-14


def test_width_zero_is_the_zero_matrix():
    lr = LowRank(torch.zeros(4, 0), torch.zeros(0, 3))
    assert lr.rank == 0 and float(lr.norm()) == 0 and float(lr.spectral_norm()) == 0
    assert torch.equal(lr.dense(), torch.zeros(4, 3))
    assert LowRank(torch.zeros(4, 0), torch.zeros(0, 4)).eigenvalues().shape == (0,)


def test_precision_can_be_raised():
    lr = LowRank(torch.ones(3, 2), torch.ones(2, 3))
    assert lr.eigenvalues().dtype == torch.complex64
    assert lr.to(torch.float64).eigenvalues().dtype == torch.complex128
    assert lr.to(device="cpu").factors[0].dtype == torch.float32


def test_huge_products_are_never_multiplied_out():
    """Multiplied out this matrix would take 240 GB, so that these return at all shows that it is not."""
    a, b = torch.ones(200_000, 2), torch.ones(2, 300_000)
    lr = LowRank(a, b)
    assert float(lr.norm()) == pytest.approx(2 * math.sqrt(200_000 * 300_000), rel=1e-4)
    assert float((lr + lr).spectral_norm()) == pytest.approx(4 * math.sqrt(200_000 * 300_000), rel=1e-4)
    assert float(lr.diagonal().sum()) == 400_000
    assert lr.svd().U.shape == (200_000, 2)
    assert lr.rows(-1).shape == (300_000,) and lr.columns([0, 1]).shape == (200_000, 2)


def test_dense_is_guarded_and_says_how_large():
    lr = LowRank(torch.ones(3, 9_000, 1), torch.ones(1, 9_000))
    with pytest.raises(TooLarge, match=r"243,000,000 \(0\.97 GB in float32\)"):
        lr.dense()
    with pytest.raises(TooLarge):
        lr.rows(slice(None))
    with pytest.raises(TooLarge, match="at most 11 elements"):
        LowRank(torch.ones(3, 1), torch.ones(1, 4)).dense(max_elements=11)
    assert LowRank(torch.ones(3, 1), torch.ones(1, 4)).dense(max_elements=12).shape == (3, 4)


SCALARS: dict[str, Callable[[LowRank], Tensor]] = {
    "dense": lambda x: x.dense(),
    "trace": lambda x: (x.T @ x).trace(),
    "norm": lambda x: x.norm(),
    "spectral norm": lambda x: x.spectral_norm(),
    "diagonal": lambda x: x.diagonal(),
    "rows": lambda x: x.rows([0, -1]),
    "columns": lambda x: x.columns(1),
    "svd": lambda x: x.svd().S,
    "projector": lambda x: x.svd().U @ x.svd().U.mT,
    "eigenvalues": lambda x: (x.T @ x).eigenvalues().abs().sum(-1),
    "sum": lambda x: (2 * x - x / 3).norm(),
    "vector": lambda x: x @ torch.arange(x.shape[-1], dtype=torch.float64),
}


@pytest.mark.parametrize("name", SCALARS)
def test_gradients_match_finite_differences(name: str):
    a = make((3, 1, 4, 2), "normal", 0).requires_grad_()
    b = make((2, 2, 5), "normal", 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda p, q: SCALARS[name](LowRank(p, q)), (a, b))


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-300])
def test_norms_whose_squares_are_out_of_range(scale: float):
    L, R = torch.randn(2, 6, 3, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(LowRank(L * scale, R).norm() / scale, (L @ R).norm(dim=(-2, -1)), rtol=1e-12, atol=0)
    assert LowRank(torch.zeros(6, 3), torch.ones(3, 4)).norm() == 0


def test_second_derivative_of_the_norm():
    a, b = make((4, 2), "normal", 0).requires_grad_(), make((2, 5), "normal", 1).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda p, q: LowRank(p, q).norm(), (a, b))


def test_norm_has_a_gradient_without_full_rank():
    """QR has none there: a repeated column, and a sum of a matrix with itself, as heads that share factors give."""
    a, b = make((4, 2), "repeated columns", 0).requires_grad_(), make((2, 5), "normal", 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda p, q: (LowRank(p, q) + LowRank(p, q)).norm(), (a, b))


def test_zero_head_in_a_batch_leaves_the_others_gradients_alone():
    a = torch.stack([torch.zeros(4, 2), torch.ones(4, 2)]).requires_grad_()
    LowRank(a, torch.ones(2, 3)).norm().sum().backward()
    assert a.grad is not None
    assert torch.equal(a.grad[0], torch.zeros(4, 2))
    assert bool((a.grad[1] > 0).all())


def test_nothing_can_be_changed_or_confused_with_an_array():
    lr = LowRank(torch.ones(3, 2), torch.ones(2, 4))
    with pytest.raises(AttributeError):
        cast(Any, lr).factors = ()
    with pytest.raises(TypeError):
        operator.add(lr, 1)
    with pytest.raises(TypeError):
        operator.add(cast(Any, torch.ones(3, 4)), lr)
    with pytest.raises(TypeError):
        operator.matmul(lr, "matrix")
    with pytest.raises(TypeError):
        operator.mul(lr, "2")
    with pytest.raises(TypeError):
        operator.truediv(lr, "2")
    with pytest.raises(TypeError):
        list(cast(Any, lr))
    assert repr(LowRank(torch.ones(6, 3, 2), torch.ones(2, 4))) == "LowRank(3-2-4, batch (6,))"


def test_operations_refuse_what_does_not_fit():
    a = LowRank(torch.ones(3, 2), torch.ones(2, 4))
    with pytest.raises(ShapeProblem, match="different shape"):
        operator.add(a, a.T)
    with pytest.raises(ShapeProblem, match="dtype or device differs"):
        operator.add(a, a.to(torch.float64))
    with pytest.raises(ShapeProblem, match="do not chain"):
        operator.matmul(a, torch.ones(5))
    with pytest.raises(ShapeProblem, match="do not chain"):
        operator.matmul(torch.ones(5), a)
    with pytest.raises(ShapeProblem, match="do not broadcast"):
        operator.add(LowRank(torch.ones(2, 3, 1), torch.ones(1, 4)), LowRank(torch.ones(3, 3, 1), torch.ones(1, 4)))
    with pytest.raises(ShapeProblem, match="one number for each leading index"):
        operator.mul(LowRank(torch.ones(2, 3, 1), torch.ones(1, 4)), torch.ones(3))
    with pytest.raises(ShapeProblem, match="expected real"):
        operator.mul(a, torch.tensor(1j))
    with pytest.raises(ShapeProblem, match="trace needs a square matrix"):
        a.trace()
    with pytest.raises(ShapeProblem, match="eigenvalues needs a square matrix"):
        a.eigenvalues()


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_scaling_needs_a_finite_number(number: float):
    with pytest.raises(UsageError, match="expected finite"):
        operator.mul(LowRank(torch.ones(3, 2)), number)


def test_division_by_zero():
    with pytest.raises(UsageError, match="division by zero"):
        operator.truediv(LowRank(torch.ones(3, 2)), 0)
