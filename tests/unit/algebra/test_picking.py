"""Indexes mean what NumPy means by them, or are refused by name."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.algebra.picking import position, positions
from headway.errors import UsageError

SIZE = 6


@given(st.slices(SIZE) | st.integers(-SIZE, SIZE - 1) | st.lists(st.integers(-SIZE, SIZE - 1)))
def test_same_entries_and_axes_as_numpy(index: Any):
    numbers = np.arange(SIZE)
    picked, axes = positions(index, SIZE, "row")
    chosen = numbers[picked] if isinstance(picked, slice) else picked.numpy()
    expected = numbers[np.array(index, dtype=int) if isinstance(index, list) else index]
    assert axes == expected.shape
    assert chosen.tolist() == np.ravel(expected).tolist()


BAD: list[tuple[Any, str]] = [
    (SIZE, "out of range; expected an integer from -6 to 5, got 6"),
    ([0, -7], "out of range.*got -7 to 0"),
    (1.5, "cannot pick rows by this"),
    ("abc", "cannot pick rows by this"),
    (None, "cannot pick rows by this"),
    (torch.tensor([0.0, 1.0]), "torch.float32 tensor"),
    (torch.ones(SIZE - 1, dtype=torch.bool), r"mask does not fit; expected shape \(6,\), got \(5,\)"),
    ([True, False], "mask does not fit"),
]


@pytest.mark.parametrize("index, message", BAD, ids=lambda x: repr(x)[:30])
def test_refused(index: Any, message: str):
    # Unwrapped: the signature check of the tests would be first to refuse the wrong types.
    with pytest.raises(UsageError, match=message):
        inspect.unwrap(positions)(index, SIZE, "row")


def test_one_position():
    assert position(np.int64(-2), 5, "row") == 3
    with pytest.raises(UsageError, match="not an integer"):
        inspect.unwrap(position)(1.5, 5, "row")
    with pytest.raises(UsageError, match="the axis is empty"):
        position(0, 0, "row")
