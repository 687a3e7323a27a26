"""Induction circuits from made-up tables: which rows appear, the margin, and every link that can be missing."""

from __future__ import annotations

from typing import Any

import pytest

from headway.studies import heads
from headway.studies.induction import induction_circuits
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
        for via in "KQ"
        for w, s in scores.items()
    ]
    return Table.from_rows(rows, PAIR)


def test_one_row_for_each_head_that_matches() -> None:
    (row,) = induction_circuits(atlas(), pairs()).rows()
    assert (row["reader"], row["writer"], row["next_writer"]) == ("L1H0", "L0H0", "L0H1")
    assert row["margin"] == pytest.approx(0.2) and row["complete"] and row["missing"] is None


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
