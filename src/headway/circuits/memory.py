"""Memory management: heads whose OV circuit takes away from the stream what it reads there.

A head with large negative eigenvalues of W_OV that attends to the present token subtracts it, and so frees the room that it
took. (Elhage et al. 2021, footnote 7.) The weights say what is taken away; where the head attends, only a text can say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from headway.algebra.null import eigenvalue_ratio
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

COLUMNS = {
    "head": Column("the head"),
    "ratio": Column("sum of the eigenvalues of W_OV over the sum of their absolute values", "dimensionless", -1, 1),
    "negative": Column("share of the eigenvalues' absolute values whose real part is negative", "dimensionless", 0, 1),
    "most_negative": Column(
        "the eigenvalue of W_OV with the most negative real part: -1 takes away a direction whole", "dimensionless"
    ),
    "trace": Column("trace of W_OV: what it adds to a direction itself, summed over directions", "dimensionless"),
    "flag": Column("why a value of this row is missing"),
}


@torch.no_grad()
def memory_scores(weights: Weights) -> Table:
    """The eigenvalues of each head's W_OV in the stream, most erasing first (smallest ratio); float64.

    Of weights with their norms folded in; a norm's scale multiplies `most_negative` and `trace`, never the ratios.
    Unchanged by a change of basis inside d_head, or of the stream. That a head erases also needs attention to the
    present token (`self_attention` of `behaviour.pattern_scores`). A zero circuit has null and a flag.

    >>> from headway.sources.handmade import previous_token_model
    >>> memory_scores(previous_token_model().weights).rows()[0]["head"]
    'L0H0'
    """
    check_weights(weights)
    seen = processed(weights.check_finite(), "folded")
    eps = torch.finfo(torch.promote_types(seen.dtype, torch.float32)).eps
    rows: list[dict[str, Any]] = []
    for id_ in seen.head_ids():
        ov = seen.head(id_).ov.to(torch.float64)
        values = ov.eigenvalues()
        size = float(torch.stack([torch.linalg.matrix_norm(f) for f in ov.factors]).prod())
        row: dict[str, Any] = {"head": str(id_), "trace": float(ov.trace())}
        total = float(values.abs().sum())
        if total <= len(values) * eps * size:
            zero = not float(ov.norm()) > eps * size
            flag = f"zero circuit: {id_} OV" if zero else "it writes nowhere that it reads"
            rows.append(row | {"flag": flag})
            continue
        negative = float(values.abs()[values.real < 0].sum()) / total
        row |= {
            "ratio": float(eigenvalue_ratio(values)),
            "negative": negative,
            "most_negative": float(values.real.min()),
        }
        rows.append(row | {"flag": None})
    origin = replace(seen.provenance, weights=weights.content_hash())
    return Table.from_rows(rows, COLUMNS, origin, {"dtype": "float64"}).sort("ratio")
