"""The frozen model's pieces against what the forward pass recorded of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.errors import UsageError
from headway.ids import HeadId
from headway.model.forward import run
from headway.paths.frozen import Frozen, highest_order
from support.random_models import FEATURES, feature_name, padding, random_tokens, random_weights


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_pieces_are_those_of_the_recording(features: dict[str, Any], side: str):
    weights = random_weights(**features)
    recording = run(weights, random_tokens(weights, n=7), keep=padding(3, 7, side), results=True)
    frozen = Frozen(recording)
    assert recording.results is not None
    for layer, result in enumerate(recording.results):
        stream = recording.streams[layer]
        assert (frozen.layer(layer, stream) - result.sum(1)).abs().max() < 1e-9
        chosen = torch.arange(weights.config.n_heads) % 2 == 0
        assert (frozen.layer(layer, stream, chosen) - result[:, chosen].sum(1)).abs().max() < 1e-9
        for h in range(weights.config.n_heads):
            at, head, beta = HeadId(layer, h), weights.head(HeadId(layer, h)), frozen.beta(layer)
            constant = head.ov_bias + (0 if beta is None else head.W_O @ head.W_V @ beta)
            assert (frozen.through(at, stream) + frozen.row_sums(at) * constant - result[:, h]).abs().max() < 1e-9
    logits = frozen.unembed(recording.streams[-1]) + frozen.final_constant()
    assert (logits - recording.logits).abs().max() < 1e-9


@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_reading_and_passing_are_linear(norm: str):
    weights = random_weights(norm=norm)
    recording = run(weights, random_tokens(weights))
    frozen = Frozen(recording)
    a, b = torch.randn(2, *recording.streams[0].shape, dtype=torch.float64)
    for f in (lambda x: frozen.read(1, x), lambda x: frozen.through(HeadId(1, 2), x), frozen.unembed):
        assert (f(2 * a - 3 * b) - 2 * f(a) + 3 * f(b)).abs().max() < 1e-9


def test_row_sums_are_zero_where_there_is_nothing_to_attend_to():
    weights, keep = random_weights(), padding(3, 9, "both")
    frozen = Frozen(run(weights, random_tokens(weights), keep=keep))
    assert torch.allclose(frozen.row_sums(HeadId(0, 1))[..., 0], keep.double(), atol=1e-12)


def test_highest_order():
    weights = random_weights()
    recording = run(weights, random_tokens(weights))
    assert highest_order(recording, None) == highest_order(recording, 2) == 2
    assert highest_order(recording, 0) == 0
    with pytest.raises(UsageError, match="one head of a layer"):
        highest_order(recording, 5)
