"""Bases, angles and overlaps against constructions whose answer is known."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headway.algebra.low_rank import LowRank
from headway.algebra.subspace import column_basis, expected_overlap, overlap, principal_angles
from headway.errors import BadInput, NotFinite, ShapeProblem, UsageError


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def frame(d: int, k: int) -> Tensor:
    return torch.linalg.qr(random(d, k)).Q


def pair_at(angles: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Two bases at given principal angles, in general position: T_i = cos S_i + sin N_i, N orthogonal to S."""
    k, turn = len(angles), frame(d, d)
    s, n = turn[:, :k], turn[:, k : 2 * k]
    t = s * angles.cos() + n * angles.sin()
    return s @ frame(k, k), t @ frame(k, k)


@given(st.integers(1, 7), st.integers(1, 6), st.integers(0, 4))
def test_basis_spans_the_columns_and_no_more(d: int, n: int, r: int):
    r = min(r, d, n)
    m = random(d, r) @ random(r, n)
    for given_as in (m, LowRank(m), LowRank(torch.eye(d, dtype=m.dtype), m)):
        q = column_basis(given_as)
        assert q.shape == (d, r)
        torch.testing.assert_close(q.mT @ q, torch.eye(r, dtype=m.dtype), rtol=0, atol=1e-9)
        torch.testing.assert_close(q @ (q.mT @ m), m, rtol=0, atol=1e-9)


def test_zero_matrix_has_no_columns():
    assert column_basis(torch.zeros(4, 3)).shape == (4, 0)
    assert column_basis(LowRank(torch.zeros(4, 2), torch.ones(2, 3)), rtol=0.0).shape == (4, 0)


def test_rtol_sets_what_counts_and_strong_directions_come_first():
    m = torch.diag(torch.tensor([1e-3, 5.0, 1.0], dtype=torch.float64))
    assert column_basis(m).abs().argmax(0).tolist() == [1, 2, 0]
    assert column_basis(m, rtol=1e-2).shape == (3, 2)
    assert column_basis(m, rtol=0.3).shape == (3, 1)


def test_basis_refuses():
    with pytest.raises(ShapeProblem, match="a basis is of one matrix"):
        inspect.unwrap(column_basis)(torch.ones(2, 3, 4))
    with pytest.raises(UsageError, match="rtol is out of range"):
        column_basis(torch.ones(3, 4), rtol=1.0)
    with pytest.raises(NotFinite):
        column_basis(torch.tensor([[1.0, math.nan]]))
    with pytest.raises(NotFinite):
        column_basis(LowRank(torch.tensor([[math.inf]]), torch.ones(1, 2)))


@pytest.mark.parametrize("angles", [[0.2, 0.7, 1.5], [0.0, 0.0, math.pi / 2], [1e-12, 1e-7, math.pi / 4]], ids=str)
def test_angles_are_those_built_in(angles: list[float]):
    expected = torch.tensor(angles, dtype=torch.float64)
    s, t = pair_at(expected, 9)
    torch.testing.assert_close(principal_angles(s, t), expected, rtol=1e-9, atol=2e-15)
    torch.testing.assert_close(overlap(s, t), expected.cos().square().sum(), rtol=0, atol=1e-9)


def test_angles_of_spaces_of_different_dimension_in_either_order():
    s, t = pair_at(torch.tensor([0.3, 1.1], dtype=torch.float64), 8)
    rest = torch.linalg.svd(torch.cat([s, t], 1), full_matrices=True).U[:, 4:]
    wider = torch.cat([t, rest[:, :3]], 1)  # the added directions are orthogonal to both
    for a, b in ((s, wider), (wider, s)):
        torch.testing.assert_close(
            principal_angles(a, b), torch.tensor([0.3, 1.1], dtype=torch.float64), rtol=0, atol=1e-9
        )


def test_stacks_broadcast():
    s, t = torch.stack([frame(6, 2) for _ in range(3)]), frame(6, 4)
    angles, shared = principal_angles(s, t), overlap(s, t)
    assert angles.shape == (3, 2) and shared.shape == (3,)
    for i in range(3):
        torch.testing.assert_close(angles[i], principal_angles(s[i], t), rtol=0, atol=1e-12)
        torch.testing.assert_close(shared[i], torch.linalg.matrix_norm(s[i].mT @ t).square())


def test_empty_space_shares_nothing():
    none = torch.zeros(5, 0)
    assert principal_angles(none, torch.eye(5)).shape == (0,)
    assert float(overlap(none, torch.eye(5))) == 0


def test_expected_overlap_is_the_mean_over_random_subspaces():
    fixed = frame(7, 3)
    shared = torch.stack([overlap(fixed, frame(7, 2)) for _ in range(1500)])
    error = shared.std() / math.sqrt(len(shared))
    assert abs(float(shared.mean()) - expected_overlap(3, 2, 7)) < 3 * float(error)


@pytest.mark.parametrize("function", [principal_angles, overlap])
def test_pairs_that_are_refused(function: Callable[[Tensor, Tensor], Tensor]):
    bare = inspect.unwrap(function)
    eye = torch.eye(4)
    with pytest.raises(BadInput, match=r"second basis are not orthonormal.*off by 3"):
        bare(eye, 2 * eye)
    with pytest.raises(BadInput, match="first basis are not orthonormal"):
        bare(torch.full((4, 1), math.nan), eye)
    with pytest.raises(ShapeProblem, match="different spaces"):
        bare(eye, torch.eye(5))
    with pytest.raises(ShapeProblem, match="different spaces"):
        bare(eye, eye.double())
    with pytest.raises(ShapeProblem, match="the second basis is not one"):
        bare(eye, torch.ones(4))
    with pytest.raises(ShapeProblem, match="the first basis is not one"):
        bare(torch.eye(4, dtype=torch.int64), eye)


@pytest.mark.parametrize("sizes", [(-1, 2, 4), (2, 5, 4), (5, 2, 4), (0, 0, 0)], ids=str)
def test_dimensions_that_do_not_fit(sizes: tuple[int, int, int]):
    with pytest.raises(UsageError, match="dimensions do not fit"):
        expected_overlap(*sizes)
