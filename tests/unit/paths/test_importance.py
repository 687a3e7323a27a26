"""Losses by order against the recipe of the paper, run by hand, one window and one token at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from headway.behaviour.averages import Averages
from headway.errors import TextProblem, TokenProblem, UsageError
from headway.model.forward import logits, run
from headway.model.weights import Weights
from headway.paths.importance import _rows, term_importance
from support.random_models import FEATURES, feature_name, random_tokens, random_weights


def loss_of(predicted: torch.Tensor, window: torch.Tensor) -> float:
    """Mean of -ln softmax at the next token, with the softmax written out."""
    losses = []
    for i, target in enumerate(window[1:].tolist()):
        exps = [math.exp(v) for v in predicted[i].tolist()]
        losses.append(-math.log(exps[target] / sum(exps)))
    return sum(losses) / len(losses)


def by_hand(weights: Weights, window: torch.Tensor) -> list[float]:
    """Loss at each step of the paper's recipe, for one window."""
    tokens = window[None, :-1]
    recording = run(weights, tokens)
    frozen = recording.frozen(norms=weights.config.norm != "none")
    zero = torch.zeros_like(recording.streams[0])
    step = run(weights, tokens, freeze=frozen, edit={f"{head}.result": zero for head in weights.head_ids()})
    losses = [loss_of(step.logits[0], window)]
    for _ in range(weights.config.n_layers):
        edit = {f"{head}.V": step.streams[head.layer] for head in weights.head_ids()}
        step = run(weights, tokens, freeze=frozen, edit=edit)
        losses.append(loss_of(step.logits[0], window))
    return losses


@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_rows_are_the_papers_recipe(features: dict[str, Any]):
    weights = random_weights(**features)
    windows = random_tokens(weights, rows=5, n=8)
    table = term_importance(weights, windows, rows=2)
    losses = np.array([by_hand(weights, window) for window in windows])
    n_layers, n_heads, d_vocab = (getattr(weights.config, a) for a in ("n_layers", "n_heads", "d_vocab"))
    drops = np.concatenate((np.full((5, 1), math.log(d_vocab)), losses[:, :-1]), axis=1) - losses
    assert [row["order"] for row in table.rows()] == list(range(n_layers + 1))
    for k, row in enumerate(table.rows()):
        terms = math.comb(n_layers, k) * n_heads**k
        assert row["n_terms"] == terms
        assert row["loss"] == pytest.approx(losses[:, k].mean(), abs=1e-9)
        assert row["reduction"] == pytest.approx(drops[:, k].mean(), abs=1e-9)
        assert row["reduction_se"] == pytest.approx(drops[:, k].std(ddof=1) / math.sqrt(5), abs=1e-9)
        assert row["reduction_per_term"] == pytest.approx(drops[:, k].mean() / terms, abs=1e-9)
    clean = np.mean([loss_of(logits(weights, window[None, :-1])[0], window) for window in windows])
    assert table.meta["clean_loss"] == pytest.approx(clean, abs=1e-9)
    assert table.meta["remainder"] < 1e-9
    assert abs(table.meta["unexplained"]) < 1e-9


def test_reductions_add_up_to_what_the_model_knows():
    weights = random_weights(norm="layer")
    table = term_importance(weights, random_tokens(weights, rows=4))
    total = sum(row["reduction"] for row in table.rows())
    assert total == pytest.approx(math.log(13) - table.meta["clean_loss"], abs=1e-9)


def test_a_truncated_expansion_reports_what_is_left():
    weights = random_weights()
    windows = random_tokens(weights, rows=4)
    table, full = term_importance(weights, windows, max_order=1), term_importance(weights, windows)
    assert table.rows() == full.rows()[:2]
    left = full.rows()[2]["reduction"]
    assert table.meta["unexplained"] == pytest.approx(left, abs=1e-9)
    assert table.meta["remainder"] > 1e-3
    assert table.provenance.options["max_order"] == 1


def test_a_model_that_says_nothing_takes_nothing_off():
    weights = random_weights(biases="none")
    weights = weights.replace(W_U=torch.zeros_like(weights.W_U))
    for row in term_importance(weights, random_tokens(weights)).rows():
        assert row["loss"] == pytest.approx(math.log(13), abs=1e-12)
        assert row["reduction"] == pytest.approx(0, abs=1e-12)
        assert row["reduction_se"] == pytest.approx(0, abs=1e-12)


def test_progress_and_batches_do_not_change_the_answer():
    weights = random_weights(norm="rms", positions="rotary")
    windows, seen = random_tokens(weights, rows=5), []
    one = term_importance(weights, windows, rows=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 5) for i in range(1, 6)]
    for a, b in zip(one.rows(), term_importance(weights, windows, rows=8).rows(), strict=True):
        assert a == pytest.approx(b, abs=1e-12)


def test_one_window_has_no_standard_error():
    weights = random_weights()
    for row in term_importance(weights, random_tokens(weights, rows=1)).rows():
        assert row["reduction_se"] is None
        assert row["flag"] == "one window: no standard error"


def test_orders_without_paths_and_counts_beyond_sixty_four_bits():
    nothing = Averages.of(torch.zeros(41, 2), torch.ones(2))
    rows = _rows(random_weights(n_layers=2, n_heads=0, n_kv_heads=0), [1.0, 1.0, 1.0], nothing)
    assert [row["n_terms"] for row in rows] == [1, 0, 0]
    assert rows[1]["reduction_per_term"] is None and rows[1]["flag"] == "no path of this order"
    large = random_weights(n_layers=40, n_heads=40, n_kv_heads=40, d_model=1, d_head=1)
    rows = _rows(large, [1.0] * 41, nothing)
    assert rows[20]["n_terms"] == pytest.approx(math.comb(40, 20) * 40.0**20)
    assert {type(row["n_terms"]) for row in rows} == {float}


def test_provenance_names_the_weights():
    weights = random_weights()
    assert term_importance(weights, random_tokens(weights)).provenance.weights == weights.content_hash()


def test_bad_windows_are_refused():
    weights = random_weights()
    with pytest.raises(TextProblem, match="one to read, one to predict"):
        term_importance(weights, torch.zeros(3, 1, dtype=torch.long))
    with pytest.raises(TokenProblem, match="d_vocab-1=12"):
        term_importance(weights, torch.tensor([[0, 1, 13]]))
    with pytest.raises(UsageError, match="n_layers=2"):
        term_importance(weights, random_tokens(weights), max_order=3)
    with pytest.raises(UsageError, match="whole number of rows >= 1"):
        term_importance(weights, random_tokens(weights), rows=0)
