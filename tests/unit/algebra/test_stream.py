"""A pass in tiles says what the dense matrix says, whatever the sizes of tiles and factors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from headway.algebra import stream
from headway.algebra.low_rank import LowRank
from headway.algebra.stream import centred, checked_pair, diagonal_ranks, tiles
from headway.errors import HeadwayError, NotFinite, ShapeProblem, UsageError
from support.unchecked import as_users_run_it

row_best: Any = stream.row_best  # so that odd arguments can be written down
histogram: Any = stream.histogram
centre: Any = stream.centred
SHAPES = [(7, 5, 3), (1, 9, 2), (9, 1, 1), (6, 6, 6), (4, 5, 9), (3, 11, 0)]


def product_of(m: int, n: int, r: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> LowRank:
    random = torch.Generator().manual_seed(seed)
    return LowRank(*(torch.randn(size, generator=random, dtype=torch.float64).to(dtype) for size in ((m, r), (r, n))))


@pytest.fixture(params=[(1, 1), (2, 3), (4, 4), (1000, 2)], autouse=True)
def sizes(request: Any, monkeypatch: Any) -> tuple[int, int]:
    monkeypatch.setattr(stream, "ROWS", request.param[0])
    monkeypatch.setattr(stream, "COLUMNS", request.param[1])
    return request.param


@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_put_together_are_the_matrix(shape: tuple[int, int, int], sizes: tuple[int, int]):
    product = product_of(*shape)
    whole = torch.full(product.shape, torch.nan, dtype=torch.float64)
    for row, column, values in tiles(product, rows=sizes[0], columns=sizes[1]):
        whole[row : row + values.shape[0], column : column + values.shape[1]] = values
    torch.testing.assert_close(whole, product.dense(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_best_of_each_row_is_that_of_the_dense_rows(shape: tuple[int, int, int], largest: bool):
    product = product_of(*shape)
    dense, found = product.dense(), row_best(product, 3, largest=largest)
    torch.testing.assert_close(found.values, dense.topk(min(3, shape[1]), largest=largest).values, atol=1e-12, rtol=0)
    torch.testing.assert_close(dense.gather(1, found.columns), found.values, atol=1e-12, rtol=0)
    assert all(len(set(row)) == len(row) for row in found.columns.tolist())


def test_best_of_each_column_by_the_transpose():
    product = product_of(7, 5, 3)
    assert row_best(product.T, 1).columns[:, 0].tolist() == product.dense().argmax(0).tolist()


@pytest.mark.parametrize("n", [1, 2, 9])
def test_ranks_of_the_diagonal_are_those_of_the_dense_columns(n: int):
    product = product_of(n, n, 3)
    dense, found = product.dense(), diagonal_ranks(product)
    torch.testing.assert_close(found.diagonal, dense.diagonal(), atol=1e-12, rtol=0)
    assert found.above.tolist() == (dense > dense.diagonal()).sum(0).tolist()
    assert found.below.tolist() == (dense < dense.diagonal()).sum(0).tolist()
    assert found.tied.tolist() == [1] * n


def test_equal_entries_count_as_neither_above_nor_below():
    found = diagonal_ranks(LowRank(torch.ones(6, 2, dtype=torch.float32), torch.full((2, 6), 1 / 3)))
    assert found.tied.tolist() == [6] * 6
    assert not found.above.any()
    assert not found.below.any()


@pytest.mark.parametrize("shape", SHAPES)
def test_counts_are_those_of_the_dense_entries(shape: tuple[int, int, int]):
    product, edges = product_of(*shape), torch.tensor([-1.0, 0.3, 2.0], dtype=torch.float64)
    dense = product.dense()
    bounds = [-torch.inf, *edges.tolist(), torch.inf]
    expected = [int(((dense >= a) & (dense < b)).sum()) for a, b in pairwise(bounds)]
    counts = histogram(product, edges)
    assert counts.tolist() == expected
    assert int(counts.sum()) == dense.numel()


def test_an_entry_on_an_edge_counts_above_it():
    counts = histogram(LowRank(torch.eye(2), torch.eye(2)), torch.tensor([0.0, 1.0]))
    assert counts.tolist() == [0, 2, 2]


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[2]])
@pytest.mark.parametrize("axis", [0, 1])
def test_centred_is_the_dense_matrix_centred_and_no_rank_more(shape: tuple[int, int, int], axis: int):
    product = product_of(*shape)
    dense, found = product.dense(), centred(product, axis)
    torch.testing.assert_close(found.dense(), dense - dense.mean(axis, keepdim=True), atol=1e-12, rtol=0)
    assert found.rank == product.rank


def test_progress_goes_up_to_the_end():
    for pass_over in (
        lambda p, tell: row_best(p, 1, progress=tell),
        lambda p, tell: diagonal_ranks(p, progress=tell),
        lambda p, tell: histogram(p, torch.tensor([0.0]), progress=tell),
    ):
        told: list[tuple[int, int]] = []
        pass_over(product_of(6, 6, 2), lambda *step, told=told: told.append(step))
        assert told == sorted(set(told))
        assert told[-1] == (6, 6)


def test_a_chain_of_factors_and_half_precision_pass_too():
    product = LowRank(torch.randn(6, 4), torch.randn(4, 2), torch.randn(2, 5).bfloat16().float())
    assert row_best(product, 1).columns[:, 0].tolist() == product.dense().argmax(1).tolist()


ODD: list[tuple[Any, Any, str]] = [
    (ShapeProblem, lambda: tiles(LowRank(torch.ones(2, 3, 1), torch.ones(1, 3))), r"LowRank \[m, n\], got \(2, 3, 3\)"),
    (ShapeProblem, lambda: row_best(torch.ones(2, 2), 1), "expected a LowRank"),
    (NotFinite, lambda: tiles(LowRank(torch.tensor([[torch.nan]]), torch.ones(1, 1))), "NaN or infinity"),
    (NotFinite, lambda: row_best(LowRank(torch.ones(1, 1), torch.tensor([[torch.inf]])), 1), "NaN or infinity"),
    (UsageError, lambda: tiles(product_of(2, 2, 1), rows=0), "size of a tile"),
    (UsageError, lambda: row_best(product_of(2, 2, 1), 0), "k, entries of each row"),
    (UsageError, lambda: row_best(product_of(2, 2, 1), True), "k, entries of each row"),
    (ShapeProblem, lambda: diagonal_ranks(product_of(2, 3, 1)), "square"),
    (UsageError, lambda: histogram(product_of(2, 2, 1), torch.tensor([1.0, 1.0])), "rising"),
    (NotFinite, lambda: histogram(product_of(2, 2, 1), torch.tensor([0.0, torch.inf])), "finite"),
    (ShapeProblem, lambda: histogram(product_of(2, 2, 1), [0.0, 1.0]), "not a tensor"),
    (UsageError, lambda: centred(product_of(2, 2, 1), 2), "axis to centre over"),
    (UsageError, lambda: centred(product_of(2, 2, 1), True), "axis to centre over"),
    (UsageError, lambda: centre(product_of(2, 2, 1), torch.ones(2)), "axis to centre over"),
    (ShapeProblem, lambda: centre(torch.ones(2, 2), 0), "what to centre; expected a LowRank"),
    (UsageError, lambda: row_best(product_of(2, 2, 1), 1, largest=1), "largest; expected True or False"),
]


@pytest.mark.parametrize(("kind", "call", "words"), ODD, ids=[words for _, _, words in ODD])
def test_odd_input_is_one_typed_sentence(kind: type[HeadwayError], call: Any, words: str):
    with as_users_run_it(), pytest.raises(kind, match=words):
        call()


def test_a_pair_is_of_the_product():
    left, right = checked_pair(LowRank(torch.randn(5, 3), torch.randn(3, 2), torch.randn(2, 6)))
    assert (left.shape, right.shape) == ((5, 2), (2, 6))
