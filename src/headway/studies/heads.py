"""One row a head: what it does, by its weights and by its behaviour, and a plain name for it with the evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import replace
from typing import Any

from headway.behaviour.patterns import pattern_scores
from headway.behaviour.repeated import prefix_matching_scores, token_pool
from headway.behaviour.windows import record_windows, text_windows
from headway.circuits import copying_scores
from headway.model.weights import Weights, check_weights
from headway.studies.texts import StudyText, check_text
from headway.tables.table import Column, Table

Progress = Callable[[int, int], object]
KINDS = ("previous-token", "induction", "duplicate-token", "positional", "copying", "bos", "unexplained")

# From which value on a measure names a head; a head gets the first kind of KINDS whose condition holds.
ATTENDS = 0.4  # share of attention that makes a pattern (previous, duplicate, one offset)
MATCHES = 0.2  # prefix matching on random tokens, where chance is below 0.02
RESTS = 0.6  # attention to BOS
_COPIES = 4  # of the random tokens, as in Olsson et al. 2022
COPIES, COPIES_Z = 0.5, 2.0  # copying ratio, and its distance from the null (a ratio of 1 can be 3 sd away)

COLUMNS = {
    "head": Column("the head"),
    "kind": Column("plain name: the first that fits of " + ", ".join(KINDS)),
    "evidence": Column("the numbers behind the kind"),
    "copying": Column("eigenvalue ratio sum(lambda) / sum|lambda| of W_U W_OV W_E", "dimensionless", -1, 1),
    "copying_centred": Column("the same with W_U centred over the vocabulary", "dimensionless", -1, 1),
    "copying_z": Column("copying against W_O, W_V in random directions: (value - mean) / sd", "sd"),
    "previous_token": Column("attention to the position before, on text, mean over queries", "probability", 0, 1),
    "duplicate_token": Column("attention to earlier copies of the query's token, on text", "probability", 0, 1),
    "prefix_matching": Column(
        "attention to tokens after earlier copies of the query's token, on repeated random tokens", "probability", 0, 1
    ),
    "prefix_matching_text": Column("the same, on text", "probability", 0, 1),
    "bos": Column("attention to BOS, on text", "probability", 0, 1),
    "entropy": Column("entropy of the pattern's rows, on text", "nats", 0),
    "flag": Column("why a value of this row is missing"),
}


def head_atlas(
    weights: Weights,
    text: StudyText | None = None,
    *,
    processing: str = "folded",
    windows: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
) -> Table:
    """What each head does, by weights (copying, with its null) and by behaviour (patterns on text and random tokens).

    text: see `study_text`; without it the text columns are null, flagged. windows: how many windows of text are read,
    evenly spread. Prefix matching follows Olsson et al. 2022: 25 random tokens, 4 copies, 10
    rows (fewer tokens where vocabulary or context are smaller). One row a head, in
    layer order; `meta` states the thresholds behind `kind`.
    """
    check_weights(weights)
    check_text(text)
    pool = random_pool(weights)
    length = repeat_length(weights, pool, most=25, copies=_COPIES)
    by_head: dict[str, dict[str, Any]] = {str(head): {"head": str(head), "flag": []} for head in weights.head_ids()}
    sources = [copying_scores(weights, processing=processing, seed=seed)] if by_head else []
    if by_head and length:
        sources.append(prefix_matching_scores(weights, length=length, copies=_COPIES, seed=seed, pool=pool))
    if by_head and text is not None:
        rows = text_windows(text.ids, weights.config, limit=windows)
        sources.append(pattern_scores(record_windows(weights, rows, progress=progress)))
    for table in sources:
        for row in table.rows():
            _merge(by_head[row["head"]], row)
    for row in by_head.values():
        row["flag"] += [] if text is not None else ["no text"]
        row["flag"] += [] if length else ["too few tokens or too short a context for repeated random tokens"]
    rows_out = [_named(row) for row in by_head.values()]
    options: dict[str, Any] = {
        "windows": windows,
        "text": text.description if text else "none",
        "processing": processing,
        "random_tokens": f"{length} tokens, {_COPIES} copies",
    }
    meta = {
        "thresholds": {"attends": ATTENDS, "matches": MATCHES, "rests": RESTS, "copies": COPIES, "copies_z": COPIES_Z}
    }
    origin = sources[0].provenance if sources else replace(weights.provenance, weights=weights.content_hash())
    return Table.from_rows(rows_out, COLUMNS, origin.with_options(seed=seed, **options), meta)


def random_pool(weights: Weights) -> Any:
    """Ids for random text: without rare and common tokens where the model carries counts, as in the paper."""
    counts = None
    if weights.carried is not None and weights.config.d_vocab > 200:
        counts = weights.carried.bigram_table(weights.config.d_vocab).sum(0)
    return token_pool(weights.config, frequencies=counts)


def repeat_length(weights: Weights, pool: Sized, *, most: int, copies: int) -> int:
    """How many random tokens can be repeated `copies` times behind a BOS: at most `most`; 0 when not even two can."""
    room = (weights.config.n_ctx - (weights.config.bos is not None)) // copies
    length = min(most, len(pool), room)
    return length if length >= 2 else 0


def _merge(row: dict[str, Any], more: Mapping[str, Any]) -> None:
    if more.get("flag"):
        row["flag"].append(more["flag"])
    row |= {name: value for name, value in more.items() if name != "flag"}


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its kind and evidence, and only the columns of the atlas."""
    kind, evidence = kind_of(row)
    flag = "; ".join(dict.fromkeys(row["flag"])) or None
    return {name: row.get(name) for name in COLUMNS} | {"kind": kind, "evidence": evidence, "flag": flag}


def kind_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """The plain kind of a head and the evidence for it; a missing measure fulfils nothing.

    >>> kind_of({"previous_token": 0.8})
    ('previous-token', 'attends to the position before: 0.80')
    """

    def at_least(name: str, least: float) -> bool:
        value = row.get(name)
        return value is not None and value >= least

    copies = at_least("copying", COPIES) and at_least("copying_z", COPIES_Z)
    copying = f"OV copies: {row.get('copying') or 0:.2f} (z {row.get('copying_z') or 0:.1f})"
    matching = f"prefix matching {row.get('prefix_matching') or 0:.2f} on random tokens"
    if at_least("previous_token", ATTENDS):
        return "previous-token", f"attends to the position before: {row['previous_token']:.2f}"
    if at_least("prefix_matching", MATCHES) and copies:
        return "induction", f"{matching}; {copying}"
    if at_least("duplicate_token", ATTENDS):
        return "duplicate-token", f"attends to earlier copies of its token: {row['duplicate_token']:.2f}"
    if at_least("best_offset_attention", ATTENDS):
        where = f"{row['best_offset']} back" if row["best_offset"] else "to itself"
        return "positional", f"attends {where}: {row['best_offset_attention']:.2f}"
    if copies:
        return "copying", copying
    if at_least("bos", RESTS):
        return "bos", f"attends to BOS: {row['bos']:.2f}"
    if at_least("prefix_matching", MATCHES):
        return "unexplained", f"{matching}, but its OV does not copy: {row.get('copying') or 0:.2f}"
    return "unexplained", "no measure reaches its threshold"
