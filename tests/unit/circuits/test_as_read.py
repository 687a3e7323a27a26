"""Tokens as a layer reads them against a norm written out for one token, and against what heads of a run write."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.circuits.as_read import tokens_as_read
from headway.errors import UsageError
from headway.model.forward import run
from headway.model.process import processed
from support.placeless import silent_earlier, without_positions
from support.random_models import FEATURES, feature_name, random_weights
from support.unchecked import as_users_run_it

WITH_HEADS = [features for features in FEATURES if features.get("n_layers") != 0]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_one_token_at_a_time(norm: str, layer: int):
    weights = random_weights(norm=norm)
    read = tokens_as_read(weights, layer)
    for token in range(weights.config.d_vocab):
        x = weights.W_E[:, token]
        if norm == "layer":
            assert weights.norm_gain is not None and weights.norm_bias is not None
            x = torch.nn.functional.layer_norm(
                x, x.shape, weights.norm_gain[layer], weights.norm_bias[layer], weights.config.norm_eps
            )
        elif norm == "rms":
            assert weights.norm_gain is not None and weights.norm_bias is not None
            x = torch.nn.functional.rms_norm(x, x.shape, weights.norm_gain[layer], weights.config.norm_eps)
            x = x + weights.norm_bias[layer]
        assert torch.allclose(read[:, token], x, atol=1e-9, rtol=0)


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", WITH_HEADS, ids=feature_name)
def test_heads_on_one_token_write_their_values_of_it(features: dict[str, Any], processing: str):
    weights = processed(silent_earlier(without_positions(random_weights(**features))), processing)
    layer = weights.config.n_layers - 1
    written = run(weights, torch.arange(weights.config.d_vocab)[:, None], results=True).results
    assert written is not None
    read = tokens_as_read(weights, layer)
    for number in range(weights.config.n_heads):
        head = weights.head(f"L{layer}H{number}")
        values = head.W_V @ read
        values = values if head.b_V is None else values + head.b_V[:, None]
        assert torch.allclose((head.W_O @ values).T, written[layer][:, number, 0], atol=1e-9, rtol=0)


def test_half_precision_is_read_in_float32():
    assert tokens_as_read(random_weights(norm="layer", dtype=torch.float16), 0).dtype == torch.float32


@pytest.mark.parametrize("layer", [2, -1, 1.0, "0", True])
def test_a_layer_that_does_not_exist(layer: Any):
    with as_users_run_it(), pytest.raises(UsageError, match="layer"):
        tokens_as_read(random_weights(), layer)


def test_a_model_without_layers_has_none_to_read_in():
    with pytest.raises(UsageError, match="layer"):
        tokens_as_read(random_weights(n_layers=0, n_heads=0, n_kv_heads=0), 0)
