"""Pictures as arrays: what is wanted is what the rule says, yours is a softmax, scales do not show."""

from __future__ import annotations

import numpy as np
import torch

from headway.exercises.givens import given
from headway.exercises.kernel import kernel_of
from headway.exercises.pictures_data import example_tokens, kernel_picture, pattern_picture
from headway.exercises.predicates.attention import pairs
from headway.exercises.references import reference
from headway.exercises.rules import earlier_copy, same_token
from headway.exercises.scoring import Head, states_of

GIVEN = given("2a")
HEAD = Head(*reference("2a", GIVEN).values())


def test_a_kernel_is_drawn_from_zero_to_one_whatever_its_scale():
    g = given("2c")
    rows = pairs(g, 0, 1)
    yours, wanted = (kernel_of(g, Head(s * rows, rows)) for s in (1e-3, 7.0))
    picture = kernel_picture(yours, wanted, 0, g.n)
    assert (picture.yours.min(), picture.yours.max(), picture.yours[0]) == (0.0, 1.0, 1.0)
    assert abs(picture.difference).max() < 1e-9
    assert picture.columns == tuple(map(str, range(g.n)))
    zero = kernel_of(g, Head(0 * rows, rows))
    assert kernel_picture(zero, wanted, 0, g.n).yours.tolist() == [0.0] * g.n


def test_a_pattern_wants_equal_shares_on_targets():
    tokens = (0, 1, 0, 1, 1)
    picture = pattern_picture(states_of(GIVEN, HEAD), same_token(), tokens)
    assert picture.wanted[4, :5].tolist() == [0, 1 / 3, 0, 1 / 3, 1 / 3]
    assert np.isnan(picture.wanted[0, 1:]).all()
    lower = np.tril(np.ones((5, 5), bool))
    assert np.allclose(np.where(lower, picture.yours, 0).sum(1), 1)
    assert picture.rows == ("0:0", "1:1", "2:0", "3:1", "4:1")


def test_a_query_without_a_target_has_no_wanted_row():
    picture = pattern_picture(states_of(GIVEN, HEAD), earlier_copy(), (0, 1, 0))
    assert np.isnan(picture.wanted[1]).all() and np.isnan(picture.difference[1]).all()
    assert picture.wanted[2, 0] == 1.0
    assert np.isfinite(picture.yours[1, :2]).all()


def test_the_example_has_copies_and_fits_the_vocabulary():
    tokens = example_tokens(12, 8)
    assert len(set(tokens)) < len(tokens) == 10
    assert max(example_tokens(4, 2)) < 2 and len(example_tokens(4, 2)) == 4
    assert torch.tensor(tokens).max() < 8
