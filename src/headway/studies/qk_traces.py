"""The trace of QK eigenvalues of Olsson et al. 2022: do heads look for their own token through previous-token heads?

    W(h) = sum_e s_e W_E^T W_QK(h) W_OV(e) W_E,   s_e = mean A_i,i-1 of each earlier head e on text

Weights say what each earlier head could hand on, behaviour how much of its attention stands one back, where induction
needs it. The trace sums, over tokens, how strongly a destination scores a source that comes right after its own token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from headway.algebra.null import eigenvalue_ratio
from headway.behaviour.observed import Observed
from headway.behaviour.patterns import pattern_scores
from headway.circuits.pairs import Pairs
from headway.circuits.token_terms import TERM_VIAS, Terms, terms_of
from headway.errors import ShapeProblem
from headway.model.recording import Recording
from headway.model.weights import Weights
from headway.tables.table import Column, Table

COLUMNS = {
    "head": Column("the head that reads, of the second layer or a later one"),
    "qk_trace": Column(
        "attn_scale x trace of sum_e s_e W_E^T W_QK W_OV(e) W_E, s_e the attention of head e to the token before",
        "nats",
    ),
    "qk_positivity": Column(
        "sum of the eigenvalues of that matrix over the sum of their absolute values", "dimensionless", -1, 1
    ),
    "qk_positivity_centred": Column("the same with scores centred over source tokens", "dimensionless", -1, 1),
    "strongest_writer": Column("the earlier head with the largest part in the trace"),
    "strongest_trace": Column("its part, s_e times the trace of its own term", "nats"),
    "flag": Column("why a value of this row is missing"),
}
_NOTES = (
    "Biases and norm scales are not in these matrices: the trace is in nats up to the norms.",
    "Shares of attention are taken as they are on this text; nothing is frozen or ablated.",
)


def qk_eigenvalue_traces(
    weights: Weights, recordings: Iterable[Recording | Observed], *, processing: str = "folded", offset: int = 0
) -> Table:
    """One row a head of layer 1 and later: trace and positivity of its QK term summed over earlier heads; largest first.

    recordings: of this model on text, as `pattern_scores` takes them; they give s_e alone. Exact, float64, in
    d_head x d_head. A head whose sum takes no token to any token has null ratios and a flag. A model without a second
    layer gives an empty table whose meta says so. Raises ShapeProblem for recordings of another model, UsageError for
    another processing or offset. (Olsson et al. 2022, "trace of QK eigenvalues".)

    >>> from headway.model.forward import run
    >>> from headway.sources.handmade import induction_model
    >>> model = induction_model(d_vocab=6, n_ctx=8).weights
    >>> row = qk_eigenvalue_traces(model, [run(model, torch.tensor([[0, 1, 2, 1, 3]]))]).rows()[0]
    >>> row["head"], row["strongest_writer"], round(row["qk_positivity"], 6)
    ('L1H0', 'L0H0', 1.0)
    """
    pairs = Pairs.of(weights, "K", None, (processing, offset), TERM_VIAS)
    behaviour = pattern_scores(recordings)
    shares = {row["head"]: row["previous_token"] for row in behaviour.rows()}
    if list(shares) != [str(name) for name in pairs.names]:
        got = f"{len(shares)} heads" if len(shares) != len(pairs.names) else ", ".join(list(shares)[:4])
        raise ShapeProblem("recordings of another model", expected=f"{len(pairs.names)} heads, as the weights", got=got)
    rows = [_row(pairs, terms, shares) for terms in terms_of(pairs, "K")]
    origin = replace(pairs.seen.provenance, weights=weights.content_hash()).with_options(None, offset=offset)
    meta: dict[str, Any] = {"dtype": "float64", "texts": behaviour.meta["texts"], "notes": list(_NOTES)}
    if not rows:
        meta["empty"] = "no head has an earlier head"
    return Table.from_rows(rows, COLUMNS, origin, meta).sort("qk_trace", descending=True)


def _row(pairs: Pairs, terms: Terms, shares: dict[str, float | None]) -> dict[str, Any]:
    head = str(pairs.names[terms.reader])
    found = [shares[str(pairs.names[w])] for w in terms.writers]
    if any(share is None for share in found):
        return {"head": head, "flag": "the text has no query that could look at the token before"}
    s = torch.tensor(found, dtype=torch.float64) * terms.size
    largest = float(s.max()) or 1.0
    total = torch.einsum("w,kwij->kij", s / largest, terms.cores)
    parts = s * terms.cores[0].diagonal(dim1=-2, dim2=-1).sum(-1) * pairs.seen.config.attn_scale
    row: dict[str, Any] = {"head": head, "qk_trace": float(parts.sum())}
    if not bool((torch.linalg.matrix_norm(total) > (s / largest * terms.floor).sum(-1)).all()):
        return row | {"flag": "the term takes no token to any token"}
    best = int(parts.argmax())
    raw, centred = eigenvalue_ratio(torch.linalg.eigvals(total)).tolist()
    row |= {"qk_positivity": raw, "qk_positivity_centred": centred}
    return row | {"strongest_writer": str(pairs.names[terms.writers[best]]), "strongest_trace": float(parts[best])}
