"""The models that ship with the package do what their cards and the papers say."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from headway.behaviour.patterns import pattern_scores
from headway.behaviour.repeated import induction_gain, prefix_matching_scores
from headway.behaviour.windows import record_windows, text_windows
from headway.circuits.bigrams import direct_path_study
from headway.circuits.composition import composition_scores
from headway.model.carried import Carried
from headway.model.weights import Weights
from headway.sources.open import load
from headway.sources.zoo import zoo_path

SEEDS = (0, 1, 2)
NAMES = ("zero-layer", "one-layer", "two-layer")


@cache
def model(name: str) -> Weights:
    return load(f"zoo:{name}")


def carried(weights: Weights) -> Carried:
    assert weights.carried is not None
    return weights.carried


def matching(name: str, seed: int) -> dict[str, float]:
    table = prefix_matching_scores(model(name), length=50, copies=2, seed=seed)
    return {row["head"]: row["prefix_matching"] for row in table.rows()}


@pytest.mark.parametrize("name", NAMES)
def test_each_file_is_small_and_has_a_whole_card(name: str) -> None:
    assert zoo_path(name).stat().st_size <= 8_000_000
    weights = model(name)
    assert weights.tokenizer is not None
    card = carried(weights).card
    assert card["recipe"]["name"] == name and card["recipe"]["seed"] == weights.provenance.seed
    assert card["rebuild"] == f"headway train {name} -o RUN"
    assert card["corpus"]["licence"] == "PSF-2.0" and len(card["corpus"]["hash"]) == 16
    assert set(card["losses"]) == {"training", "validation", "heldout"}


@pytest.mark.parametrize("seed", SEEDS)
def test_two_layer_has_an_induction_head(seed: int) -> None:
    found = matching("two-layer", seed)
    best = max(found, key=lambda head: found[head])
    assert best.startswith("L1") and found[best] >= 0.5
    gain = induction_gain(model("two-layer"), length=50, seed=seed).rows()[0]
    assert gain["induction_gain"] >= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_the_induction_head_reads_the_best_previous_token_head(seed: int) -> None:
    weights = model("two-layer")
    found = matching("two-layer", seed)
    reader = max(found, key=lambda head: found[head])
    pairs = composition_scores(weights, via="K", reader=reader).rows()
    windows = text_windows(carried(weights).heldout, weights.config, limit=16)
    previous = {row["head"]: row["previous_token"] for row in pattern_scores(record_windows(weights, windows)).rows()}
    first_layer = [head for head in previous if head.startswith("L0")]
    assert pairs[0]["writer"] == max(first_layer, key=lambda head: previous[head])
    assert pairs[0]["z"] > 10


@pytest.mark.parametrize("seed", SEEDS)
def test_one_layer_has_no_induction(seed: int) -> None:
    assert max(matching("one-layer", seed).values()) < 0.2
    gain = induction_gain(model("one-layer"), length=50, seed=seed).rows()[0]
    assert gain["induction_gain"] <= 0.2


def test_zero_layer_is_as_good_as_the_best_smoothed_bigram_table() -> None:
    weights = model("zero-layer")
    found = carried(weights)
    counts = found.bigram_table(weights.config.d_vocab)
    table = direct_path_study(weights, counts, found.validation, found.heldout)
    losses = {row["table"]: row["heldout_loss"] for row in table.rows()}
    assert losses["direct path"] <= losses["smoothed bigrams"] + 0.05
    assert losses["smoothed bigrams"] < losses["unigram"]


def test_the_card_tells_the_true_held_out_loss() -> None:
    from headway.sources.trained.training import held_out_loss

    weights = model("one-layer")
    assert held_out_loss(weights, carried(weights).heldout, windows=512) == pytest.approx(
        carried(weights).card["losses"]["heldout"], abs=2e-3
    )
    assert torch.isfinite(weights.W_E).all()
