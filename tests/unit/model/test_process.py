from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.errors import UsageError
from headway.model.forward import logits, run
from headway.model.process import centre_reads, fold_norms, fold_value_biases, processed, untie
from support.naive import naive_run
from support.random_models import FEATURES, feature_name, padding, random_tokens, random_weights

EVERY = pytest.mark.parametrize("features", FEATURES, ids=feature_name)
NORMED = pytest.mark.parametrize("features", [f for f in FEATURES if "norm" in f], ids=feature_name)


def assert_close(a: Any, b: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-9, atol=1e-9)


@EVERY
@pytest.mark.parametrize("processing", ["raw", "folded"])
def test_processing_changes_no_logit_score_or_pattern(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    tokens = random_tokens(weights)
    keep = padding(*tokens.shape, side="left")
    before, found = run(weights, tokens, keep=keep), run(processed(weights, processing), tokens, keep=keep)
    assert_close(found.logits, before.logits)
    for a, b in zip(found.scores, before.scores, strict=True):
        assert_close(a, b)
    assert_close(logits(processed(weights, processing), tokens, keep=keep), before.logits)


@NORMED
def test_folding_leaves_no_gain_and_the_embedding_as_it_was(features: dict[str, Any]):
    weights = random_weights(**features)
    W_E = weights.W_E.clone()
    folded = processed(weights, "folded")
    assert all(getattr(folded, n) is None for n in ("norm_gain", "norm_bias", "final_gain", "final_bias"))
    assert torch.equal(folded.W_E, W_E) and torch.equal(weights.W_E, W_E), "bit for bit, tied or not"
    assert folded.W_O is weights.W_O and folded.b_O is weights.b_O, "writers are never touched"
    if weights.b_V is not None and weights.norm_bias is None:
        assert torch.equal(folded.b_V, weights.b_V)  # type: ignore[arg-type]
    ones = torch.ones(weights.config.d_model, dtype=torch.float64)
    for name in ("W_Q", "W_K", "W_V", "W_U"):
        blind = float((getattr(folded, name) @ ones).abs().max()) if getattr(folded, name).numel() else 0.0
        assert (blind < 1e-12) == (weights.config.norm == "layer" or not getattr(folded, name).numel()), name


@NORMED
def test_folded_matrices_by_hand(features: dict[str, Any]):
    weights = random_weights(**features)
    folded = fold_norms(weights)
    for layer in range(weights.config.n_layers):
        gain = torch.ones(10, dtype=torch.float64) if weights.norm_gain is None else weights.norm_gain[layer]
        beta = torch.zeros(10, dtype=torch.float64) if weights.norm_bias is None else weights.norm_bias[layer]
        assert_close(folded.W_V[layer, 0], weights.W_V[layer, 0] @ torch.diag(gain))
        zero = torch.zeros(weights.config.d_head, dtype=torch.float64)
        old, new = (zero if b_V is None else b_V[layer, 0] for b_V in (weights.b_V, folded.b_V))
        assert_close(new, weights.W_V[layer, 0] @ beta + old)
    gain = 1 if weights.final_gain is None else weights.final_gain
    assert_close(folded.W_U, weights.W_U * gain)


@NORMED
def test_a_tie_is_cut_by_folding_not_followed(features: dict[str, Any]):
    tied: dict[str, Any] = {**features, "tied": True}
    weights = random_weights(**tied)
    folded = fold_norms(weights)
    assert weights.tied and folded.tied == (weights.final_gain is None)
    tokens = random_tokens(weights)
    assert_close(logits(folded, tokens), logits(weights, tokens))


def test_sinusoids_keep_the_matrices_they_were_read_by():
    weights = random_weights(norm="layer", positions="shortformer")
    folded = processed(weights, "folded")
    assert folded.W_Q_pos is not None and torch.equal(folded.W_Q_pos, weights.W_Q)
    assert folded.W_K_pos is not None and torch.equal(folded.W_K_pos, weights.W_K)
    tokens = random_tokens(weights, rows=1, n=6)
    wanted = naive_run(folded, tokens[0].tolist())
    assert_close(run(folded, tokens).logits[0], wanted.logits)
    assert_close(wanted.logits, naive_run(weights, tokens[0].tolist()).logits)


def test_steps_are_recorded_in_order():
    weights = random_weights(norm="layer")
    assert processed(weights, "raw") is weights
    folded = processed(weights, "folded")
    assert folded.provenance.processing == "norms folded + reads centred"
    assert fold_value_biases(folded).provenance.steps[-1] == "b_V folded"
    assert processed(random_weights(norm="rms"), "folded").provenance.steps == ("norms folded",)
    plain = random_weights()
    assert processed(plain, "folded") is plain, "nothing to fold"


def test_folding_twice_is_folding_once():
    once = processed(random_weights(norm="layer", positions="shortformer"), "folded")
    twice = processed(once, "folded")
    tokens = random_tokens(once)
    assert_close(logits(twice, tokens), logits(once, tokens))
    assert_close(twice.W_Q, once.W_Q)


@pytest.mark.parametrize(
    ("features", "word"),
    [({}, "no mean"), ({"norm": "rms"}, "no mean"), ({"norm": "layer"}, "fold_norms first")],
    ids=str,
)
def test_centring_where_it_would_change_the_model_is_refused(features: dict[str, Any], word: str):
    with pytest.raises(UsageError, match=word):
        centre_reads(random_weights(**features))


def test_an_unknown_processing_is_refused():
    with pytest.raises(UsageError, match="raw or folded"):
        processed(random_weights(), "centred")


def test_untie():
    tied = random_weights(tied=True)
    free = untie(tied)
    assert not free.tied and torch.equal(free.W_U, tied.W_U) and free.provenance.steps == ("untied",)
    assert untie(free) is free


@EVERY
def test_value_biases_folded_are_exact_where_rows_sum_to_one(features: dict[str, Any]):
    weights = random_weights(**features)
    folded = fold_value_biases(weights)
    tokens = random_tokens(weights)
    assert_close(logits(folded, tokens), logits(weights, tokens))
    assert folded.b_V is None
    if weights.b_V is None:
        assert folded is weights


def test_where_a_row_is_empty_the_folded_bias_stays_behind():
    """What the docstring warns of: an empty row writes nothing, but a bias that moved to b_O is added all the same."""
    weights = random_weights(n_layers=1)
    tokens = random_tokens(weights, rows=2, n=4)
    keep = padding(2, 4, "left")
    plain = run(weights, tokens, keep=keep)
    folded = run(fold_value_biases(weights), tokens, keep=keep)
    assert_close(folded.logits[keep], plain.logits[keep])
    assert float((folded.logits[~keep] - plain.logits[~keep]).abs().max()) > 0.01
