"""Induction circuits: a head that finds what followed its token last time, through what an earlier head wrote.

By K-composition: the earlier head writes at each position what came before it, and the reader looks for its own token
there. By Q-composition, pointer arithmetic: the earlier head finds the copy of the present token and writes where it
stands, and the reader looks one position further.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UsageError
from headway.studies.heads import ATTENDS, COPIES, COPIES_Z, MATCHES
from headway.tables.table import Column, Table

COMPOSES_Z = 3.0  # K-composition beyond a random rotation, of the square

COLUMNS = {
    "reader": Column("the head that would be the induction head: its prefix matching is at least the threshold"),
    "via": Column("K: the reader looks for what a previous-token head wrote; Q: for where a duplicate-token head points"),
    "writer": Column("the earlier head with the reader's highest composition of this kind"),
    "composition": Column("K- or Q-composition of reader and writer (see via)", "dimensionless", 0, 1),
    "z": Column("its distance from a random rotation, of the square", "sd"),
    "percentile": Column("its place among all allowed pairs", "percent", 0, 100),
    "reverse_score": Column("the value for the reversed pair", "dimensionless", 0, 1),
    "writer_previous_token": Column("the writer's attention to the position before, on text", "probability", 0, 1),
    "writer_duplicate_token": Column(
        "the writer's attention to earlier copies of the query's token, on text", "probability", 0, 1
    ),
    "next_writer": Column("the reader's best writer that does not attend as via asks"),
    "margin": Column("composition of writer minus that of next_writer", "dimensionless", -1, 1),
    "reader_copying": Column("the reader's copying ratio", "dimensionless", -1, 1),
    "reader_prefix_matching": Column("the reader's prefix matching on repeated random tokens", "probability", 0, 1),
    "complete": Column("whether every link holds: the writer attends as via asks, the reader composes with it beyond "
                       "chance, matches prefixes, and copies"),
    "missing": Column("the links that do not hold"),
    "flag": Column("why a value of this row is missing"),
}  # fmt: skip

# What the writer of each kind of circuit attends to, and what it is not when it does not.
_WRITERS = {"K": ("previous_token", "previous-token"), "Q": ("duplicate_token", "duplicate-token")}


def induction_circuits(atlas: Table, composition: Table) -> Table:
    """The induction circuits that the heads' scores show, one row for each head that matches prefixes.

    atlas: from `head_atlas`; composition: from `composition_scores`, of the same weights. A row is there for every head
    with prefix matching of at least the threshold, complete or not; sorted by prefix matching. Of its two possible
    circuits the row is the complete one, of two the one with the higher composition, of none that via K. No row means that
    no head matches prefixes (`meta["why_empty"]`).
    """
    _check_made_by("head_atlas", atlas, ("head", "prefix_matching", "previous_token", "duplicate_token", "copying"))
    _check_made_by("composition_scores", composition, ("reader", "writer", "via", "score", "z"))
    heads = {row["head"]: row for row in atlas.rows()}
    pairs = [row for row in composition.rows() if row["via"] in _WRITERS and row["score"] is not None]
    readers = [h for h, row in heads.items() if (row["prefix_matching"] or 0) >= MATCHES]
    rows = [_circuit(heads, reader, [p for p in pairs if p["reader"] == reader]) for reader in readers]
    rows = sorted((r for r in rows if r is not None), key=lambda r: -(r["reader_prefix_matching"] or 0))
    meta: dict[str, Any] = {"threshold": MATCHES, "composes_z": COMPOSES_Z}
    if not rows:
        short = f"no head above layer 0 has prefix matching of {MATCHES} or more"
        meta["why_empty"] = composition.meta.get("empty", short) if heads else "the model has no attention layers"
    return Table.from_rows(rows, COLUMNS, composition.provenance, meta)


def _check_made_by(maker: str, table: object, needed: tuple[str, ...]) -> None:
    if not isinstance(table, Table) or set(needed) - set(table.columns):
        got = f"a table of {', '.join(table.columns)}" if isinstance(table, Table) else type(table).__name__
        raise UsageError("not scores of heads", expected=f"the table of {maker}", got=got)


def _circuit(heads: Mapping[str, Mapping[str, Any]], reader: str, pairs: list[dict[str, Any]]) -> dict[str, Any] | None:
    found = [_via(via, heads, reader, [p for p in pairs if p["via"] == via]) for via in _WRITERS]
    rows = [row for row in found if row is not None]
    return max(rows, key=lambda r: (r["complete"], r["composition"] if r["complete"] else 0.0), default=None)


def _via(
    via: str, heads: Mapping[str, Mapping[str, Any]], reader: str, pairs: list[dict[str, Any]]
) -> dict[str, Any] | None:
    if not pairs:
        return None
    pairs = sorted(pairs, key=lambda p: -p["score"])
    best, row = pairs[0], heads[reader]
    writer = heads[best["writer"]]
    attends, kind = _WRITERS[via]
    unknown = writer[attends] is None
    others = [] if unknown else [p for p in pairs if (heads[p["writer"]][attends] or 0) < ATTENDS]
    no_margin = "no text was read: no margin" if unknown else f"every writer is a {kind} head: no margin"
    links = {
        f"whether the writer is a {kind} head is not known: no text was read": not unknown,
        f"the writer is no {kind} head": unknown or writer[attends] >= ATTENDS,
        f"the {via}-composition is within chance": (best["z"] or 0) >= COMPOSES_Z,
        "the reader's OV does not copy": (row["copying"] or 0) >= COPIES and (row["copying_z"] or 0) >= COPIES_Z,
    }
    missing = [what for what, holds in links.items() if not holds]
    return {
        "reader": reader,
        "via": via,
        "writer": best["writer"],
        "composition": best["score"],
        "z": best["z"],
        "percentile": best["percentile"],
        "reverse_score": best["reverse_score"],
        "writer_previous_token": writer["previous_token"],
        "writer_duplicate_token": writer["duplicate_token"],
        "next_writer": others[0]["writer"] if others else None,
        "margin": best["score"] - others[0]["score"] if others else None,
        "reader_copying": row["copying"],
        "reader_prefix_matching": row["prefix_matching"],
        "complete": not missing,
        "missing": "; ".join(missing) or None,
        "flag": None if others else no_margin,
    }
