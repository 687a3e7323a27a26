"""The projection kernel: how many dimensions of what a head writes into are dimensions that a later head reads from.

    PK(S, T) = ||U^T V||_F^2 = sum of cos^2 of the principal angles,   U, V orthonormal bases of S and T

S is the column space of the writer's W_OV; T is what the reader's queries, keys or values can see at all: the row space
of W_QK^T, W_QK or W_OV. It asks where, and leaves out how strongly (Yamagiwa et al. 2026).
"""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.circuits.absorbed import Side, readers, seen_part, side, writers
from headway.circuits.pairs import (
    BIASES_LEFT_OUT,
    FLAG,
    FORBIDDEN_LEFT_OUT,
    NAMES,
    PERCENTILE,
    Pairs,
    pair_frame,
    scored,
)
from headway.ids import HeadId
from headway.model.weights import Weights
from headway.tables.table import Column, Table

COLUMNS = {
    **NAMES,
    "score": Column(
        "projection kernel: sum of cos^2 of the principal angles between what is written and what is read",
        "dimensions shared",
        0,
    ),
    "share": Column(
        "score over the smaller of both numbers of dimensions, which it cannot exceed", "dimensionless", 0, 1
    ),
    "written": Column("dimensions of the space that the writer writes into", "dimensions", 0),
    "read": Column("dimensions of the space that the reader reads from", "dimensions", 0),
    "null_mean": Column("mean of the score when a random rotation stands between both spaces", "dimensions shared", 0),
    "z": Column("(score - its mean under that rotation) / its standard deviation", "dimensionless"),
    "percentile": PERCENTILE,
    "reverse_score": Column(
        "the same score with the two heads' roles exchanged, an order no path takes", "dimensions shared", 0
    ),
    "flag": FLAG,
}
_NOTES = (
    BIASES_LEFT_OUT,
    "Every direction above rounding counts alike, however weakly it is written or read.",
    FORBIDDEN_LEFT_OUT,
)


def projection_kernel(
    weights: Weights,
    *,
    via: str | None = None,
    reader: str | HeadId | None = None,
    processing: str = "folded",
    offset: int = 0,
) -> Table:
    """Dimensions shared by what each writer writes into and what each reader reads from; largest first.

    From 0 (orthogonal) to the smaller of both ranks. Null: a random rotation between both spaces gives
    `written` `read` / d on average, with the variance of the composition null for two projectors, exactly. Where reads are
    centred d = d_model - 1, and only the part of the written space that reads can see is rotated. Singular values within
    max(d_head, d_model) machine epsilons of the largest are no dimensions. Arguments, order of rows, flags and errors as
    in `composition_scores`.

    >>> from headway.sources.handmade import induction_model
    >>> row = projection_kernel(induction_model(d_vocab=6).weights, via="K").rows()[0]
    >>> round(row["score"], 6), row["written"], row["read"]
    (5.0, 5, 5)
    """
    pairs = Pairs.of(weights, via, reader, (processing, offset))
    sides, ranks = None, dict[str, Int[np.ndarray, " head"]]()
    if len(pairs.r):
        reads: list[Side] = []
        for v in pairs.vias:
            flat, ranks[v] = _projector(readers(pairs.seen, v, offset, pairs.d), pairs.d, False)
            reads.append(flat)
        writes, ranks["writer"] = _projector(writers(pairs.seen, pairs.centred), pairs.d, pairs.centred)
        sides = reads, writes
    frames = [_frame(pairs, v, ranks, both, scores) for v, both, scores in scored(pairs, sides)]
    null = f"random rotation between both spaces in d={pairs.d} dimensions"
    return pairs.table(frames, COLUMNS, {"null": null, "notes": _NOTES})


def _projector(one: Side, d: int, centred: bool) -> tuple[Side, Int[np.ndarray, " head"]]:
    """The same spaces with every direction of one size, of norm 1 in all; and their dimensions."""
    _, sizes, rows = torch.linalg.svd(one.matrices, full_matrices=False)
    least = max(one.matrices.shape[-2:]) * torch.finfo(sizes.dtype).eps
    kept = (sizes > least * sizes[:, :1]) & torch.from_numpy(~one.dead).to(sizes.device)[:, None]
    rank = kept.sum(-1)
    bases = rows * (kept / rank.clamp_min(1).to(sizes).sqrt()[:, None])[..., None]
    return side(bases, one.dead, d, seen_part(bases) if centred else None), rank.cpu().numpy()


def _frame(
    pairs: Pairs,
    via: str,
    ranks: dict[str, Int[np.ndarray, " head"]],
    sides: tuple[Side, Side],
    scores: Float[Tensor, "head head"],
) -> pl.DataFrame:
    """Rows of one via: the root of the kernel is a score of two sides of norm 1 times the root of both ranks."""
    read, written = ranks[via], ranks["writer"]
    size = torch.from_numpy(np.sqrt(np.outer(read, written)))
    frame = pair_frame(pairs, via, sides, scores, size)
    frame = frame.with_columns(
        pl.col("score", "reverse_score") ** 2,
        null_mean=pl.col("null_rms") ** 2,
        read=pl.Series(read[pairs.r], dtype=pl.Int64),
        written=pl.Series(written[pairs.w], dtype=pl.Int64),
    )
    return frame.with_columns(share=pl.col("score") / pl.min_horizontal("read", "written")).select(*COLUMNS)
