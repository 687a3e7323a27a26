"""Patterns come in from recordings as they are and from other tools checked; every check can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headway.behaviour.observed import Observed
from headway.errors import BadInput, NotFinite, ShapeProblem
from headway.ids import HeadId
from headway.model.forward import run
from support.random_models import padding, random_tokens, random_weights

TOKENS = [[3, 1, 2], [3, 2, 2]]


def uniform(layers: int = 2, batch: int = 2, heads: int = 3, n: int = 3) -> np.ndarray:
    rows = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    return np.broadcast_to(rows, (layers, batch, heads, n, n)).copy()


def test_a_recording_is_taken_as_it_is():
    weights = random_weights()
    keep = padding(3, 9, "left")
    recording = run(weights, random_tokens(weights), keep=keep)
    seen = Observed.of(recording)
    assert seen.patterns is recording.patterns and seen.tokens is recording.tokens and seen.keep is keep
    assert seen.bos == weights.config.bos
    assert seen.head_ids == list(weights.head_ids())
    assert Observed.of(seen) is seen


def test_arrays_of_any_kind_come_in():
    array = uniform()
    for patterns in (array, list(array), [torch.from_numpy(a).float() for a in array], array.tolist()):
        seen = Observed.from_arrays(patterns, np.array(TOKENS), bos=3)
        assert len(seen.patterns) == 2 and seen.head_ids[-1] == HeadId(1, 2)
        assert bool(seen.real.all())


def test_padded_rows_may_be_empty():
    array = uniform()
    array[:, 0, :, 0] = 0
    seen = Observed.from_arrays(array, TOKENS, keep=[[False, True, True], [True, True, True]])
    assert seen.real.tolist() == [[False, True, True], [True, True, True]]


@pytest.mark.parametrize(
    ("tokens", "keep", "shape", "message"),
    [
        ([3, 1, 2], None, (2, 2, 3, 3, 3), "batch, pos"),
        ([[3.0, 1.0, 2.0]], None, (2, 1, 3, 3, 3), "whole-number ids"),
        (TOKENS, None, (2, 3, 3, 3, 3), "patterns of layer 0.*batch=2"),
        (TOKENS, None, (2, 2, 3, 3, 4), "src=3"),
        (TOKENS, None, (2, 2, 3, 3), "One|one array a layer"),
        (TOKENS, [[1, 1, 1], [1, 1, 1]], (2, 2, 3, 3, 3), "bool"),
        (TOKENS, [[True, True]], (2, 2, 3, 3, 3), "like tokens"),
        (TOKENS, [[True, True, True], [True, False, True]], (2, 2, 3, 3, 3), "gap inside row 1"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(tokens: Any, keep: Any, shape: tuple[int, ...], message: str):
    with pytest.raises(ShapeProblem, match=message):
        Observed.from_arrays(np.zeros(shape), tokens, keep=keep)


def test_layers_must_agree_on_their_heads():
    with pytest.raises(ShapeProblem, match=r"patterns of layer 1.*head=3"):
        Observed.from_arrays([uniform()[0], uniform(heads=2)[0]], TOKENS)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: a.__setitem__((1, 0, 0, 2, 1), np.nan), NotFinite, "layer 1"),
        (lambda a: a.__setitem__((0, 0, 0, 2, 1), -0.1), BadInput, "entries from -0.1"),
        (lambda a: a.__imul__(2), BadInput, "row sums up to 2"),
        (lambda a: a.__setitem__((0, 0, 0, 0), [0.5, 0.5, 0.0]), BadInput, "swapped"),
    ],
)
def test_arrays_that_are_not_causal_attention_are_refused(change: Any, error: type[Exception], message: str):
    array = uniform()
    change(array)
    with pytest.raises(error, match=message):
        Observed.from_arrays(array, TOKENS)


def test_transposed_patterns_are_refused():
    with pytest.raises(BadInput):
        Observed.from_arrays(uniform().swapaxes(-1, -2), TOKENS)


def test_whole_numbers_are_not_patterns():
    with pytest.raises(ShapeProblem, match="floating-point"):
        Observed.from_arrays(np.zeros((1, 2, 1, 3, 3), dtype=int), TOKENS)
