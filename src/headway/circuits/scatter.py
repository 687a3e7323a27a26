"""The scatter that picks out induction heads: positivity of the QK term against positivity of the OV circuit.

A pair of heads does induction when, through the writer, the reader looks for its own token (all eigenvalues of
W_E^T W_QK W_OV(writer) W_E positive) and copies what it finds (all eigenvalues of W_U W_OV W_E positive): induction heads
lie in the corner (1, 1) (Elhage et al. 2021, "Checking the mechanistic theory").
"""

from __future__ import annotations

from typing import Any

from headway.circuits.copying import copying_scores
from headway.circuits.pairs import FLAG, NAMES
from headway.circuits.token_terms import COLUMNS as TERM_COLUMNS
from headway.circuits.token_terms import USUAL, Draws, token_term_scores
from headway.model.weights import Weights
from headway.tables.table import Column, Table

COLUMNS = {
    "reader": NAMES["reader"],
    "writer": NAMES["writer"],
    "corner": Column("the smaller of qk and ov: 1 in the corner of induction heads", "dimensionless", -1, 1),
    "qk": TERM_COLUMNS["positivity"],
    "qk_z": TERM_COLUMNS["positivity_z"],
    "ov": Column("copying of the reader: eigenvalue ratio of W_U W_OV W_E", "dimensionless", -1, 1),
    "ov_z": Column("(ov - its null mean) / its null standard deviation", "dimensionless"),
    "qk_centred": TERM_COLUMNS["positivity_centred"],
    "ov_centred": Column("the same as ov with W_U centred over the vocabulary", "dimensionless", -1, 1),
    "flag": FLAG,
}


def induction_scatter(weights: Weights, *, processing: str = "folded", offset: int = 0, draws: Draws = USUAL) -> Table:
    """One row a pair: K-term positivity of the pair and copying of its reader; nearest the induction corner first.

    Both ratios run from -1 to 1; z of each is against its own null (see `token_term_scores` and `copying_scores`), both
    with `draws`. A pair whose circuits give no ratio is null, with a flag. Raises as `token_term_scores`.

    >>> from headway.sources.handmade import induction_model
    >>> row = induction_scatter(induction_model(d_vocab=6).weights, draws=Draws(5)).rows()[0]
    >>> row["reader"], row["writer"], round(row["corner"], 6)
    ('L1H0', 'L0H0', 1.0)
    """
    terms = token_term_scores(weights, via="K", processing=processing, offset=offset, draws=draws)
    copying = {
        row["head"]: row
        for row in copying_scores(weights, processing=processing, draws=draws.n, seed=draws.seed).rows()
    }
    rows: list[dict[str, Any]] = []
    for term in terms.rows():
        copy = copying[term["reader"]]
        both = term["positivity"], copy["copying"]
        flags = [term["flag"], None if copy["flag"] is None else f"ov: {copy['flag']}"]
        row = {"reader": term["reader"], "writer": term["writer"], "qk": both[0], "ov": both[1]}
        row |= {"corner": None if None in both else min(both), "qk_z": term["positivity_z"], "ov_z": copy["copying_z"]}
        row |= {"qk_centred": term["positivity_centred"], "ov_centred": copy["copying_centred"]}
        rows.append(row | {"flag": "; ".join(flag for flag in flags if flag) or None})
    meta = {key: terms.meta[key] for key in ("dtype", "null", "positions", "notes")}
    meta |= {"empty": terms.meta["empty"]} if "empty" in terms.meta else {}
    return Table.from_rows(rows, COLUMNS, terms.provenance, meta).sort("corner", descending=True)
