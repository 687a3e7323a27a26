"""Scores that have no scale, at scales where squares over- and underflow; and writers that nothing can read."""

from __future__ import annotations

import pytest
import torch

from headway.circuits.bigrams import direct_path_log_probs
from headway.circuits.composition import composition_score, composition_scores
from headway.circuits.copying import copying_scores
from headway.errors import NotFinite, UsageError
from headway.model.weights import Weights
from support.random_models import random_weights
from support.unchecked import as_users_run_it

PLAIN = random_weights(norm="layer")


def composition(weights: Weights) -> dict[tuple[str, str, str], tuple[float, float]]:
    rows = composition_scores(weights).rows()
    assert all(row["flag"] is None for row in rows)
    return {(row["reader"], row["writer"], row["via"]): (row["score"], row["z"]) for row in rows}


@pytest.mark.parametrize("scale", [1e100, 1e-100, 1e-160])
def test_scores_do_not_see_scale(scale: float):
    scaled = PLAIN.replace(W_O=PLAIN.W_O * scale, W_Q=PLAIN.W_Q * scale)
    assert composition(scaled) == {pair: pytest.approx(value, rel=1e-9) for pair, value in composition(PLAIN).items()}
    rows = zip(copying_scores(scaled, draws=8).rows(), copying_scores(PLAIN, draws=8).rows(), strict=True)
    for found, wanted in rows:
        for name in ("copying", "copying_z", "copying_centred", "copying_centred_z"):
            assert found[name] == pytest.approx(wanted[name], rel=1e-8, abs=1e-9)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(torch.float64, s) for s in (1e150, 1e-160)] + [(torch.float32, s) for s in (1e30, 1e-30)],
    ids=str,
)
def test_one_pair_does_not_see_scale(dtype: torch.dtype, scale: float):
    """Products of these factors are beyond the largest or below the smallest number."""
    reader, writer = PLAIN.head("L1H0"), PLAIN.head("L0H1")
    narrow = PLAIN.to(dtype)
    scaled = narrow.replace(**{n: getattr(narrow, n) * scale for n in ("W_Q", "W_K", "W_V", "W_O")})
    for via in "QKV":
        found = composition_score(scaled.head("L1H0"), scaled.head("L0H1"), via)
        assert found == pytest.approx(composition_score(reader, writer, via), rel=1e-9 if dtype.itemsize == 8 else 1e-5)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_a_model_without_heads_gives_empty_tables_that_say_so(norm: str):
    bare = random_weights(norm=norm, n_heads=0, n_kv_heads=0)
    for table in (composition_scores(bare), copying_scores(bare, draws=2)):
        assert table.rows() == []
        assert "2 layers of 0" in table.meta["empty"]


def test_writers_that_are_zero_are_null_and_flagged():
    rows = composition_scores(PLAIN.replace(W_O=torch.zeros_like(PLAIN.W_O)), via="K").rows()
    assert rows
    for row in rows:
        assert row["score"] is None and row["z"] is None and f"zero circuit: {row['writer']} OV" in row["flag"]
    for row in copying_scores(PLAIN.replace(W_O=torch.zeros_like(PLAIN.W_O)), draws=2).rows():
        assert row["copying"] is None and row["flag"] == f"zero circuit: {row['head']} OV"


def test_a_name_is_no_model_and_no_head():
    with as_users_run_it():
        for call in (composition_scores, copying_scores, direct_path_log_probs):
            with pytest.raises(UsageError, match=r"not a model.*'zoo:two-layer'"):
                call("zoo:two-layer")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"not a head.*'L0H1'"):
            composition_score(PLAIN.head("L1H0"), "L0H1", "K")  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_a_gain_that_the_readers_undo_changes_nothing_in_float32(scale: float):
    narrow = PLAIN.to(torch.float32)
    undone = {n: getattr(narrow, n) / scale for n in ("W_Q", "W_K", "W_V")}
    assert narrow.norm_gain is not None
    found = composition(narrow.replace(norm_gain=narrow.norm_gain * scale, **undone))
    for pair, value in composition(narrow).items():
        assert found[pair] == pytest.approx(value, rel=1e-3, abs=1e-4)


def test_folding_past_the_largest_number_is_named():
    huge = PLAIN.to(torch.float32)
    assert huge.norm_gain is not None
    huge = huge.replace(norm_gain=huge.norm_gain * 1e30, W_K=huge.W_K * 1e20)
    with pytest.raises(NotFinite, match="W_K"):
        composition_scores(huge)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(value: float):
    W_O = PLAIN.W_O.clone()
    W_O[0, 2, 3, 1] = value
    for scores in (composition_scores, copying_scores):
        with pytest.raises(NotFinite, match=r"W_O\[0, 2, 3, 1\]"):
            scores(PLAIN.replace(W_O=W_O))


def test_a_writer_along_the_mean_is_seen_by_no_reader():
    """LayerNorm takes the mean out before any head reads, so what is written along it alone reaches nobody."""
    W_O = PLAIN.W_O.clone()
    W_O[0, 1] = torch.ones(10, 1, dtype=torch.float64) @ torch.randn(1, 5, dtype=torch.float64)
    rows = composition_scores(PLAIN.replace(W_O=W_O)).rows()
    dead = [row for row in rows if row["writer"] == "L0H1"]
    assert len(dead) == 12
    for row in dead:
        assert row["score"] < 1e-12 and row["z"] is None and row["null_rms"] < 1e-12
        assert row["flag"] == "z: the null does not vary"
    assert all(row["z"] is not None for row in rows if row["writer"] != "L0H1")
