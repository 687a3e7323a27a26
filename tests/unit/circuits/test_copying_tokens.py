"""Own-token statistics against the dense circuit, one token at a time; permutations, ties, and heads that move nothing."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.algebra import stream
from headway.circuits.copying_tokens import copying_token_scores
from headway.errors import UnknownName, UsageError
from headway.model.config import ModelConfig
from headway.model.process import processed
from headway.model.weights import Weights
from headway.sources.handmade import copying_model, skip_trigram_model
from support.random_models import FEATURES, feature_name, random_weights
from support.unchecked import as_users_run_it


def dense_circuit(weights: Weights, head: str) -> np.ndarray:
    """[out, source]: what one embedding alone, read at its own scale, adds to each logit above the mean logit."""
    seen = processed(weights, "folded")
    c, h = seen.config, seen.head(head)
    columns = []
    for token in range(c.d_vocab):
        x = seen.W_E[:, token]
        if c.norm != "none":
            about = x - x.mean() if c.norm == "layer" else x
            x = x / (about.square().mean() + c.norm_eps).sqrt()
        logits = seen.W_U @ (h.W_O @ (h.W_V @ x))
        columns.append((logits - logits.mean()).numpy())
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("features", [f for f in FEATURES if f.get("n_layers") != 0], ids=feature_name)
def test_every_statistic_equals_that_of_the_dense_circuit(features: dict[str, Any]):
    weights = random_weights(**features)
    rows = copying_token_scores(weights).rows()
    assert [row["head"] for row in rows] == [str(head) for head in weights.head_ids()]
    for row in rows:
        M = dense_circuit(weights, row["head"])
        n = len(M)
        own = [M[t, t] for t in range(n)]
        above = [sum(M[u, t] > M[t, t] for u in range(n)) for t in range(n)]
        assert row["diagonal_mean"] == pytest.approx(np.mean(own), abs=1e-9)
        assert row["diagonal_in_sd"] == pytest.approx(np.mean(own) / M.std(), abs=1e-9)
        assert row["diagonal_positive"] == pytest.approx(np.mean([x > 0 for x in own]))
        assert row["median_rank"] == pytest.approx(np.median(above))
        for k in (1, 5):
            assert row[f"top{k}"] == pytest.approx(np.mean([a < k for a in above]))
            assert row[f"bottom{k}"] == pytest.approx(np.mean([n - 1 - a < k for a in above]))
        assert row["top5_null"] == 5 / n and row["top5_null_se"] == pytest.approx(math.sqrt(5 * (n - 5) / n**3))
        assert row["flag"] is None


def test_z_is_that_of_all_pairings_of_sources_with_outs():
    weights = random_weights(d_vocab=6, norm="layer")
    M = dense_circuit(weights, "L0H2")
    sums = [sum(M[out, source] for source, out in enumerate(order)) for order in itertools.permutations(range(6))]
    assert np.mean(sums) == pytest.approx(0, abs=1e-9)
    (row,) = copying_token_scores(weights, "L0H2").rows()
    assert row["diagonal_z"] == pytest.approx(M.trace() / np.std(sums), abs=1e-9)


def one_head(W_OV: Tensor) -> Weights:
    """Unit embeddings, so that W_OV is the circuit before it is centred."""
    d = len(W_OV)
    eye, zero = torch.eye(d, dtype=W_OV.dtype), torch.zeros(1, 1, d, d, dtype=W_OV.dtype)
    c = ModelConfig(n_layers=1, n_heads=1, d_model=d, d_head=d, d_vocab=d, n_ctx=4)
    return Weights(config=c, W_E=eye, W_U=eye, W_Q=zero, W_K=zero, W_V=eye[None, None], W_O=W_OV[None, None])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_head_that_returns_each_token_and_its_negative(dtype: torch.dtype):
    n = 30
    eye = torch.eye(n, dtype=dtype)
    (row,) = copying_token_scores(one_head(eye)).rows()
    assert (row["top1"], row["top5"], row["bottom5"], row["median_rank"], row["diagonal_positive"]) == (1, 1, 0, 0, 1)
    # 1 - 1/n on the diagonal, -1/n elsewhere: a projection of rank n - 1, whose trace over its norm is sqrt(n - 1).
    assert row["diagonal_mean"] == pytest.approx(1 - 1 / n, rel=1e-6)
    assert row["diagonal_in_sd"] == pytest.approx((n - 1) ** 0.5, rel=1e-6)
    (row,) = copying_token_scores(one_head(-eye)).rows()
    assert (row["bottom1"], row["bottom5"], row["top5"], row["diagonal_positive"]) == (1, 1, 0, 0)
    assert row["median_rank"] == n - 1 and row["diagonal_in_sd"] == pytest.approx(-((n - 1) ** 0.5), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_tied_entries_count_in_part(dtype: torch.dtype):
    # Token b raises b + 1 and nothing else: its own logit is one of n - 1 equal ones, four of which are in the top 5.
    n = 30
    (row,) = copying_token_scores(one_head(torch.eye(n, dtype=dtype).roll(1, 0))).rows()
    assert row["top1"] == 0 and row["top5"] == pytest.approx(4 / (n - 1))
    assert row["bottom1"] == pytest.approx(1 / (n - 1)) and row["bottom5"] == pytest.approx(5 / (n - 1))
    assert row["median_rank"] == pytest.approx(1 + (n - 2) / 2)


def test_tokens_that_the_head_does_not_read_count_as_chance():
    n = 20
    half = torch.diag(torch.arange(n) < n // 2).double()
    (row,) = copying_token_scores(one_head(half)).rows()
    assert row["top5"] == pytest.approx(0.5 + 0.5 * 5 / n) and row["bottom5"] == pytest.approx(0.5 * 5 / n)
    assert row["diagonal_positive"] == 0.5


def test_the_pass_in_tiles_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch):
    weights = random_weights(norm="rms")
    whole = copying_token_scores(weights)
    for rows, columns in ((1, 4), (5, 13), (100, 1)):
        monkeypatch.setattr(stream, "ROWS", rows)
        monkeypatch.setattr(stream, "COLUMNS", columns)
        assert copying_token_scores(weights) == whole


def test_a_constant_on_all_logits_and_a_basis_of_d_head_change_nothing():
    weights = random_weights(n_kv_heads=4)
    basis = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    moved = weights.replace(
        W_V=basis @ weights.W_V,
        W_O=weights.W_O @ torch.linalg.inv(basis),
        W_U=weights.W_U + 3 * torch.randn(10, dtype=torch.float64),
    )
    for old, new in zip(copying_token_scores(weights).rows(), copying_token_scores(moved).rows(), strict=True):
        assert list(new.values())[1:-1] == pytest.approx(list(old.values())[1:-1], abs=1e-9)


def test_hand_made_heads_are_told_apart():
    (copying,) = copying_token_scores(copying_model().weights).rows()
    # BOS, one of 64, is not read.
    assert copying["top1"] == pytest.approx(63 / 64, abs=0.01) and copying["diagonal_z"] > 10
    (rule,) = copying_token_scores(skip_trigram_model([(3, 5, 7)]).weights).rows()
    assert rule["top5"] < 0.2 and abs(rule["diagonal_in_sd"]) < 0.1


def test_heads_that_move_no_logit_are_flagged():
    weights = random_weights(n_kv_heads=4)
    W_O, W_V, W_U = weights.W_O.clone(), weights.W_V.clone(), weights.W_U.clone()
    W_O[0, 1], W_V[0, 3] = 0, 0
    W_U[:, 7:] = 1  # what is written there raises all logits alike
    W_O[1, 2, :7] = 0
    rows = {r["head"]: r for r in copying_token_scores(weights.replace(W_O=W_O, W_V=W_V, W_U=W_U)).rows()}
    missing = ("diagonal_mean", "diagonal_in_sd", "diagonal_z", "diagonal_positive", "top1", "bottom5", "median_rank")
    for head in ("L0H1", "L0H3", "L1H2"):
        assert all(rows[head][name] is None for name in missing) and rows[head]["top5_null"] == 5 / 13
    assert rows["L0H1"]["flag"] == "zero circuit: L0H1 OV" and rows["L0H3"]["flag"] == "zero circuit: L0H3 OV"
    assert rows["L1H2"]["flag"] == "the head moves no logit"
    assert all(rows[head]["flag"] is None for head in ("L0H0", "L1H3"))


def test_a_head_that_does_the_same_for_every_token_has_no_z():
    same = torch.randn(9, 1, dtype=torch.float64).expand(9, 9).contiguous()
    (row,) = copying_token_scores(one_head(same)).rows()
    assert row["diagonal_z"] is None and "all sources move the logits alike" in row["flag"]
    assert row["diagonal_mean"] == pytest.approx(0, abs=1e-9) and row["top1"] == pytest.approx(1 / 9)


def test_one_head_progress_and_provenance():
    weights, told = random_weights(norm="layer"), []
    table = copying_token_scores(weights, "L1H1", progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 1)] and [row["head"] for row in table.rows()] == ["L1H1"]
    assert table.rows() == [row for row in copying_token_scores(weights).rows() if row["head"] == "L1H1"]
    assert table.provenance.options == {"head": "L1H1"} and table.provenance.weights == weights.content_hash()
    assert table.provenance.processing == "norms folded + reads centred"


def test_odd_input_and_models_without_heads():
    with pytest.raises(UnknownName, match="L5H0"):
        copying_token_scores(random_weights(), "L5H0")
    with as_users_run_it(), pytest.raises(UsageError, match="not a model"):
        copying_token_scores("zoo:one-layer")  # type: ignore[arg-type]
    bare = copying_token_scores(random_weights(n_layers=0, n_heads=0, n_kv_heads=0))
    assert bare.rows() == [] and "0 layers of 0" in bare.meta["empty"]
