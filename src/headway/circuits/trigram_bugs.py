"""Skip-trigram bugs: triples that a head must raise because it raises two others, though no text says so.

The effect of [a ... b -> c] is alpha(a, b) times O(a, c). A head that raises [keep ... in -> mind] and [keep ... at -> bay]
therefore raises [keep ... in -> bay] and [keep ... at -> mind] too: alpha is positive, and O does not know the destination.
(Elhage et al. 2021, "Skip-Trigram Bugs".)
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from typing import Any

import numpy as np
import torch

from headway.circuits.entries import token_label
from headway.circuits.trigram_context import Assumed, TrigramContext, assumed, trigram_factors
from headway.circuits.trigrams import (
    COLUMNS as TRIGRAM_COLUMNS,
)
from headway.circuits.trigrams import (
    USUAL,
    chosen_heads,
    describe,
    effects,
    ids_of,
    skip_trigrams,
    triple_rows,
)
from headway.errors import BadInput
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

COLUMNS = {
    **{n: c for n, c in TRIGRAM_COLUMNS.items() if n not in {"form", "flag"}},
    "with_out_id": Column("id of the out that the text supports after this destination", "id", 0),
    "with_out": Column("that out: [source ... destination -> with_out] is one parent"),
    "with_out_effect": Column("effect of this parent", "logits"),
    "with_destination_id": Column("id of the destination that the text supports with this out", "id", 0),
    "with_destination": Column("that destination: [source ... with_destination -> out] is the other parent"),
    "with_destination_effect": Column("effect of the other parent", "logits"),
}
Row = dict[str, Any]
_RULE = (
    "a bug: both parents are among the k triples raised most and stand in the text at least once; the crossed triple does "
    "not, though its destination does have the source before it"
)


def skip_trigram_bugs(
    weights: Weights,
    head: str | HeadId | Iterable[str | HeadId] | None = None,
    *,
    k: int = 1000,
    context: TrigramContext = USUAL,
) -> Table:
    """Crossed triples of the k skip-trigrams raised most that a text does not support; largest effect first.

    head, k, context: as in `skip_trigrams`, but a thousand, for few of the largest effects stand in any text; a bug's
    parents are of one head and one source. Each bug has one row with
    its strongest pair of parents (largest product of effects). Effects are exact; that a triple is out of context is said
    of the text alone (`count` 0 of `count_pair` chances). Raises BadInput where there is no text to count in.

    >>> from headway.sources.handmade import skip_trigram_model
    >>> model = skip_trigram_model([(3, 7, 5), (3, 8, 6)], d_vocab=9).weights
    >>> text = torch.tensor([0, 3, 1, 7, 5, 0, 3, 2, 8, 6])
    >>> table = skip_trigram_bugs(model, "L0H0", context=TrigramContext(text=text))
    >>> [(row["source_id"], row["destination_id"], row["out_id"]) for row in table.rows()]
    [(3, 7, 6), (3, 8, 5)]
    """
    check_weights(weights)
    asked, around = chosen_heads(weights, head), assumed(weights, context)
    if around.counter is None:
        hint = "TrigramContext(text=ids), or --text FILE"
        raise BadInput("no text to count skip-trigrams in", expected="token ids", got="none", next_step=hint)
    raised = skip_trigrams(weights, asked, k=k, context=context).rows()
    seen = processed(weights, "folded")
    rows = [row for id_ in asked for row in bugs_among(weights, id_, raised, around)]
    rows.sort(key=lambda r: (-r["effect"], r["head"], r["source_id"], r["destination_id"], r["out_id"]))
    origin, meta = describe(weights, seen, asked, around, {"k": k})
    meta |= {"rule": _RULE} | ({} if rows else {"empty": "no crossed triple is out of context"})
    return Table.from_rows(rows, COLUMNS, origin, meta)


def bugs_among(weights: Weights, id_: HeadId, raised: list[Row], around: Assumed) -> list[Row]:
    """The bugs of one head among rows of `skip_trigrams`, counted in the text of `around`; in no order.

    >>> from headway.sources.handmade import skip_trigram_model
    >>> model = skip_trigram_model([(3, 7, 5)], d_vocab=9).weights
    >>> bugs_among(model, HeadId(0, 0), [], assumed(model, TrigramContext(text=[0, 3, 7, 5])))
    []
    """
    crossed = _crossed([row for row in raised if row["head"] == str(id_) and row["count"]])
    if not crossed:
        return []
    places = ids_of(weights, None), ids_of(weights, None)
    factors = trigram_factors(processed(weights, "folded"), id_, around, places)
    at = {int(token): place for place, token in enumerate(places[0])}
    source, destination, out = zip(*crossed, strict=True)
    triples = [torch.tensor(t) for t in ([at[a] for a in source], [at[b] for b in destination], out)]
    parts = effects(factors, (triples[0], triples[1], triples[2]), places)
    parts["head"] = np.zeros(len(crossed), dtype=np.int64)
    return [
        {name: row[name] for name in COLUMNS if name in row} | _parents(weights, *parents)
        for row, parents in zip(triple_rows(weights, parts, [str(id_)], around), crossed.values(), strict=True)
        if row["count"] == 0 and row["count_pair"] > 0
    ]


def _crossed(raised: list[Row]) -> dict[tuple[int, int, int], tuple[Row, Row]]:
    """Crossed triples of one head's supported ones, each with its strongest parents: (same destination, same out)."""
    out: dict[tuple[int, int, int], tuple[Row, Row]] = {}
    by_source: dict[int, list[Row]] = {}
    for row in raised:
        by_source.setdefault(row["source_id"], []).append(row)
    for source, rows in by_source.items():
        for one, other in permutations(rows, 2):
            if one["destination_id"] != other["destination_id"] and one["out_id"] != other["out_id"]:
                triple = (source, one["destination_id"], other["out_id"])
                if triple not in out or _strength(one, other) > _strength(*out[triple]):
                    out[triple] = one, other
    return out


def _strength(one: Row, other: Row) -> float:
    return one["effect"] * other["effect"]


def _parents(weights: Weights, one: Row, other: Row) -> Row:
    return {
        "with_out_id": one["out_id"],
        "with_out": token_label(weights, one["out_id"]),
        "with_out_effect": one["effect"],
        "with_destination_id": other["destination_id"],
        "with_destination": token_label(weights, other["destination_id"]),
        "with_destination_effect": other["effect"],
    }
