"""Induction circuits from made-up tables: which rows appear, the margin, and every link that can be missing; and from
hand-written models, whose circuits are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headway.sources.handmade.built import Built
from headway.sources.handmade.induction import induction_model, rotary_induction_model
from headway.sources.handmade.pointer import pointer_model
from headway.studies import heads
from headway.studies.induction import induction_circuits
from headway.studies.report import report_model
from headway.studies.texts import StudyText
from headway.tables.table import Column, Table

PAIR = {
    "reader": Column("reader"), "writer": Column("writer"), "via": Column("via"), "score": Column("score"),
    "z": Column("z"), "percentile": Column("percentile"), "reverse_score": Column("reverse"), "flag": Column("flag"),
}  # fmt: skip


def atlas(**changes: dict[str, Any]) -> Table:
    rows: dict[str, dict[str, Any]] = {
        "L0H0": {"previous_token": 0.9},
        "L0H1": {"previous_token": 0.1},
        "L0H2": {"previous_token": 0.5},
        "L1H0": {"prefix_matching": 0.6, "copying": 0.9, "copying_z": 9.0, "previous_token": 0.0},
        "L1H1": {"prefix_matching": 0.1, "copying": 0.9, "copying_z": 9.0, "previous_token": 0.0},
    }
    for head, change in changes.items():
        rows[head] |= change
    return Table.from_rows([{"head": h, "kind": "", "evidence": "", **row} for h, row in rows.items()], heads.COLUMNS)


def pairs(**scores: float) -> Table:
    scores = {"L0H0": 0.30, "L0H2": 0.25, "L0H1": 0.10} | scores
    rows = [
        {"reader": reader, "writer": w, "via": via, "score": s if via == "K" else 0.9, "z": 100 * s, "percentile": 50.0}
        for reader in ("L1H0", "L1H1")
        for via in "KQV"
        for w, s in scores.items()
    ]
    return Table.from_rows(rows, PAIR)


def test_one_row_for_each_head_that_matches() -> None:
    (row,) = induction_circuits(atlas(), pairs()).rows()
    assert (row["reader"], row["writer"], row["next_writer"]) == ("L1H0", "L0H0", "L0H1")
    assert row["margin"] == pytest.approx(0.2) and row["complete"] and row["missing"] is None
    assert (row["via"], row["composition"], row["writer_previous_token"]) == ("K", 0.30, 0.9)


def test_pointer_arithmetic_is_a_circuit_via_q() -> None:
    """A writer that finds the copy, and a higher Q-composition with it; L0H0 is no previous-token head here."""
    heads_of = atlas(L0H0={"previous_token": 0.0, "duplicate_token": 0.8})
    (row,) = induction_circuits(heads_of, pairs()).rows()
    assert (row["via"], row["writer"], row["composition"], row["complete"]) == ("Q", "L0H0", 0.9, True)
    assert row["next_writer"] == "L0H2" and row["margin"] == 0 and row["writer_duplicate_token"] == 0.8


def test_of_two_complete_circuits_the_closer_is_named() -> None:
    both = atlas(L0H0={"previous_token": 0.9, "duplicate_token": 0.8})
    (row,) = induction_circuits(both, pairs()).rows()
    assert (row["via"], row["composition"]) == ("Q", 0.9)
    (row,) = induction_circuits(both, pairs(L0H0=0.95)).rows()
    assert (row["via"], row["composition"]) == ("K", 0.95)


@pytest.mark.parametrize(
    ("table", "scores", "says"),
    [
        (atlas(L0H0={"previous_token": 0.3}), pairs(), "no previous-token head"),
        (atlas(), pairs(L0H0=0.02, L0H1=0.01, L0H2=0.01), "within chance"),
        (atlas(L1H0={"copying": -0.9}), pairs(), "does not copy"),
        (atlas(L1H0={"copying_z": 1.9}), pairs(), "does not copy"),
        (atlas(L1H0={"copying": None, "copying_z": None}), pairs(), "does not copy"),
    ],
)
def test_a_missing_link_is_named(table: Table, scores: Table, says: str) -> None:
    (row,) = induction_circuits(table, scores).rows()
    assert not row["complete"] and says in row["missing"]


def test_a_writer_that_is_no_previous_token_head_gives_a_margin_of_zero() -> None:
    (row,) = induction_circuits(atlas(), pairs(L0H1=0.5)).rows()
    assert row["writer"] == row["next_writer"] == "L0H1" and row["margin"] == 0 and not row["complete"]


def test_no_reader_is_said_why() -> None:
    table = induction_circuits(atlas(L1H0={"prefix_matching": 0.1}), pairs())
    assert len(table) == 0 and "no head" in table.meta["why_empty"]


def known_text(n_ctx: int, d_vocab: int, seed: int) -> StudyText:
    """Windows in which all tokens but BOS come in random order, twice and a bit."""
    random = np.random.default_rng(seed)
    rows = [np.tile(random.permutation(np.arange(1, d_vocab)), 3)[: n_ctx - 1] for _ in range(12)]
    return StudyText(np.concatenate([np.r_[0, row] for row in rows]), "repeated permutations")


@pytest.mark.parametrize(
    ("make", "writer_kind", "via", "dims"),
    [
        (induction_model, "previous-token", "K", 24),
        (rotary_induction_model, "previous-token", "K", 24),
        (pointer_model, "duplicate-token", "Q", 12),
    ],
)
def test_hand_written_circuits_are_found(make: Callable[..., Built], writer_kind: str, via: str, dims: int) -> None:
    """The report's own functions name both heads and the composition that joins them, 1 / sqrt(dims) each."""
    weights = make(d_vocab=25, n_ctx=64).weights
    text = known_text(64, 25, 3)
    study = report_model(weights, text, name="hand-written")
    writer, reader = study.tables["heads"].rows()
    assert (writer["kind"], reader["kind"]) == (writer_kind, "induction")
    assert reader["prefix_matching"] >= 0.99
    (circuit,) = study.tables["induction-circuits"].rows()
    assert (circuit["reader"], circuit["writer"], circuit["via"], circuit["complete"]) == ("L1H0", "L0H0", via, True)
    assert circuit["composition"] == pytest.approx(1 / math.sqrt(dims), rel=1e-6)
    side = {"K": "keys", "Q": "queries"}[via]
    said = " ".join(study.summary)
    assert f"L1H0 reads through its {side} what L0H0 wrote ({via}-composition" in said and "complete" in said
    assert f"{writer_kind} L0H0; induction L1H0" in said
