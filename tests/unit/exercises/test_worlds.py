"""The streams of exercise 2: contents of one length after projection, waves of falling amplitude, nothing shared."""

from __future__ import annotations

import math

import pytest
import torch

from headway.exercises.worlds import HIDDEN, VISIBLE, principal_components, world

BOTH = pytest.mark.parametrize("hidden", [False, True], ids=["visible", "hidden"])


@BOTH
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_contents_have_length_one_and_keep_apart(hidden: bool, seed: int):
    there = world(hidden=hidden, seed=seed)
    contents = there.contents @ there.components.T
    assert len(contents) == there.spectrum.n_tokens_longer
    assert torch.allclose(contents.norm(dim=1), torch.ones(len(contents)).double(), atol=1e-12)
    cosines = contents @ contents.T - 2 * torch.eye(len(contents)).double()
    shown = cosines[: there.spectrum.n_tokens, : there.spectrum.n_tokens]
    assert cosines.max() <= 0.7
    assert cosines.max() == shown.max()  # more tokens bring none nearer: the window of 2d stays
    assert there.contents.norm(dim=1).min() > 1.05  # there is more content than the components see


def test_worlds_differ_in_everything_that_could_be_remembered():
    here, there = world(hidden=False, seed=0), world(hidden=True, seed=0)
    assert here.space.d_model != there.space.d_model
    assert set(VISIBLE.alpha).isdisjoint(HIDDEN.alpha) and VISIBLE.n != HIDDEN.n
    assert not torch.equal(world(hidden=False, seed=1).contents, here.contents)
    assert world(hidden=False, seed=0) is here
    assert VISIBLE.alpha[1] * 16 == pytest.approx(2 * math.pi)  # the pair whose alias lies beyond what is shown
    assert HIDDEN.trained and not VISIBLE.trained


def test_components_are_those_of_the_covariance():
    table = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 3
    centred = table - table.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    rows = principal_components(table, 2)
    assert values.argsort(descending=True)[0] == 4
    assert torch.allclose((rows @ vectors[:, [4, 3]]).abs(), torch.eye(2).double(), atol=1e-10)
