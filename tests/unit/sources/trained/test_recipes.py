from __future__ import annotations

import json
import math
from typing import Any

import pytest

from headway.errors import ConfigProblem, UnknownName
from headway.sources.trained.recipes import RECIPES, Recipe, recipe
from support.unchecked import as_users_run_it


@pytest.mark.parametrize("name", list(RECIPES))
def test_the_packaged_recipes(name: str):
    found = recipe(name)
    config = found.config(bos=0)
    assert config.n_layers == {"zero-layer": 0, "one-layer": 1, "two-layer": 2}[name]
    assert (config.d_vocab, config.n_ctx, config.bos, config.positions) == (1024, 256, 0, "shortformer")
    assert Recipe.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_steps_and_rates():
    found = recipe("two-layer", tokens=1000 * 4 * 256, rate=1e-3, decay=0.3)
    assert found.steps == 1000
    assert found.rate_at(0) == found.rate_at(699) == 1e-3
    assert found.rate_at(850) == pytest.approx(0.5e-3) and found.rate_at(1000) == 0
    assert recipe("two-layer", tokens=1).steps == 1
    assert recipe("two-layer", decay=0.0).rate_at(10**9) == recipe("two-layer").rate


def test_names_and_fields_are_checked():
    with pytest.raises(UnknownName, match="Did you mean two-layer"):
        recipe("two_layer")
    with pytest.raises(ConfigProblem, match="unknown recipe fields; got momentum"):
        Recipe.from_dict({"name": "x", "n_layers": 1, "momentum": 0.9})
    with pytest.raises(ConfigProblem, match="unknown recipe fields; got momentum"):
        recipe("two-layer", momentum=0.9)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("n_layers", "two"), ("n_heads", 0), ("tokens", -5), ("tokens", 1e6), ("batch", True), ("n_ctx", None)),
        *(("seed", -1), ("seed", 2**63), ("snapshots", -1), ("rate", "fast"), ("rate", math.nan), ("rate", math.inf)),
        *(("decay", 1.5), ("embed_sd", -0.1), ("betas", (0.9,)), ("betas", 0.9), ("betas", [0.9, 1.0])),
    ],
)
def test_fields_of_another_kind_or_out_of_range(field: str, value: Any):
    with as_users_run_it(), pytest.raises(ConfigProblem, match=f"recipe {field}; expected"):
        recipe("two-layer", **{field: value})
