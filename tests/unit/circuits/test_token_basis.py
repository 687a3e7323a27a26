"""Token-basis composition: the dense formula, the change of basis it must not see, and the tokens it cannot do without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from headway.circuits.composition import composition_scores
from headway.circuits.token_basis import token_basis_composition_scores, token_factor
from headway.errors import BadInput, CannotCompose, UsageError
from headway.model.process import processed
from headway.model.weights import Weights
from headway.sources.handmade import induction_model
from support.composed import agrees_with_draws, by_pair, rotations, stands_out
from support.random_models import FEATURES, feature_name, random_weights

USABLE = [f for f in FEATURES if f.get("d_head") != 11 and f.get("n_layers") != 0]


def dense_circuits(weights: Weights, name: str, offset: int) -> dict[str, Tensor]:
    """A head's circuits in the basis of tokens, with the Cholesky factor of W_E W_E^T."""
    L = torch.linalg.cholesky(weights.W_E @ weights.W_E.T)
    head = weights.head(name)
    W_QK, W_OV = L.T @ head.qk(offset).dense() @ L, torch.linalg.inv(L) @ head.ov.dense() @ L
    return {"Q": W_QK.T, "K": W_QK, "V": W_OV}


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", USABLE, ids=feature_name)
def test_every_score_equals_the_dense_formula(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    seen = processed(weights, processing)
    dense = {str(head): dense_circuits(seen, str(head), 3) for head in seen.head_ids()}
    norm = torch.linalg.matrix_norm
    rows = by_pair(token_basis_composition_scores(weights, processing=processing, offset=3))
    assert len(rows) == len(composition_scores(weights))
    for (via, reader, writer), row in rows.items():
        reads, W_OV = dense[reader][via], dense[writer]["V"]
        assert row["score"] == pytest.approx(float(norm(reads @ W_OV) / (norm(reads) * norm(W_OV))), abs=1e-9)
        back, wrote = dense[writer][via], dense[reader]["V"]
        assert row["reverse_score"] == pytest.approx(float(norm(back @ wrote) / (norm(back) * norm(wrote))), abs=1e-9)
        assert row["flag"] is None


@pytest.mark.parametrize("seed", range(4))
def test_a_change_of_the_streams_basis_changes_nothing(seed: int):
    weights = random_weights(seed=seed, positions=("none", "rotary")[seed % 2])
    random = torch.Generator().manual_seed(seed)
    T = torch.randn(10, 10, dtype=torch.float64, generator=random) + 2 * torch.eye(10, dtype=torch.float64)
    back = torch.linalg.inv(T)
    reads = {name: getattr(weights, name) @ back for name in ("W_Q", "W_K", "W_V", "W_U")}
    moved = weights.replace(W_E=T @ weights.W_E, W_O=T @ weights.W_O, **reads)
    before, after = (by_pair(token_basis_composition_scores(w)) for w in (weights, moved))
    for key, row in before.items():
        for name in ("score", "reverse_score", "z", "percentile"):
            assert after[key][name] == pytest.approx(row[name], abs=1e-8)
    plain = by_pair(composition_scores(weights)), by_pair(composition_scores(moved))
    assert max(abs(plain[0][key]["score"] - row["score"]) for key, row in plain[1].items()) > 0.05


def test_it_is_the_plain_score_where_tokens_write_every_direction_alike():
    weights = random_weights()
    frame = torch.linalg.qr(torch.randn(13, 10, dtype=torch.float64)).Q
    plain = by_pair(composition_scores(weights))
    for key, row in by_pair(token_basis_composition_scores(weights.replace(W_E=3 * frame.T))).items():
        assert row["score"] == pytest.approx(plain[key]["score"], abs=1e-9)
        assert row["z"] == pytest.approx(plain[key]["z"], abs=1e-7)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_the_null_is_that_of_rotations_in_whitened_coordinates(norm: str):
    weights = random_weights(norm=norm, d_model=7, d_head=3, n_heads=2, n_kv_heads=1)
    seen = processed(weights, "folded")
    row = by_pair(token_basis_composition_scores(weights))["K", "L1H1", "L0H0"]
    reads, W_OV = dense_circuits(seen, "L1H1", 0)["K"], dense_circuits(seen, "L0H0", 0)["V"]
    turns = rotations(8000, 7, centred=norm == "layer")
    if norm == "layer":  # those that leave alone the direction that no read sees, L^-1 1
        unread = torch.linalg.solve(torch.linalg.cholesky(seen.W_E @ seen.W_E.T), torch.ones(7, dtype=torch.float64))
        frame = torch.linalg.qr(torch.cat((unread[:, None], torch.eye(7, dtype=torch.float64)), 1)).Q
        ones = torch.linalg.qr(torch.cat((torch.ones(7, 1).double(), torch.eye(7, dtype=torch.float64)), 1)).Q
        turns = (frame @ ones.T) @ turns @ (frame @ ones.T).T
    squares = (reads @ turns @ W_OV).square().sum((-2, -1)) / (reads.square().sum() * W_OV.square().sum())
    assert agrees_with_draws(squares, row)


def test_the_factor_is_that_of_the_tokens_second_moment():
    weights = random_weights(d_vocab=31)
    L, condition = token_factor(weights)
    assert torch.allclose(L @ L.T, weights.W_E @ weights.W_E.T, atol=1e-10) and not bool(L.triu(1).any())
    assert condition == pytest.approx(float(torch.linalg.cond(weights.W_E)))


def test_more_tokens_than_one_block():
    weights = random_weights(d_vocab=20_000, dtype=torch.float32)
    L, _ = token_factor(weights)
    exact = weights.W_E.double() @ weights.W_E.double().T
    assert torch.allclose(L @ L.T, exact, rtol=1e-9)


def planted(strength: float) -> Weights:
    """Random heads; L0H1 writes, in full, what the keys of L1H2 read, in a stream that tokens fill unevenly."""
    weights = random_weights(n_kv_heads=4, d_vocab=40, positions="none", d_model=16, d_head=3)
    W_E = weights.W_E * torch.logspace(0, -1.5, 16, dtype=torch.float64)[:, None]
    W_O = weights.W_O.clone()
    W_O[0, 1] = W_O[0, 1] * (1 - strength) + strength * W_E @ W_E.T @ weights.W_K[1, 2].T
    return weights.replace(W_E=W_E, W_O=W_O)


def test_a_planted_pair_stands_out_and_is_gone_without_it():
    assert stands_out(token_basis_composition_scores(planted(1.0), via="K"), ("K", "L1H2", "L0H1"))
    without = by_pair(token_basis_composition_scores(planted(0.0)))["K", "L1H2", "L0H1"]
    assert without["z"] < 2


def test_a_singular_basis_is_refused_with_its_rank():
    with pytest.raises(BadInput, match=r"rank d_model=10, got rank 6 from d_vocab=6 tokens.*composition_scores"):
        token_basis_composition_scores(random_weights(d_vocab=6))
    weights = random_weights()
    flat = torch.cat((weights.W_E[:9], weights.W_E[:1]))
    with pytest.raises(BadInput, match="got rank 9"):
        token_basis_composition_scores(weights.replace(W_E=flat))
    with pytest.raises(BadInput, match="rank 0"):
        token_basis_composition_scores(weights.replace(W_E=flat * 0))
    with pytest.raises(BadInput, match="singular"):
        token_basis_composition_scores(induction_model(d_vocab=9, n_ctx=16).weights)


def test_single_precision_is_scored_in_double():
    table = token_basis_composition_scores(random_weights(dtype=torch.float32))
    exact = by_pair(token_basis_composition_scores(random_weights(dtype=torch.float32).to(torch.float64)))
    assert table.meta["dtype"] == "float64"
    assert all(row["score"] == pytest.approx(exact[key]["score"], abs=1e-12) for key, row in by_pair(table).items())


def test_zero_heads_and_models_without_pairs():
    weights = random_weights()
    W_O = weights.W_O.clone()
    W_O[0, 2] = 0
    for (_, _, writer), row in by_pair(token_basis_composition_scores(weights.replace(W_O=W_O))).items():
        assert (row["score"] is None) == ("zero circuit: L0H2 OV" in (row["flag"] or "")) == (writer == "L0H2")
    empty = token_basis_composition_scores(random_weights(biases="none", n_layers=1))
    assert len(empty) == 0 and "no head has an earlier head" in empty.meta["empty"]


def test_bad_input_is_refused():
    with pytest.raises(CannotCompose):
        token_basis_composition_scores(random_weights(), reader="L0H1")
    with pytest.raises(UsageError):
        token_basis_composition_scores(random_weights(), processing="clean")
