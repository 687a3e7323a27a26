"""Heads are found again in a model that computes the same in other bases, and likeness is that of the dense circuits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headway.circuits.matching import match_heads
from headway.circuits.ov import ov_circuit
from headway.circuits.qk import qk_circuit
from headway.errors import ShapeProblem, TokenProblem, UsageError
from headway.model.weights import Weights
from headway.sources.open import load
from support.random_models import FEATURES, feature_name, random_weights

USABLE = [f for f in FEATURES if f.get("n_layers") != 0]


def shuffled(weights: Weights, order: list[int]) -> Weights:
    """Heads of each layer in another order (no shared keys), other bases inside d_head, another basis of the stream."""
    c = weights.config
    random = torch.Generator().manual_seed(9)
    inside = torch.randn(c.n_layers, c.n_heads, c.d_head, c.d_head, dtype=torch.float64, generator=random)
    T = torch.randn(c.d_model, c.d_model, dtype=torch.float64, generator=random)
    back = torch.linalg.inv(T)
    turned = {
        "W_Q": (inside @ weights.W_Q @ back)[:, order],
        "W_K": (torch.linalg.inv(inside).mT @ weights.W_K @ back)[:, order],
        "W_V": (inside @ weights.W_V @ back)[:, order],
        "W_O": (T @ weights.W_O @ torch.linalg.inv(inside))[:, order],
    }
    return weights.replace(W_E=T @ weights.W_E, W_U=weights.W_U @ back, **turned)


def test_heads_in_another_order_and_in_other_bases_are_found():
    weights = random_weights(norm="none", positions="none", n_kv_heads=4, biases=("b_U",))
    order = [2, 0, 3, 1]
    rows = match_heads(weights, shuffled(weights, order)).rows()
    for row in rows:
        layer, head = int(row["head"][1]), int(row["head"][3:])
        assert row["match"] == row["nearest"] == f"L{layer}H{order.index(head)}"
        assert row["likeness"] == pytest.approx(1, abs=1e-9) and row["next_likeness"] < 0.9
    assert [row["percentile"] for row in rows] == pytest.approx([100] * 8, abs=12)


@pytest.mark.parametrize("feature", USABLE, ids=feature_name)
def test_likeness_is_that_of_the_dense_circuits(feature: dict[str, Any]):
    a, b = random_weights(**feature), random_weights(seed=1, **feature)
    for row in match_heads(a, b, offset=2).rows():
        dense: dict[str, list[torch.Tensor]] = {"ov": [], "qk": []}
        for weights, head in ((a, row["head"]), (b, row["match"])):
            ov, qk = ov_circuit(weights, head).dense(), qk_circuit(weights, head, offset=2).dense()
            dense["ov"].append(ov)
            dense["qk"].append(qk - qk.mean(1, keepdim=True))
        for of, (x, y) in dense.items():
            assert row[of] == pytest.approx(float((x * y).sum() / x.norm() / y.norm()), abs=1e-9)
        assert row["likeness"] == pytest.approx((row["ov"] + row["qk"]) / 2)


def test_matches_are_one_to_one_and_the_best_together():
    a, b = random_weights(n_layers=1), random_weights(n_layers=1, seed=5)
    rows = match_heads(a, b).rows()
    assert sorted(row["match"] for row in rows) == ["L0H0", "L0H1", "L0H2", "L0H3"]
    import itertools

    likeness = np.array([[_between(a, b, i, j) for j in range(4)] for i in range(4)])
    best = max(sum(likeness[i, p[i]] for i in range(4)) for p in itertools.permutations(range(4)))
    assert sum(row["likeness"] for row in rows) == pytest.approx(best)


def _between(a: Weights, b: Weights, i: int, j: int) -> float:
    """Likeness of two heads alone: each model with that head only."""
    one = [
        w.replace(
            config=type(w.config).from_dict(w.config.to_dict() | {"n_heads": 1, "n_kv_heads": 1}),
            **{n: getattr(w, n)[:, k : k + 1] for n in ("W_Q", "W_O", "b_Q")},
            **{n: getattr(w, n)[:, k // 2 : k // 2 + 1] for n in ("W_K", "W_V", "b_K", "b_V")},
        )
        for w, k in ((a, i), (b, j))
    ]
    return match_heads(one[0], one[1]).rows()[0]["likeness"]


def test_zero_heads_and_heads_left_over_are_flagged():
    big, small = random_weights(n_layers=1), random_weights(n_layers=1, n_heads=2, n_kv_heads=1)
    W_O, W_Q = big.W_O.clone(), big.W_Q.clone()
    W_O[0, 1], W_Q[0, 2] = 0, 0
    b_Q = big.b_Q
    assert b_Q is not None
    b_Q = b_Q.clone()
    b_Q[0, 2] = 0
    W_O[0, 2] = 0
    rows = match_heads(big.replace(W_O=W_O, W_Q=W_Q, b_Q=b_Q), small).rows()
    assert rows[2]["flag"] == "no circuit from tokens to tokens" and rows[2]["likeness"] is None
    assert sum(row["match"] is not None for row in rows) == 2
    left = [row for row in rows if row["match"] is None and row["nearest"] is not None]
    assert len(left) == 1 and left[0]["flag"].startswith("left over")
    ov_dead = next(row for row in rows if row["head"] == "L0H1")
    assert ov_dead["ov"] is None
    none = match_heads(small, random_weights(n_layers=0)).rows()
    assert all(row["flag"] == "the second model has no heads" for row in none)


def test_what_cannot_be_compared():
    with pytest.raises(ShapeProblem, match="d_vocab=13"):
        match_heads(random_weights(), random_weights(d_vocab=14))
    with pytest.raises(UsageError, match="offset"):
        match_heads(random_weights(), random_weights(), offset=-1)
    one = load("zoo:one-layer")
    assert one.tokenizer is not None
    other = type(one.tokenizer).from_json(
        one.tokenizer.to_json().replace('"add_prefix_space":false', '"add_prefix_space":true')
    )
    if other.to_json() != one.tokenizer.to_json():
        with pytest.raises(TokenProblem, match="two that differ"):
            match_heads(one, one.replace(tokenizer=other))


def test_a_packaged_model_is_like_itself():
    one = load("zoo:one-layer")
    assert all(row["match"] == row["head"] and row["likeness"] > 1 - 1e-5 for row in match_heads(one, one).rows())
