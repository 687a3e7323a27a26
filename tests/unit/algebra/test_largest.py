"""The k best entries are those of the dense matrix, in whatever precision tiles are multiplied and however they prune."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.algebra import largest as module
from headway.algebra.largest import top_entries
from headway.algebra.low_rank import LowRank
from headway.errors import NotFinite, ShapeProblem, UsageError
from support.unchecked import as_users_run_it


def random_product(
    m: int, n: int, r: int, *, spread: float = 0.0, seed: int = 0, dtype: Any = torch.float64
) -> LowRank:
    random = torch.Generator().manual_seed(seed)
    draw = lambda *size: torch.randn(size, generator=random, dtype=torch.float64)  # noqa: E731
    left, right = draw(m, r) * (spread * draw(m, 1)).exp(), draw(r, n) * (spread * draw(1, n)).exp()
    return LowRank(left.to(dtype), right.to(dtype))


def dense_best(product: LowRank, k: int, largest: bool) -> list[tuple[float, int, int]]:
    """Every entry sorted: the plain way."""
    left, right = (t.double() for t in product.pair())
    every = [
        (value, i, j) for i, row in enumerate((left[:, None] * right.T).sum(-1).tolist()) for j, value in enumerate(row)
    ]
    return sorted(every, key=lambda e: (-e[0] if largest else e[0], e[1], e[2]))[:k]


def as_list(found: module.Entries) -> list[tuple[float, int, int]]:
    return list(zip(found.values.tolist(), found.rows.tolist(), found.columns.tolist(), strict=True))


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def coarse(request: Any, monkeypatch: Any) -> torch.dtype:
    monkeypatch.setattr(module, "_coarse", lambda device: request.param)
    return request.param


def small_tiles(monkeypatch: Any, rows: int, columns: int) -> None:
    monkeypatch.setattr(module, "_ROWS", rows)
    monkeypatch.setattr(module, "_COLUMNS", columns)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("shape", "tile"), [((40, 31, 5), (8, 4)), ((1, 50, 3), (8, 16)), ((33, 6, 8), (5, 5))])
def test_the_best_entries_of_the_dense_matrix(
    coarse: torch.dtype, monkeypatch: Any, shape: Any, tile: Any, largest: bool, spread: float, dtype: torch.dtype
):
    small_tiles(monkeypatch, *tile)
    product = random_product(*shape, spread=spread, dtype=dtype)
    for k in (1, 3, 20, 10_000):
        found, expected = as_list(top_entries(product, k, largest=largest)), dense_best(product, k, largest)
        assert [e[1:] for e in found] == [e[1:] for e in expected]
        assert [e[0] for e in found] == pytest.approx([e[0] for e in expected], rel=1e-12)


@given(st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=1, max_size=9), st.integers(1, 30))
def test_ties_are_settled_by_row_then_column(numbers: list[list[int]], k: int):
    left = torch.tensor(numbers, dtype=torch.float64)
    product = LowRank(left, left.flip(0).T)
    assert as_list(top_entries(product, k)) == dense_best(product, k, True)


def test_the_basis_between_the_factors_changes_nothing_but_rounding(monkeypatch: Any):
    small_tiles(monkeypatch, 8, 8)
    product = random_product(60, 50, 6)
    stretch = torch.diag(torch.tensor([1e6, 1.0, 1e-6, 3.0, 1e3, 1e-3], dtype=torch.float64))
    left, right = product.pair()
    other = LowRank(left @ stretch, stretch.inverse() @ right)
    found, same = top_entries(product, 25), top_entries(other, 25)
    assert torch.equal(found.rows * 50 + found.columns, same.rows * 50 + same.columns)


def test_factors_without_full_rank_and_zero_products():
    left = torch.zeros(5, 4, dtype=torch.float64)
    left[2, 1] = 1
    product = LowRank(left, torch.arange(12.0, dtype=torch.float64).view(4, 3))
    assert as_list(top_entries(product, 4)) == [(5.0, 2, 2), (4.0, 2, 1), (3.0, 2, 0), (0.0, 0, 0)]
    assert as_list(top_entries(LowRank(left * 0, torch.ones(4, 3, dtype=torch.float64)), 4)) == [
        (0.0, 0, 0), (0.0, 0, 1), (0.0, 0, 2), (0.0, 1, 0)
    ]  # fmt: skip


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_values_that_overflow_float32_products_are_right(scale: float):
    product = random_product(20, 30, 4, dtype=torch.float32)
    left, right = product.pair()
    found, big = top_entries(product, 5), top_entries(LowRank(left * scale, right * scale), 5)
    assert found.rows.tolist() == big.rows.tolist()
    torch.testing.assert_close(big.values / scale / scale, found.values, rtol=1e-6, atol=0)


def test_many_entries_within_rounding_of_the_best_are_settled_finely(coarse: torch.dtype, monkeypatch: Any):
    monkeypatch.setattr(module, "_AT_ONCE", 50)
    product = LowRank(
        torch.ones(40, 1, dtype=torch.float64), 1 + 1e-5 * torch.arange(30, dtype=torch.float64).flip(0)[None]
    )
    assert top_entries(product, 45).columns.tolist() == [0] * 40 + [1] * 5


def test_tiles_that_cannot_hold_one_are_left_out(monkeypatch: Any):
    small_tiles(monkeypatch, 4, 4)
    made: list[Any] = []
    tile = module._Tile
    monkeypatch.setattr(module, "_Tile", lambda *a, **k: made.append(a[2]) or tile(*a, **k))
    product = random_product(40, 40, 3, spread=1.5)
    top_entries(product, 2)
    assert 0 < len(made) < 40
    assert made[0] == (0, 0)


def test_a_looser_product_setting_of_torch_is_allowed_for():
    assert module._rounding(torch.float32, 8) < 1e-5
    torch.set_float32_matmul_precision("medium")
    try:
        assert module._rounding(torch.float32, 8) > 2.0**-8
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rounding_bounds_what_products_are_off_by(dtype: torch.dtype):
    a, b = (t.double() for t in random_product(200, 300, 40).pair())
    got = (a.to(dtype) @ b.to(dtype)).double()
    off = ((got - a @ b).abs() / (a.norm(dim=1)[:, None] * b.norm(dim=0))).max()
    assert 0 < float(off) < module._rounding(dtype, 40)


def test_progress_and_odd_input():
    told: list[tuple[int, int]] = []
    product = random_product(9, 9, 2)
    top_entries(product, 1, progress=lambda *step: told.append(step))
    assert told[-1] == (1, 1)
    assert as_list(top_entries(product, 0)) == []
    with as_users_run_it():
        with pytest.raises(UsageError, match="number of entries"):
            top_entries(product, -1)
        with pytest.raises(ShapeProblem, match=r"Pick one with \.at"):
            top_entries(LowRank(torch.ones(2, 3, 1), torch.ones(1, 4)), 1)
        with pytest.raises(UsageError, match="largest; expected True or False"):
            top_entries(product, 1, largest=torch.ones(2))  # pyright: ignore[reportArgumentType]
        with pytest.raises(NotFinite, match="NaN"):
            top_entries(LowRank(torch.full((3, 1), torch.nan), torch.ones(1, 4)), 1)
