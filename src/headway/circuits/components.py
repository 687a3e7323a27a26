"""Composition by singular component: which of the directions that a head writes a later head reads.

    W_OV(writer) = sum_i s_i u_i v_i^T      K: ||W_QK u_i|| / ||W_QK||     Q: W_QK^T for W_QK     V: W_OV(reader) for W_QK

The score of a whole matrix is an average of these, share_i = s_i^2 / sum s^2 of each: score^2 = sum_i share_i score_i^2.
A channel of one or two dimensions, which the average hides, stands out here (Merullo, Eickhoff and Pavlick 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.algebra.null import anisotropy
from headway.circuits.absorbed import Side, readers, seen_part, writers
from headway.circuits.directions import block_slices
from headway.circuits.pairs import (
    BIASES_LEFT_OUT,
    FLAG,
    FORBIDDEN_LEFT_OUT,
    NAMES,
    Pairs,
    rotation_null,
    values,
    zero_reasons,
)
from headway.ids import HeadId
from headway.model.weights import Weights
from headway.tables.table import Column, Table

COLUMNS = {
    **NAMES,
    "component": Column("which block of near-equal singular values of the writer's W_OV, 1 the strongest", "rank", 1),
    "dims": Column("how many singular values the block holds", "dimensions", 1),
    "share": Column("their share of the sum of all squared singular values of W_OV", "dimensionless", 0, 1),
    "score": Column(
        "||reader circuit x direction|| / ||reader circuit||, root mean square over the directions of the block",
        "dimensionless",
        0,
        1,
    ),
    "null_rms": Column(
        "root mean square of the score when a random rotation stands between the two", "dimensionless", 0, 1
    ),
    "z": Column("(score^2 - its mean under that rotation) / its standard deviation", "dimensionless"),
    "flag": FLAG,
}
_NOTES = (
    BIASES_LEFT_OUT,
    "Near-equal singular values have no directions of their own: they are one block, scored together.",
    "z compares with random directions only, and there are many components: the largest of them is large by chance too.",
    FORBIDDEN_LEFT_OUT,
)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """All blocks of all writers in a row. basis: their directions, rows, of all writers; of: the block of each row.

    head, number, dims, share: of each block; f and seen: anisotropy and share of its part that a read can see.
    """

    basis: Float[Tensor, "row d_model"]
    of: Int[Tensor, " row"]
    head: Int[np.ndarray, " block"]
    number: Int[np.ndarray, " block"]
    dims: Int[np.ndarray, " block"]
    share: Float[np.ndarray, " block"]
    f: Float[Tensor, " block"]
    seen: Float[Tensor, " block"]


def component_composition_scores(
    weights: Weights,
    *,
    via: str | None = None,
    reader: str | HeadId | None = None,
    processing: str = "folded",
    offset: int = 0,
) -> Table:
    """How much each head reads of each singular component of what each earlier head writes; largest first.

    A component is a block of singular values of the writer's W_OV that differ by less than 0.1 % (or by too little for
    their vectors to be certain): the score of a block is the root mean square over its directions, which no choice of
    basis in it changes. Values zero within rounding are no components. Null: a random rotation keeps the reader's
    spectrum and turns the block; E[score^2] = 1/d, with the exact variance of two Gram matrices, one of them a
    projector. Where reads are centred d = d_model - 1, and only what they can see of the block is turned. A zero circuit
    has one row, without component or score, and a flag. Arguments and errors as in `composition_scores`.

    >>> from headway.sources.handmade import induction_model
    >>> row = component_composition_scores(induction_model(d_vocab=6).weights, via="K").rows()[0]
    >>> row["component"], row["dims"], round(row["score"], 4)  # one block of 5 equal values, read as one: 1/sqrt(5)
    (1, 5, 0.4472)
    """
    pairs = Pairs.of(weights, via, reader, (processing, offset))
    frames: list[pl.DataFrame] = []
    if len(pairs.r):
        writes = writers(pairs.seen, pairs.centred)
        blocks = _blocks(writes, torch.finfo(pairs.seen.dtype).eps, pairs)
        for v in pairs.vias:
            reads = readers(pairs.seen, v, offset, pairs.d)
            frames.append(_frame(pairs, v, reads, blocks, writes))
    return pairs.table(frames, COLUMNS, {"null": pairs.null_text, "notes": _NOTES})


def _blocks(writes: Side, precision: float, pairs: Pairs) -> _Blocks:
    """Singular blocks of every writer; a writer of nothing has one, without directions and with number 0."""
    _, sizes, rows = torch.linalg.svd(writes.matrices, full_matrices=False)
    least = max(writes.matrices.shape[-2:]) * precision
    head, number, dims, share = list[int](), list[int](), list[int](), list[float]()
    f, seen, kept = list[float](), list[float](), list[Tensor]()
    for h, (S, V) in enumerate(zip(sizes.double().cpu(), rows, strict=True)):
        live = S[:0] if writes.dead[h] else S[least * S[0] < S]
        for n, block in enumerate(block_slices(live, precision) or [slice(0, 0)], 1):
            part = V[block]
            gram = seen_part(part) if pairs.centred else part
            gram = (gram @ gram.mT).double().cpu()
            width = block.stop - block.start
            head.append(h)
            number.append(n if width else 0)
            dims.append(width)
            share.append(float(S[block].square().sum() / S.square().sum().clamp_min(torch.finfo(S.dtype).tiny)))
            f.append(float(anisotropy(gram.trace(), gram.square().sum(), pairs.d)) if pairs.d > 1 else 0.0)
            seen.append(float(gram.trace()) / max(width, 1))
            kept.append(part)
    of = torch.repeat_interleave(torch.arange(len(dims)), torch.tensor(dims))
    return _Blocks(
        basis=torch.cat(kept),
        of=of,
        head=np.array(head),
        number=np.array(number),
        dims=np.array(dims),
        share=np.array(share),
        f=torch.tensor(f, dtype=torch.float64),
        seen=torch.tensor(seen, dtype=torch.float64),
    )


def _frame(pairs: Pairs, via: str, reads: Side, blocks: _Blocks, writes: Side) -> pl.DataFrame:
    """The rows of one via: for each reader the blocks of all writers in earlier layers."""
    layer = pairs.layer.numpy()
    squares = _squares(reads, blocks)
    r, b = np.nonzero(layer[:, None] > layer[blocks.head])
    at = torch.from_numpy(r), torch.from_numpy(b)
    score = squares[at].sqrt()
    rms, z = rotation_null(reads.f[at[0]], (blocks.f[at[1]], blocks.seen[at[1]]), score, pairs.d)
    dead = reads.dead[r] | (blocks.number[b] == 0)
    columns = {"score": values(score, dead), "null_rms": values(rms, dead), "z": values(z, dead)}
    none = blocks.number[b] == 0
    frame = pl.DataFrame(
        {
            "reader": pairs.names[r],
            "writer": pairs.names[blocks.head[b]],
            "component": pl.Series(blocks.number[b], dtype=pl.Int64),
            "dims": pl.Series(blocks.dims[b], dtype=pl.Int64),
            "share": pl.Series(blocks.share[b], dtype=pl.Float64),
            **{name: pl.Series(column, nan_to_null=True) for name, column in columns.items()},
            "none": none,
        }
    )
    flags: list[str | None] = [None] * len(r)
    for row in np.nonzero(np.isnan(columns["z"]))[0]:
        pair = int(r[row]), int(blocks.head[b[row]])
        reasons = zero_reasons(pair, (reads.dead, writes.dead), pairs.names, "OV" if via == "V" else "QK")
        flags[row] = "; ".join(reasons) or "z: the null does not vary"
    empty = pl.when(~pl.col("none"))
    return frame.with_columns(
        *(empty.then(pl.col(name)).alias(name) for name in ("component", "dims", "share")),
        via=pl.lit(via),
        flag=pl.Series(flags, dtype=pl.String),
    ).select(*COLUMNS)


def _squares(reads: Side, blocks: _Blocks) -> Float[Tensor, "head block"]:
    """Mean over the directions of each block of ||R u||^2, R of norm 1; one reader at a time."""
    basis, out = blocks.basis.mT, torch.zeros(len(reads.dead), len(blocks.dims), dtype=torch.float64)
    for h, matrix in enumerate(reads.matrices):
        lengths = (matrix @ basis).square().sum(0).double().cpu()
        out[h].index_add_(0, blocks.of, lengths)
    return out / torch.from_numpy(blocks.dims).clamp_min(1)
