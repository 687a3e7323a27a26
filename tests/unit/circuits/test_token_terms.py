"""The token-level term against dense vocabulary-sized matrices, its null against redrawn heads, and planted induction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.circuits.token_terms import COLUMNS, Draws, token_term_scores
from headway.errors import CannotCompose, UsageError
from headway.model.process import processed
from headway.model.weights import Weights
from headway.sources.handmade import induction_model, pointer_model, rotary_induction_model
from headway.sources.handmade.built import Built
from headway.tables.table import Table
from support.composed import Key, among_others, by_pair, rotations
from support.random_models import FEATURES, feature_name, random_weights
from support.unchecked import as_users_run_it

NONE = Draws(0)


def dense_term(seen: Weights, reader: str, writer: str, via: str, offset: int = 0) -> Tensor:
    """[destination token, source token]: K or Q of the reader fed by the writer, multiplied out."""
    W_E, W_QK, W_OV = seen.W_E, seen.head(reader).qk(offset).dense(), seen.head(writer).ov.dense()
    return W_E.T @ (W_QK @ W_OV if via == "K" else W_OV.T @ W_QK) @ W_E


def ratio(matrix: Tensor) -> float:
    eigenvalues = torch.linalg.eigvals(matrix)
    return float(eigenvalues.sum().real / eigenvalues.abs().sum())


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_it_is_the_spectrum_of_the_dense_term(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    seen = processed(weights, processing)
    rows = by_pair(token_term_scores(weights, processing=processing, offset=3, draws=NONE))
    assert {key[0] for key in rows} <= {"Q", "K"}
    for (via, reader, writer), row in rows.items():
        term = dense_term(seen, reader, writer, via, 3)
        assert row["positivity"] == pytest.approx(ratio(term), abs=1e-9)
        centred = term - term.mean(1 if via == "K" else 0, keepdim=True)
        assert row["positivity_centred"] == pytest.approx(ratio(centred), abs=1e-9)
        assert row["trace"] == pytest.approx(float(term.trace()) * weights.config.attn_scale, abs=1e-9)
        assert row["positivity_z"] is None and row["flag"] == "no null was drawn"


def test_centring_is_over_source_tokens_for_q_too():
    # For Q the written token is the destination: centring the term over either of its axes moves the same eigenvalues
    # as taking the mean token out of W_E on both sides does.
    weights = random_weights()
    term = dense_term(weights, "L1H0", "L0H1", "Q")
    row = by_pair(token_term_scores(weights, draws=NONE))["Q", "L1H0", "L0H1"]
    assert row["positivity_centred"] == pytest.approx(ratio(term - term.mean(1, keepdim=True)), abs=1e-9)


def test_a_constant_on_every_row_of_scores_moves_the_raw_ratio_only():
    # A direction that all tokens share, read by keys alone, adds one number to all scores of a destination.
    weights = random_weights(d_model=10, n_heads=1, n_kv_heads=1)
    common = torch.randn(10, 1, dtype=torch.float64)
    before = by_pair(token_term_scores(weights, via="K", draws=NONE))["K", "L1H0", "L0H0"]
    after = by_pair(token_term_scores(weights.replace(W_E=weights.W_E + 5 * common), via="K", draws=NONE))[
        "K", "L1H0", "L0H0"
    ]
    assert abs(after["positivity"] - before["positivity"]) > 1e-3
    assert after["positivity_centred"] == pytest.approx(before["positivity_centred"], abs=1e-9)


def test_a_change_of_basis_inside_d_head_or_of_the_stream_changes_nothing():
    weights = random_weights(n_kv_heads=4, positions="none")
    A, B = (torch.randn(2, 4, 5, 5, dtype=torch.float64) for _ in range(2))
    T = torch.randn(10, 10, dtype=torch.float64) + 2 * torch.eye(10, dtype=torch.float64)
    back = torch.linalg.inv(T)
    moved = weights.replace(
        W_E=T @ weights.W_E,
        W_Q=A.mT @ weights.W_Q @ back,
        W_K=torch.linalg.inv(A) @ weights.W_K @ back,
        W_V=B @ weights.W_V @ back,
        W_O=T @ weights.W_O @ torch.linalg.inv(B),
        W_U=weights.W_U @ back,
    )
    before, after = (by_pair(token_term_scores(w, draws=NONE)) for w in (weights, moved))
    for key, row in before.items():
        for name in ("positivity", "positivity_centred", "trace"):
            assert after[key][name] == pytest.approx(row[name], abs=1e-7)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_the_null_is_that_of_rotations_between_reader_and_writer(norm: str):
    weights = random_weights(norm=norm, d_model=7, d_head=3, n_heads=2, n_kv_heads=1, d_vocab=9)
    seen = processed(weights, "folded")
    draws = 1500
    row = by_pair(token_term_scores(weights, via="K", draws=Draws(draws)))["K", "L1H1", "L0H0"]
    reads, writes = seen.W_E.T @ seen.head("L1H1").qk().dense(), seen.head("L0H0").ov.dense() @ seen.W_E
    terms = reads @ rotations(draws, 7, centred=norm == "layer") @ writes
    if norm == "layer":  # what is written along the mean is never read
        ones = torch.ones(7, 7, dtype=torch.float64) / 7
        terms = terms - reads @ ones @ writes
    eigenvalues = torch.linalg.eigvals(terms)
    found = eigenvalues.sum(-1).real / eigenvalues.abs().sum(-1)
    assert abs(float(found.mean())) < 3.5 * float(found.std()) / draws**0.5
    assert float(found.std()) == pytest.approx(row["positivity_null_sd"], rel=0.1)
    traces = eigenvalues.sum(-1).real
    assert float(traces.std()) == pytest.approx(row["trace"] / weights.config.attn_scale / row["trace_z"], rel=0.1)


@pytest.mark.parametrize(
    ("model", "planted"),
    [
        (induction_model, ("K", "L1H0", "L0H0")),
        (rotary_induction_model, ("K", "L1H0", "L0H0")),
    ],
)
def test_planted_induction_has_only_positive_eigenvalues_and_stands_out(model: Callable[..., Built], planted: Key):
    weights = among_others(model(d_vocab=9, n_ctx=16).weights)
    rows = by_pair(token_term_scores(weights, via="K", draws=Draws(20)))
    best = rows.pop(planted)
    assert best["positivity"] == pytest.approx(1) and best["positivity_centred"] == pytest.approx(1)
    assert all(row["positivity"] is None or row["positivity"] < 0.95 for row in rows.values())
    assert all(row["trace_z"] is None or row["trace_z"] < best["trace_z"] for row in rows.values())
    W_O = weights.W_O.clone()
    W_O[0, 0] = 0
    without = by_pair(token_term_scores(weights.replace(W_O=W_O), draws=NONE))[planted]
    assert without["positivity"] is None and without["flag"] == "zero circuit: L0H0 OV"


def test_a_pointer_is_no_token_term():
    # Q-composition there carries positions: no token is taken to any token.
    row = by_pair(token_term_scores(pointer_model(d_vocab=9, n_ctx=16).weights, via="Q", draws=NONE))[
        "Q", "L1H0", "L0H0"
    ]
    assert row["positivity"] is None and "takes no token to any token" in row["flag"]


def test_zero_heads_are_flagged():
    weights = random_weights(n_kv_heads=4)
    W_O, W_K = weights.W_O.clone(), weights.W_K.clone()
    W_O[0, 2] = 0
    W_K[1, 1] = 0
    for (_, reader, writer), row in by_pair(
        token_term_scores(weights.replace(W_O=W_O, W_K=W_K), draws=Draws(2))
    ).items():
        zero = writer == "L0H2" or reader == "L1H1"
        assert all((row[name] is None) == zero for name in COLUMNS if name not in {"reader", "writer", "via", "flag"})
        assert (row["flag"] is not None) == zero


def rows_of(table: Table) -> dict[Key, float]:
    return {key: row["positivity"] for key, row in by_pair(table).items()}


def test_wide_heads_scale_and_half_precision():
    wide = random_weights(d_head=13, d_model=6)
    for (via, reader, writer), value in rows_of(token_term_scores(wide, draws=NONE)).items():
        assert value == pytest.approx(ratio(dense_term(wide, reader, writer, via)), abs=1e-7)
    weights = random_weights(dtype=torch.float32)
    before = rows_of(token_term_scores(weights, draws=NONE))
    for scale in (1e-30, 1e30):
        scaled: dict[str, Any] = {n: getattr(weights, n) * scale for n in ("W_Q", "W_K", "W_V", "W_O", "W_E")}
        after = rows_of(token_term_scores(weights.replace(**scaled), draws=NONE))
        assert all(after[key] == pytest.approx(value, rel=1e-4) for key, value in before.items())
    assert token_term_scores(random_weights(dtype=torch.bfloat16), draws=NONE).meta["dtype"] == "float64"


def test_the_same_seed_gives_the_same_spread_and_a_reader_alone_the_same_rows():
    weights = random_weights(n_layers=3)
    every = token_term_scores(weights, draws=Draws(5, seed=1))
    assert every == token_term_scores(weights, draws=Draws(5, seed=1))
    assert every != token_term_scores(weights, draws=Draws(5, seed=2))
    mine = token_term_scores(weights, reader="L1H2", draws=Draws(5, seed=1)).rows()
    assert mine == [row for row in every.rows() if row["reader"] == "L1H2"]
    assert every.provenance.seed == 1 and every.provenance.options["draws"] == 5


def test_models_without_pairs_and_bad_input():
    empty = token_term_scores(random_weights(biases="none", n_layers=1))
    assert len(empty) == 0 and list(empty.columns) == list(COLUMNS) and empty.meta["empty"]
    weights = random_weights()
    with pytest.raises(UsageError, match="via Q or K, or None"):
        token_term_scores(weights, via="V")
    with pytest.raises(CannotCompose):
        token_term_scores(weights, reader="L0H0")
    for draws in (Draws(1), Draws(-1), Draws(2, seed=-1), 50):
        with as_users_run_it(), pytest.raises(UsageError):
            token_term_scores(weights, draws=draws)  # type: ignore[arg-type]
