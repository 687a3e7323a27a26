"""Pooled means and their errors against NumPy on all texts at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headway.behaviour.averages import Averages
from headway.errors import ShapeProblem


def by_hand(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    mean, n = sums.sum() / counts.sum(), len(sums)
    return mean, math.sqrt(n / (n - 1) * ((sums - mean * counts) ** 2).sum()) / counts.sum()


def test_batches_of_any_size_pool_to_the_whole():
    random = np.random.default_rng(3)
    counts = random.integers(0, 9, size=(2, 11)).astype(float)
    sums = 100 + random.normal(size=(2, 11)) * counts
    whole: Averages | None = None
    for part in (slice(0, 1), slice(1, 7), slice(7, 11)):
        batch = Averages.of(torch.tensor(sums[:, part]), torch.tensor(counts[:, part]))
        whole = batch if whole is None else whole + batch
    assert whole is not None and whole.n == 11
    for i in range(2):
        mean, se = by_hand(sums[i], counts[i])
        assert float(whole.mean[i]) == pytest.approx(mean, rel=1e-12)
        assert float(whole.se[i]) == pytest.approx(se, rel=1e-9)


def test_equal_counts_give_the_sd_of_the_means_over_root_n():
    values = torch.tensor([1.0, 4.0, 2.0, 9.0], dtype=torch.float64)
    average = Averages.of(values * 3, torch.full((4,), 3.0))
    assert float(average.se) == pytest.approx(float(values.std() / 2), rel=1e-12)


def test_a_constant_has_no_error_at_all():
    total = Averages.of(torch.full((5,), 0.1), torch.ones(5)) + Averages.of(torch.full((2,), 0.1), torch.ones(2))
    assert float(total.se) == 0


def test_one_text_has_a_mean_and_no_error():
    one = Averages.of(torch.tensor([6.0]), torch.tensor([4.0]))
    assert float(one.mean) == 1.5 and math.isnan(float(one.se))


def test_nothing_counted_is_not_zero():
    none = Averages.of(torch.zeros(3), torch.zeros(3))
    assert math.isnan(float(none.mean)) and math.isnan(float(none.se))


def test_widened_quantities_count_as_zero_in_the_texts_that_lack_them():
    short = Averages.of(torch.tensor([[1.0, 3.0]]), torch.ones(1, 2)).widened(2)
    long = Averages.of(torch.tensor([[5.0, 1.0], [2.0, 4.0]]), torch.ones(1, 2))
    total = short + long
    for i, sums in enumerate(([1.0, 3.0, 5.0, 1.0], [0.0, 0.0, 2.0, 4.0])):
        mean, se = by_hand(np.array(sums), np.ones(4))
        assert (float(total.mean[i]), float(total.se[i])) == pytest.approx((mean, se), rel=1e-12)


def test_no_text_is_refused():
    with pytest.raises(ShapeProblem, match="at least one row"):
        Averages.of(torch.zeros(2, 0), torch.zeros(2, 0))
