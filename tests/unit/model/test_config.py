from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from headway.errors import ConfigProblem, NotBuilt
from headway.model.config import ModelConfig
from support.unchecked import as_users_run_it

SIZES: dict[str, Any] = {"n_layers": 2, "n_heads": 6, "d_model": 10, "d_head": 5, "d_vocab": 7, "n_ctx": 8}


def test_defaults():
    c = ModelConfig(**SIZES)
    assert c.n_kv_heads == 6 and c.group == 1
    assert math.isclose(c.attn_scale, 5**-0.5)
    assert (c.norm, c.positions, c.rotary_dims, c.bos) == ("none", "none", 0, None)
    assert ModelConfig(**SIZES, positions="rotary").rotary_dims == 4, "an even number of dims"
    assert ModelConfig(**SIZES, n_kv_heads=2).group == 3
    none: dict[str, Any] = {**SIZES, "n_layers": 0, "n_heads": 0}
    assert ModelConfig(**none).group == 1


@pytest.mark.parametrize("scale", [1, 1.0, 0.0, -2.5])
def test_any_finite_scale_is_kept(scale: float):
    with as_users_run_it():
        assert ModelConfig(**SIZES, attn_scale=scale).attn_scale == float(scale)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"n_layers": -1}, "n_layers"),
        ({"n_heads": 1.5}, "n_heads"),
        ({"d_model": 0}, "d_model"),
        ({"d_head": True}, "d_head"),
        ({"d_vocab": "7"}, "d_vocab"),
        ({"n_ctx": 0}, "n_ctx"),
        ({"n_kv_heads": 4}, "divisor of n_heads=6"),
        ({"n_kv_heads": 0}, "divisor"),
        ({"attn_scale": math.nan}, "attn_scale"),
        ({"attn_scale": math.inf}, "finite"),
        ({"attn_scale": "1"}, "attn_scale"),
        ({"norm": "batch"}, "none, layer, rms"),
        ({"norm_eps": -1e-5}, "norm_eps >= 0"),
        ({"positions": "alibi"}, "shortformer"),
        ({"position_base": 1.0}, "position_base > 1"),
        ({"position_amplitude": None}, "position_amplitude"),
        ({"positions": "rotary", "rotary_dims": 3}, "an even number <= d_head=5"),
        ({"positions": "rotary", "rotary_dims": 6}, "rotary_dims"),
        ({"positions": "rotary", "rotary_pairs": "both"}, "halves, adjacent"),
        ({"rotary_dims": 2}, "without positions='rotary'"),
        ({"bos": 7}, "below d_vocab=7"),
        ({"bos": -1}, "bos"),
    ],
)
def test_impossible_fields_are_refused(changes: dict[str, Any], word: str):
    with as_users_run_it(), pytest.raises(ConfigProblem, match=word):
        ModelConfig(**{**SIZES, **changes})


@pytest.mark.parametrize(
    "feature",
    [{"d_mlp": 40}, {"attn_softcap": 50.0}, {"logit_softcap": 30.0}, {"qk_norm": True}, {"window": 128}],
)
def test_features_of_later_versions_are_refused_by_name(feature: dict[str, Any]):
    with pytest.raises(NotBuilt, match=next(iter(feature))):
        ModelConfig(**SIZES, **feature)


def test_round_trip_through_json():
    c = ModelConfig(**SIZES, n_kv_heads=3, positions="rotary", rotary_dims=2, norm="rms", attn_scale=0.3, bos=1)
    assert ModelConfig.from_dict(json.loads(json.dumps(c.to_dict()))) == c


def test_an_unknown_field_is_refused_with_a_near_name():
    with pytest.raises(ConfigProblem, match=r"'n_layer'.*Did you mean n_layers"):
        ModelConfig.from_dict({**SIZES, "n_layer": 2})


def test_missing_fields_are_named():
    with pytest.raises(ConfigProblem, match="no d_model"):
        ModelConfig.from_dict({name: value for name, value in SIZES.items() if name != "d_model"})


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig(**SIZES).n_layers = 3  # type: ignore[misc]
