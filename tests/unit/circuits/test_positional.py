"""Scores in their terms against recorded scores; tables of terms against the terms of texts that hold their tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.circuits.positional import TERMS, position_scores, qk_terms, score_terms, token_shares
from headway.errors import ShapeProblem, TextProblem, TokenProblem, UnknownName, UsageError
from headway.model.carried import Carried
from headway.model.forward import run
from headway.model.process import processed
from headway.model.weights import Weights
from support.random_models import FEATURES, feature_name, random_tokens, random_weights
from support.unchecked import as_users_run_it

WITH_HEADS = [features for features in FEATURES if features.get("n_layers") != 0]
SEPARABLE: list[dict[str, Any]] = [
    {"positions": "shortformer", "norm": "layer"},
    {"positions": "shortformer", "norm": "rms", "affine": ("norm_gain",)},
    {"positions": "learned"},
]


def heads(weights: Weights, layer: int) -> range:
    assert weights.config.n_layers > layer
    return range(weights.config.n_heads)


def allowed(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril()


@pytest.mark.parametrize("features", WITH_HEADS, ids=feature_name)
def test_terms_sum_to_the_scores_of_layer_0(features: dict[str, Any]):
    weights = random_weights(**features)
    tokens = random_tokens(weights)
    scores = run(weights, tokens).scores[0]
    for head in heads(weights, 0):
        terms = score_terms(weights, f"L0H{head}", tokens)
        assert set(terms) == (set(TERMS) if weights.config.positions in {"shortformer", "learned"} else {TERMS[0]})
        off = (sum(terms.values()) - scores[:, head])[:, allowed(tokens.shape[1])]
        assert float(off.abs().max()) < 1e-9


@pytest.mark.parametrize("features", WITH_HEADS[:10], ids=feature_name)
def test_deeper_terms_are_those_of_the_embedding_alone(features: dict[str, Any]):
    weights = random_weights(**features)
    silent = weights.replace(W_O=torch.zeros_like(weights.W_O), b_O=None)  # the last layer then reads the embedding
    tokens = random_tokens(weights)
    last = weights.config.n_layers - 1
    terms = score_terms(weights, f"L{last}H1", tokens)
    off = (sum(terms.values()) - run(silent, tokens).scores[last][:, 1])[:, allowed(tokens.shape[1])]
    assert float(off.abs().max()) < 1e-9


@pytest.mark.parametrize("positions", ["shortformer", "learned"])
def test_each_side_alone_gives_its_own_term(positions: str):
    weights = random_weights(positions=positions)
    tokens = random_tokens(weights)
    none: dict[str, Any] = {"W_pos": torch.zeros_like(weights.W_pos)} if weights.W_pos is not None else {}
    amplitude: dict[str, Any] = {"config": random_weights(positions=positions, position_amplitude=0.0).config}
    contents = weights.replace(**(none or amplitude))
    places = weights.replace(W_E=torch.zeros_like(weights.W_E), b_Q=None, b_K=None)
    terms = score_terms(weights, "L0H2", tokens)
    for model, name in ((contents, "content_content"), (places, "position_position")):
        off = (run(model, tokens).scores[0][:, 2] - terms[name])[:, allowed(tokens.shape[1])]
        assert float(off.abs().max()) < 1e-9
    only_q = weights.replace(b_K=None)
    assert torch.equal(score_terms(only_q, "L0H2", tokens)["position_position"], terms["position_position"])
    assert not torch.allclose(score_terms(only_q, "L0H2", tokens)["position_content"], terms["position_content"])


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", SEPARABLE, ids=feature_name)
def test_tables_of_terms_hold_the_terms_of_every_text(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    tokens = random_tokens(weights, rows=1, n=11)
    tables = qk_terms(processed(weights, processing), "L1H3")
    terms = score_terms(weights, "L1H3", tokens)
    places = torch.arange(tokens.shape[1])
    assert list(tables) == list(TERMS)
    for name, table in tables.items():
        rows, columns = (tokens[0] if side == "content" else places for side in name.split("_"))
        assert torch.allclose(table.rows(rows)[:, columns], terms[name][0], atol=1e-9, rtol=0)


def test_tables_of_terms_without_positions_of_their_own():
    turned = random_weights(positions="rotary", rotary_dims=4)
    assert list(qk_terms(turned, "L0H0", offset=3)) == ["content_content"]
    two, seven = (qk_terms(turned, "L0H0", offset=offset)["content_content"].dense() for offset in (2, 7))
    tokens = torch.tensor([[3, 1, 5, 2, 2, 0, 0, 6]])
    scores = run(turned, tokens).scores[0][0, 0]
    assert float(scores[7, 0] - seven[6, 3]) == pytest.approx(0, abs=1e-9)
    assert float(scores[4, 2] - two[2, 5]) == pytest.approx(0, abs=1e-9)


def test_learned_positions_under_a_norm_have_no_table():
    weights = random_weights(norm="layer", positions="learned")
    with pytest.raises(UsageError, match=r"L0H1 under norm='layer'.*score_terms\(weights, head, tokens\)"):
        qk_terms(weights, "L0H1")
    # The reason: what one token adds to the score depends on the position beyond any term of the two apart.
    tokens = torch.tensor([[1, 2, 1, 2]])
    scores = run(weights, tokens).scores[0][0, 0]
    moved = score_terms(weights, "L0H0", tokens)["content_content"][0]
    assert float(moved[2, 0] - moved[0, 0]) != pytest.approx(0, abs=1e-3) and bool(scores.isfinite().any())


@pytest.mark.parametrize(
    "features",
    [
        {"positions": "learned", "norm": "layer"},
        {"positions": "learned", "norm": "rms"},
        {"positions": "learned"},
        {"positions": "shortformer", "norm": "layer"},
        {"positions": "rotary", "norm": "rms", "rotary_dims": 4},
    ],
    ids=feature_name,
)
@pytest.mark.parametrize("counted", [False, True])
def test_position_scores_are_averages_over_independent_tokens(features: dict[str, Any], counted: bool):
    weights = random_weights(**features)
    c, n = weights.config, 5
    if counted:
        bigrams = np.array([[0, 1, 2, 2], [1, 4, 4, 12], [3, 1, 2, 6]])
        weights = weights.replace(carried=Carried(bigrams, np.array([1]), np.array([1])))
        assert token_shares(weights)[[1, 4, 12, 0]].tolist() == pytest.approx([0.25, 0.25, 0.5, 0.0])
    shares = token_shares(weights)
    every = torch.cartesian_prod(torch.arange(c.d_vocab), torch.arange(c.d_vocab))
    found = position_scores(weights, "L0H3", n)
    assert found is not None
    name = "content_content" if c.positions == "rotary" else "position_position"
    for i, j in ((1, 0), (4, 1), (3, 2)):
        tokens = torch.zeros(len(every), n, dtype=torch.int64)
        tokens[:, i], tokens[:, j] = every.T
        terms = score_terms(weights, "L0H3", tokens)[name][:, i, j]
        mean = float((shares[every[:, 0]] * shares[every[:, 1]]) @ terms)
        assert float(found[i, j]) == pytest.approx(mean, abs=1e-9)


def test_no_positions_no_position_scores():
    assert position_scores(random_weights(positions="none"), "L0H0", 4) is None


def test_a_change_of_basis_inside_the_head_changes_no_term():
    weights = random_weights(positions="shortformer", norm="layer", n_kv_heads=4)
    basis = torch.randn(5, 5, dtype=torch.float64) + 3 * torch.eye(5, dtype=torch.float64)
    inverse = torch.linalg.inv(basis).T
    assert weights.b_Q is not None and weights.b_K is not None
    other = weights.replace(
        W_Q=basis @ weights.W_Q, b_Q=weights.b_Q @ basis.T, W_K=inverse @ weights.W_K, b_K=weights.b_K @ inverse.T
    )
    tokens = random_tokens(weights)
    for name, term in score_terms(weights, "L1H2", tokens).items():
        assert torch.allclose(score_terms(other, "L1H2", tokens)[name], term, atol=1e-9)


LEARNED = random_weights(positions="learned")
BAD: list[tuple[Any, Any, type[Exception], str]] = [
    ("L7H0", [[1]], UnknownName, "no head L7H0"),
    ("nothing", [[1]], UnknownName, "not a head"),
    ("L0H0", [[13]], TokenProblem, "d_vocab-1=12, got 13 .. 13"),
    ("L0H0", [[-1]], TokenProblem, "got -1"),
    ("L0H0", [[]], ShapeProblem, "whole-number ids"),
    ("L0H0", [1, 2], ShapeProblem, "batch, pos"),
    ("L0H0", [[1] * 17], TextProblem, "at most 16, got 17"),
]


@pytest.mark.parametrize(("head", "tokens", "error", "says"), BAD)
def test_bad_input_is_one_sentence(head: str, tokens: list[Any], error: type[Exception], says: str):
    with as_users_run_it(), pytest.raises(error, match=says):
        score_terms(LEARNED, head, torch.tensor(tokens))


def test_no_tokens_and_no_model():
    with pytest.raises(TextProblem, match="no tokens"):
        score_terms(LEARNED, "L0H0", torch.zeros(2, 0, dtype=torch.int64))
    with as_users_run_it(), pytest.raises(UsageError, match="not a model"):
        qk_terms("zoo:one-layer", "L0H0")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="offset"):
        qk_terms(LEARNED, "L0H0", offset=-1)
