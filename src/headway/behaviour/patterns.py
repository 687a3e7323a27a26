"""What each head looked at, averaged over texts: the token before, earlier copies, what followed them, BOS, an offset.

A query is a real position that is not its row's first (which has nothing to choose) and does not hold BOS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.behaviour.averages import Averages
from headway.behaviour.observed import Observed
from headway.errors import ShapeProblem, TextProblem, UsageError
from headway.ids import HeadId
from headway.model.recording import Recording
from headway.provenance import Provenance
from headway.tables.table import Column, Table

_SHARES = ("previous_token", "duplicate_token", "prefix_matching_text", "bos", "self_attention")
_MEASURES = (*_SHARES, "entropy")
_WHY = {
    "duplicate_token": "no query has an earlier copy of its token",
    "prefix_matching_text": "no query has an earlier copy of its token with a token after it",
    "bos": "no query has a BOS to look at",
}
_NO_QUERY = "no text has a second token"


def _se(of: str, unit: str = "probability") -> Column:
    return Column(f"standard error of {of} over texts", unit, 0)


COLUMNS = {
    "head": Column("the head"),
    "previous_token": Column("attention to the position before, A[i, i-1], mean over queries", "probability", 0, 1),
    "previous_token_se": _se("previous_token"),
    "duplicate_token": Column(
        "attention to earlier copies of the query's own token, summed over them, mean over queries that have one",
        "probability",
        0,
        1,
    ),
    "duplicate_token_se": _se("duplicate_token"),
    "prefix_matching_text": Column(
        "attention to the tokens right after earlier copies of the query's own token (BOS excepted), summed over them, "
        "mean over queries that have one",
        "probability",
        0,
        1,
    ),
    "prefix_matching_text_se": _se("prefix_matching_text"),
    "bos": Column("attention to BOS tokens, mean over queries at or after one", "probability", 0, 1),
    "bos_se": _se("bos"),
    "self_attention": Column("attention to the query's own position, mean over queries", "probability", 0, 1),
    "self_attention_se": _se("self_attention"),
    "entropy": Column("entropy of the query's attention, -sum A ln A, mean over queries", "nats", 0),
    "entropy_se": _se("entropy", "nats"),
    "best_offset": Column("the offset D = destination - source that carries the most attention", "positions", 0),
    "best_offset_attention": Column(
        "attention at best_offset, A[i, i-D], mean over queries (0 where a query has no such position)",
        "probability",
        0,
        1,
    ),
    "best_offset_attention_se": _se("best_offset_attention, the offset taken as given"),
    "n": Column("texts averaged over", "texts", 1),
    "flag": Column("why a value of this row is missing"),
}


@torch.no_grad()
def pattern_scores(recordings: Iterable[Recording | Observed]) -> Table:
    """One row a head: where its attention went, with standard errors over texts (rows of tokens).

    recordings: any number of batches, taken one at a time, so that a stream fits in memory; patterns of other tools
    come in by `Observed.from_arrays`. What each column averages stands in its meaning; a mean over no query is null,
    with a flag. meta: the number of `texts`, of `queries`, and of `repeats` (queries with an earlier copy of their
    token). best_offset is chosen among all offsets, so its attention is at least previous_token and self_attention.
    Raises ShapeProblem when batches come from different models, TextProblem when there is none.

    >>> halves = [[[[1.0, 0, 0], [0.5, 0.5, 0], [0, 1.0, 0]]]]
    >>> row = pattern_scores([Observed.from_arrays([halves], [[0, 7, 7]], bos=0)]).rows()[0]
    >>> row["previous_token"], row["duplicate_token"], row["prefix_matching_text"], row["bos"]
    (0.75, 1.0, 0.0, 0.25)
    """
    if not isinstance(recordings, Iterable):
        got, hint = type(recordings).__name__, "Put a single one in a list: pattern_scores([recording])"
        raise UsageError("recordings", expected="any number of batches", got=got, next_step=hint)
    stream = iter(recordings)
    start = next(stream, None)
    if start is None:
        raise TextProblem("no recordings to average", expected="at least one batch of texts")
    first = Observed.of(start)
    means, offsets = _measure(first)
    for recording in stream:
        more, further = _measure(_same_model(first, Observed.of(recording)))
        means, offsets = means + more, _pool(offsets, further)
    rows = [_row(head, index, means, offsets) for index, head in enumerate(first.head_ids)]
    queries, repeats = (round(float(c) * means.n) for c in means.c[:2, 0])
    meta = {"queries": queries, "repeats": repeats, "texts": means.n}
    return Table.from_rows(rows, COLUMNS, _origin(start), meta)


def _row(head: HeadId, index: int, means: Averages, offsets: Averages) -> dict[str, Any]:
    row: dict[str, Any] = {"head": head, "n": means.n}
    flags: list[str] = []
    for measure, name in enumerate(_MEASURES):
        row[name], row[f"{name}_se"] = float(means.mean[measure, index]), float(means.se[measure, index])
        if math.isnan(row[name]):
            flags.append(_WHY.get(name, _NO_QUERY))
    if not math.isnan(float(offsets.mean[index, 0])):
        best = int(offsets.mean[index].numpy().argmax())  # numpy: the first of equal offsets, always
        row |= {"best_offset": best, "best_offset_attention": float(offsets.mean[index, best])}
        row["best_offset_attention_se"] = float(offsets.se[index, best])
    if means.n == 1:
        flags.append("one text: no standard error")
    return row | {"flag": "; ".join(dict.fromkeys(flags)) or None}


def _measure(seen: Observed) -> tuple[Averages, Averages]:
    """([measure, head], [head, offset]) averages of one batch, heads of all layers in one axis."""
    masks, query = _masks(seen)
    counts = [query, *(masks[m].any(-1) for m in (1, 2, 3)), query, query]
    sums, by_offset = [], []
    for pattern in seen.patterns:
        shares = torch.einsum("bhij,mbij->mhb", pattern, masks.to(pattern))
        entropy = torch.einsum("bhi,bi->hb", torch.special.entr(pattern).sum(-1), query.to(pattern))
        sums.append(torch.cat((shares, entropy[None])))
        by_offset.append(_by_offset(pattern, query))
    rows, n = seen.tokens.shape
    none = torch.zeros(0, dtype=torch.float64)
    joined = torch.cat(sums, 1) if sums else none.reshape(len(_MEASURES), 0, 1).expand(-1, -1, rows)
    offsets = torch.cat(by_offset) if by_offset else none.reshape(0, n, 1).expand(-1, -1, rows)
    places = torch.stack([c.sum(-1) for c in counts])[:, None]
    return Averages.of(joined, places.double()), Averages.of(offsets, query.sum(-1).double()[None, None])


def _masks(seen: Observed) -> tuple[Tensor, Tensor]:
    """([share, batch, dst, src] places that count for each of the shares, [batch, dst] which positions are queries)."""
    tokens, real = seen.tokens, seen.real
    n = tokens.shape[1]
    bos = torch.zeros_like(real) if seen.bos is None else tokens == seen.bos
    query = real & (real.cumsum(-1) > 1) & ~bos
    pairs = query[:, :, None] & real[:, None, :] & torch.ones(n, n, dtype=torch.bool, device=tokens.device).tril()
    eye = torch.eye(n, dtype=torch.bool, device=tokens.device)
    copies = pairs & (tokens[:, :, None] == tokens[:, None, :]) & ~eye
    # The token after an earlier copy j < i stands at j + 1 <= i: the copies, moved one source to the right. Nothing
    # wraps around, since the last position is never an earlier one.
    after = copies.roll(1, -1) & pairs & ~bos[:, None, :]
    before = pairs & torch.ones_like(eye).tril(-1).triu(-1)
    return torch.stack((before, copies, after, pairs & bos[:, None, :], pairs & eye)), query


def _by_offset(pattern: Tensor, query: Tensor) -> Tensor:
    """[head, offset, batch]: attention D positions back, summed over queries."""
    n = pattern.shape[-1]
    place = torch.arange(n, device=pattern.device)
    source = place[:, None] - place[None, :]  # [dst, offset]
    back = pattern.gather(-1, source.clamp_min(0).expand_as(pattern)).masked_fill(source < 0, 0)
    return torch.einsum("bhid,bi->hdb", back, query.to(pattern))


def _pool(offsets: Averages, more: Averages) -> Averages:
    """Both together, where the longer texts have offsets that the others lack."""
    width = max(offsets.x.shape[-1], more.x.shape[-1])
    return offsets.widened(width) + more.widened(width)


def _same_model(first: Observed, seen: Observed) -> Observed:
    """The second, or ShapeProblem when its heads or its BOS are others than those of the first."""
    if (first.head_ids, first.bos) != (seen.head_ids, seen.bos):
        shapes = [f"{len(s.patterns)} layers, {len(s.head_ids)} heads, bos={s.bos}" for s in (first, seen)]
        raise ShapeProblem("recordings of different models", expected=shapes[0], got=shapes[1])
    return seen


def _origin(seen: Recording | Observed) -> Provenance:
    """Arrays of other tools come from no weights that we know."""
    if isinstance(seen, Observed):
        return Provenance(source="patterns given as arrays")
    return replace(seen.weights.provenance, weights=seen.weights.content_hash())
