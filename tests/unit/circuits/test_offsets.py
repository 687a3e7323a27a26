"""The offset profile against a regression with a dummy for every row, planted offsets, and random circuits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headway.circuits.offsets import MOST, offset_profile
from headway.circuits.positional import position_scores
from headway.errors import UnknownName, UsageError
from headway.model.weights import Weights
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.offset import Offset
from headway.sources.handmade.parts import Copy, Part
from headway.sources.handmade.plan import Plan
from support.random_models import feature_name, random_weights
from support.unchecked import as_users_run_it

POSITIONED: list[dict[str, Any]] = [
    {"positions": "shortformer", "norm": "layer"},
    {"positions": "learned"},
    {"positions": "learned", "norm": "layer"},
    {"positions": "rotary", "rotary_dims": 4},
]


def looks_back(back: int, positions: str) -> Weights:
    plan = Plan(d_vocab=7, n_ctx=24, positions=positions)
    return compile_model([[Part(Offset(back), Copy("content", "out"))]], plan, name="looks back").weights


@pytest.mark.parametrize("features", POSITIONED, ids=feature_name)
def test_the_share_is_that_of_a_regression_on_rows_and_offsets(features: dict[str, Any]):
    weights = random_weights(**features)
    n = 11
    scores = position_scores(weights, "L1H1", n)
    assert scores is not None
    pairs = [(i, j) for i in range(n) for j in range(i + 1)]
    y = np.array([float(scores[i, j]) for i, j in pairs])
    rows = np.array([[i == row for row in range(n)] for i, _ in pairs], dtype=float)
    offsets = np.array([[i - j == D for D in range(n)] for i, j in pairs], dtype=float)

    def left(design: np.ndarray) -> float:
        return float(np.sum((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2))

    total, rest = left(rows), left(np.hstack([rows, offsets]))
    table = offset_profile(weights, "L1H1", positions=n).rows()
    assert table[0]["share"] == pytest.approx(1 - rest / total, abs=1e-9)
    centred = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    for D, row in enumerate(table):
        assert row["offset"] == D and row["pairs"] == n - D
        assert row["score"] == pytest.approx(centred[offsets[:, D] == 1].mean(), abs=1e-9)
    fit = np.array([row["fit"] for row in table])
    both = np.hstack([rows, (offsets @ fit)[:, None]])
    assert left(both) == pytest.approx(rest, abs=1e-9)  # one column, `fit`, is as good as all offsets
    assert np.sum(offsets @ fit) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("back", [0, 1, 3])
def test_a_planted_offset_is_found_with_all_of_the_variance(positions: str, back: int):
    rows = offset_profile(looks_back(back, positions), "L0H0").rows()
    assert len(rows) == 24 and {row["flag"] for row in rows} == {None}
    assert max(rows, key=lambda row: row["fit"])["offset"] == back
    assert max(rows, key=lambda row: row["score"])["offset"] == back
    assert rows[0]["share"] == pytest.approx(1, abs=1e-9)


def test_without_the_planted_look_nothing_is_preferred():
    weights = looks_back(1, "learned")
    table = offset_profile(weights.replace(W_Q=torch.zeros_like(weights.W_Q)), "L0H0")
    assert {row["share"] for row in table.rows()} == {None}
    assert {row["flag"] for row in table.rows()} == {"share: position alone prefers no source"}
    assert {row["score"] for row in table.rows()} == {0.0} == {row["fit"] for row in table.rows()}


def test_of_a_random_circuit_offsets_explain_little():
    shares = [
        offset_profile(
            random_weights(seed=seed, positions="shortformer", d_model=64, d_head=16, n_ctx=64, biases="none"), "L0H0"
        ).rows()[0]["share"]
        for seed in range(8)
    ]
    assert sum(shares) / len(shares) < 0.25


def test_a_constant_on_every_row_is_not_seen():
    weights = random_weights(positions="learned", biases="none", n_kv_heads=4)
    assert weights.W_pos is not None
    # One more direction of the stream that every position has alike, and that the keys alone read: a constant on rows.
    same = torch.cat((weights.W_pos, torch.ones_like(weights.W_pos[:1])))

    def wider(tensor: torch.Tensor, axis: int, value: float) -> torch.Tensor:
        return torch.cat((tensor, torch.full_like(tensor.narrow(axis, 0, 1), value)), axis)

    fields = weights.config.to_dict() | {"d_model": 11}
    parts: dict[str, Any] = {
        "W_E": wider(weights.W_E, 0, 0.0),
        "W_U": wider(weights.W_U, 1, 0.0),
        "W_O": wider(weights.W_O, 2, 0.0),
        **{name: wider(getattr(weights, name), 3, 0.0) for name in ("W_Q", "W_V")},
        "W_K": wider(weights.W_K, 3, 5.0),
    }
    other = Weights(config=type(weights.config).from_dict(fields), W_pos=same, **parts)
    before, after = (offset_profile(w, "L0H2").rows() for w in (weights, other))
    for a, b in zip(before, after, strict=True):
        assert [a[name] for name in ("score", "fit", "share")] == pytest.approx(
            [b[name] for name in ("score", "fit", "share")]
        )


def test_the_table_says_what_stands_for_position():
    meta = offset_profile(random_weights(positions="learned", norm="rms"), "L1H0").meta
    assert "position x position" in meta["what"] and "averaged over tokens" in meta["notes"][0]
    assert "earlier heads" in meta["notes"][1]
    assert "average content" in offset_profile(random_weights(positions="rotary"), "L0H0").meta["what"]
    short = offset_profile(random_weights(positions="shortformer", norm="layer"), "L1H0")
    assert short.meta["notes"] == [] and short.provenance.processing == "norms folded + reads centred"
    none = offset_profile(random_weights(positions="none"), "L0H0")
    assert len(none) == 0 and none.meta["empty"].startswith("no positions")


def test_one_place_and_many():
    rows = offset_profile(random_weights(positions="shortformer"), "L0H0", positions=1).rows()
    assert rows[0]["flag"] is not None and len(rows) == 1
    long = random_weights(positions="shortformer", n_ctx=100_000)
    assert len(offset_profile(long, "L0H0", positions=40)) == 40
    with pytest.raises(UsageError, match=f"from 1 to {MOST}, got 3000"):
        offset_profile(long, "L0H0", positions=3000)


@pytest.mark.parametrize("positions", [0, -1, 17, True, 2.0])
def test_a_number_of_positions_that_does_not_fit(positions: Any):
    with as_users_run_it(), pytest.raises(UsageError, match="positions; expected a whole number from 1 to 16"):
        offset_profile(random_weights(positions="learned"), "L0H0", positions=positions)


def test_a_head_that_does_not_exist():
    with pytest.raises(UnknownName, match="no head L2H0"):
        offset_profile(random_weights(positions="learned"), "L2H0")
