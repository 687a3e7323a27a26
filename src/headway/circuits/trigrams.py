"""Skip-trigrams [source ... destination -> out]: what a head does to a logit for having seen a token earlier.

    effect(a, b, c) = alpha_ba D_b O_ca     in logits

alpha: the attention that b gives to a in an otherwise average context (see TrigramContext). O: W_U W_OV E centred over
outs, without W_O b_V. D_b: the final norm's scale on b's own embedding, 1 without a norm. A constant on a row of scores
or on all logits changes nothing. (Elhage et al. 2021, "Skip-Trigrams"; the context is ours.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headway.algebra.given import whole_number
from headway.circuits.entries import token_id, token_label
from headway.circuits.ov import ov_circuit
from headway.circuits.trigram_context import Assumed, TrigramContext, assumed, trigram_factors
from headway.circuits.trigram_search import Factors, Progress, top_triples
from headway.errors import UsageError
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.provenance import Provenance
from headway.tables.table import Column, Table

MOST = 10_000  # triples of one question
_PLACES = ("source", "destination", "out")

COLUMNS = {
    "head": Column("the head"),
    **{
        name: column
        for place in _PLACES
        for name, column in (
            (f"{place}_id", Column(f"id of the {place} token", "id", 0)),
            (place, Column(f"the {place} token, made visible")),
        )
    },
    "effect": Column("attention x scale x ov: what the source does to the logit of `out` at the destination", "logits"),
    "attention": Column("alpha: attention to one source in an otherwise average context", "probability", 0, 1),
    "scale": Column(
        "1/sigma of the final norm on the destination's own embedding, 1 without a norm", "dimensionless", 0
    ),
    "ov": Column("W_U W_OV E, centred over outs: logits of `out` from attending to `source` alone", "logits"),
    "form": Column("copying: out is the source; tokenisation: destination and out spell the source"),
    "count": Column("times in the text that `out` follows the destination with the source before it", "times", 0),
    "count_pair": Column("times that the destination has the source before it", "times", 0),
    "count_bigram": Column("times that `out` follows the destination, whatever came before", "times", 0),
    "expected": Column(
        "`count` if the source told nothing: count_pair x count_bigram / count of destinations", "times", 0
    ),
    "flag": Column("why a value of this row is missing"),
}
_POSITIONS = {
    "none": "scores have no position in them",
    "shortformer": "scores are of contents alone: what positions add to them is left out",
    "learned": "scores and outputs are of token embeddings alone: the position table is left out",
}


@dataclass(frozen=True)
class TrigramPick:
    """Which triples: those raised most, or lowered most; of one source, or one destination, where named by id or text."""

    largest: bool = True
    source: str | SupportsIndex | None = None
    destination: str | SupportsIndex | None = None


ANY = TrigramPick()  # triples of whatever tokens, raised most
USUAL = TrigramContext()


def skip_trigrams(
    weights: Weights,
    head: str | HeadId | Iterable[str | HeadId] | None = None,
    *,
    k: int = 100,
    pick: TrigramPick = ANY,
    context: TrigramContext = USUAL,
    progress: Progress | None = None,
) -> Table:
    """The k skip-trigrams with the largest effects of one head, several, or all (None) together; exact, largest first.

    Largest positive effects, or with `pick.largest=False` the most negative. Beside each: its parts, the copying form, and
    how often a text has it (`context.text`, else the held-out text that the model carries, else null and a flag). k: up to
    10,000, over all heads together. Exact up to rounding in the weights' precision for a head of layer 0; above, only what
    it reads of embeddings directly. The same for raw and folded weights. Heads that move nothing have no rows and are named
    in `meta["without_rows"]`. Raises UnknownName for heads and tokens that do not exist, UsageError for another k.

    >>> from headway.sources.handmade import skip_trigram_model
    >>> model = skip_trigram_model([(3, 7, 5)], d_vocab=9).weights
    >>> row = skip_trigrams(model, "L0H0", k=1).rows()[0]
    >>> row["source_id"], row["destination_id"], row["out_id"]
    (3, 7, 5)
    """
    check_weights(weights)
    asked = chosen_heads(weights, head)
    k = check_k(k)
    if not isinstance(pick, TrigramPick):
        raise UsageError("pick of skip-trigrams", expected="a TrigramPick", got=repr(pick)[:60])
    around = assumed(weights, context)
    fixed = {n: token_id(weights, t) for n in ("source", "destination") if (t := getattr(pick, n)) is not None}
    places = ids_of(weights, fixed.get("source")), ids_of(weights, fixed.get("destination"))
    seen = processed(weights.check_finite(), "folded")
    found: list[dict[str, np.ndarray]] = []
    without: dict[str, str] = {}
    for number, id_ in enumerate(asked):
        if reason := why_nothing(seen, id_, places):
            without[str(id_)] = reason
            continue
        factors = trigram_factors(seen, id_, around, places, progress)
        triples = top_triples(factors, k, largest=pick.largest, progress=progress)
        parts = effects(factors, (triples.source, triples.destination, triples.out), places)
        found.append(parts | {"head": np.full(len(parts["effect"]), number)})
    options = {"k": k, "largest": bool(pick.largest), **fixed}
    origin, meta = describe(weights, seen, asked, around, options)
    if without:
        meta["without_rows"] = without
    best = _merged(found, k, 1 if pick.largest else -1)
    if best is None or not len(best["effect"]):
        meta["empty"] = "; ".join(without.values()) or "no heads" if not found else "no effect of this sign"
        return Table.from_rows([], COLUMNS, origin, meta)
    rows = triple_rows(weights, best, [str(id_) for id_ in asked], around)
    return Table.from_rows(rows, COLUMNS, origin, meta)


def chosen_heads(weights: Weights, head: str | HeadId | Iterable[str | HeadId] | None) -> list[HeadId]:
    """The heads named, each once, or all of them. Raises UnknownName, UsageError."""
    if head is None:
        return list(weights.head_ids())
    names = [head] if isinstance(head, str | HeadId) else head
    if not isinstance(names, Iterable):
        raise UsageError(
            "heads of skip-trigrams", expected="a head such as L0H3, several, or None", got=repr(head)[:60]
        )
    return list(dict.fromkeys(weights.head_id(name) for name in names))


def check_k(k: int) -> int:
    """A number of triples, 1 to 10,000."""
    k = whole_number(k, "number k of skip-trigrams", least=1)
    if k > MOST:
        raise UsageError("number k of skip-trigrams", expected=f"at most {MOST:,}", got=f"{k:,}")
    return k


def ids_of(weights: Weights, fixed: int | None) -> Int[Tensor, " n"]:
    """Ids that a source or destination can have: one, or all but BOS. Raises UsageError for BOS."""
    bos = weights.config.bos
    if fixed is not None and fixed == bos:
        raise UsageError("BOS is neither source nor destination", expected="another token", got=f"id {bos}")
    every = torch.arange(weights.config.d_vocab) if fixed is None else torch.tensor([fixed])
    return every if bos is None else every[every != bos]


@torch.no_grad()
def why_nothing(seen: Weights, head: HeadId, places: tuple[Tensor, Tensor]) -> str | None:
    """Why a head has no effects: its OV moves no logit against the others, or there is nothing to ask about."""
    if not all(len(ids) for ids in places):
        return "no tokens besides BOS"
    left, right = ov_circuit(seen, head, centred=False).pair()
    size = torch.linalg.matrix_norm(left.double()) * torch.linalg.matrix_norm(right.double())
    moves = ov_circuit(seen, head).norm().double() > 8 * torch.finfo(left.dtype).eps * size
    return None if bool(moves) else f"zero circuit: {head} OV, centred over outs"


def effects(
    factors: Factors, triples: tuple[Tensor, Tensor, Tensor], places: tuple[Tensor, Tensor]
) -> dict[str, np.ndarray]:
    """Ids and values of triples given by their places, float64."""
    source, destination, out = triples
    alpha, scale, moved = factors.values(source, destination, out)
    ids = {
        "source": places[0].to(source.device)[source],
        "destination": places[1].to(source.device)[destination],
        "out": out,
    }
    values = {"effect": alpha * scale * moved, "attention": alpha, "scale": scale, "ov": moved}
    return {name: t.detach().cpu().numpy() for name, t in (ids | values).items()}


def triple_rows(
    weights: Weights, triples: dict[str, np.ndarray], heads: list[str], around: Assumed
) -> list[dict[str, Any]]:
    """A row for each triple, with its form and its counts."""
    n = len(triples["effect"])
    columns: dict[str, list[Any]] = {"head": [heads[i] for i in triples["head"]]}
    for place in _PLACES:
        ids = triples[place].tolist()
        columns |= {f"{place}_id": ids, place: [token_label(weights, i) for i in ids]}
    columns |= {name: triples[name].tolist() for name in ("effect", "attention", "scale", "ov")}
    ids = [triples[place].tolist() for place in _PLACES]
    columns["form"] = [form_of(weights, *triple) for triple in zip(*ids, strict=True)]
    if around.counter is None:
        columns["flag"] = ["counts: no text"] * n
    else:
        counts = around.counter.count(*ids)
        columns |= {"count": counts.triple.tolist(), "count_pair": counts.pair.tolist()}
        columns |= {"count_bigram": counts.bigram.tolist(), "expected": counts.expected.tolist()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def form_of(weights: Weights, source: int, destination: int, out: int) -> str | None:
    """`copying` for [b ... a -> b], `tokenisation` for [ab ... a -> b] up to spaces in front, None for anything else.

    >>> from headway.sources.handmade import copying_model
    >>> form_of(copying_model().weights, 5, 9, 5)
    'copying'
    """
    if source == out:
        return "copying"
    known = weights.tokenizer
    if known is None or max(source, destination, out) >= known.d_vocab:
        return None
    whole, head, tail = (known.token_bytes(i) for i in (source, destination, out))
    spelled = bool(head.strip() and tail) and (head + tail).lstrip(b" ") == whole.lstrip(b" ")
    return "tokenisation" if spelled else None


def describe(
    weights: Weights, seen: Weights, heads: list[HeadId], around: Assumed, options: dict[str, Any]
) -> tuple[Provenance, dict[str, Any]]:
    """Provenance and meta of a table of triples: what was assumed, and what is left out."""
    c = weights.config
    options = {"heads": ",".join(map(str, heads)), **options, "n": around.n, "offset": around.offset}
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(None, **options)
    rotary = f"scores at offset {around.offset} for the source and the average token, 0 for the destination itself" + (
        f", {around.n - 1} for BOS" if c.bos is not None else ""
    )
    notes = ["W_O b_V is left out, and the read norm's bias with it."]
    if c.norm != "none":
        notes.append("The final norm's scale is that of the destination's own embedding; in a text others write too.")
    if any(id_.layer for id_ in heads):
        notes.append(
            "Above layer 0 this is the direct path alone: tokens as embedded, nothing that earlier heads wrote."
        )
    notes.append(
        "attention is to one source in an average context of n tokens: not the expected attention, nor that of a text."
    )
    meta: dict[str, Any] = {
        "dtype": str(torch.promote_types(seen.dtype, torch.float32)).removeprefix("torch."),
        "context": f"{around.n} positions"
        + (": BOS, source, destination" if c.bos is not None else " without a BOS: source, destination")
        + ", and average tokens",
        "unigram": around.share_from,
        "positions": rotary if c.positions == "rotary" else _POSITIONS[c.positions],
        "text": around.text,
        "notes": notes,
    }
    return origin, meta


def _merged(found: list[dict[str, np.ndarray]], k: int, sign: int) -> dict[str, np.ndarray] | None:
    """The k best of all heads, ties by head and ids."""
    if not found:
        return None
    every = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    order = np.lexsort((every["out"], every["destination"], every["source"], every["head"], -sign * every["effect"]))
    return {name: values[order[:k]] for name, values in every.items()}
