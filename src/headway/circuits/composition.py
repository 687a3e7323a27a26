"""Composition: how much of what one head writes lies where a later head reads it.

    Q: ||W_QK^T W_OV|| / (||W_QK|| ||W_OV||)   K: ||W_QK W_OV|| / (...)   V: ||W_OV(reader) W_OV(writer)|| / (...)

Frobenius norms, so the order of the factors matters: a cyclic permutation keeps eigenvalues, not this
(Elhage et al. 2021, "Composition", with its erratum). Biases are in none of the matrices. The tight score divides by
what the two spectra allow at most instead of by the product of both norms.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.chain import unit_factors
from headway.algebra.low_rank import LowRank
from headway.circuits.absorbed import Side
from headway.circuits.pairs import (
    BIASES_LEFT_OUT,
    FLAG,
    FORBIDDEN_LEFT_OUT,
    NAMES,
    PERCENTILE,
    Pairs,
    check_via,
    pair_frame,
    scored,
)
from headway.errors import BadInput, CannotCompose
from headway.ids import HeadId
from headway.model.head import Head, check_heads
from headway.model.positions import check_offset
from headway.model.weights import Weights
from headway.tables.table import Column, Table

COLUMNS = {
    **NAMES,
    "score": Column(
        "||reader circuit x writer's W_OV|| over the product of both norms, Frobenius", "dimensionless", 0, 1
    ),
    "null_rms": Column(
        "root mean square of the score when a random rotation stands between the two", "dimensionless", 0, 1
    ),
    "z": Column(
        "(score^2 - its mean under that rotation) / its standard deviation; large is not yet proof", "dimensionless"
    ),
    "percentile": PERCENTILE,
    "reverse_score": Column(
        "the same score with the two heads' roles exchanged, an order no path takes", "dimensionless", 0, 1
    ),
    "flag": FLAG,
}
TIGHT_COLUMNS = COLUMNS | {
    "score": Column(
        "||reader circuit x writer's W_OV|| over the most that a rotation between them could make it, the root of the sum "
        "of products of both sorted squared singular values",
        "dimensionless",
        0,
        1,
    )
}
NOTES = (
    BIASES_LEFT_OUT,
    "z compares with random directions only; trained heads share directions, so read percentile and reverse_score too.",
    FORBIDDEN_LEFT_OUT,
)


def composition_scores(
    weights: Weights,
    *,
    via: str | None = None,
    reader: str | HeadId | None = None,
    processing: str = "folded",
    offset: int = 0,
) -> Table:
    """How much each head reads of what each earlier head writes, one row for reader, writer and via; largest first.

    via: `Q`, `K`, `V`, or None for all. reader: rows of one head only; percentiles stay among all pairs. offset:
    destination - source >= 0, which matters with rotary positions only, to Q and K. processing: see `processed`.
    The null keeps both spectra: E[score^2] = 1/d. Where reads are centred (LayerNorm folded) d = d_model - 1, and only
    the part of the writer outside the mean, which is all that anything can read, is rotated.
    Exact up to rounding in the weights' precision, at least float32. A zero circuit gives null and a flag. A model
    without pairs gives an empty table whose meta says why. Raises CannotCompose for a reader in layer 0, UnknownName
    for a head that does not exist, UsageError for another via, processing or offset, NotFinite for weights that are no
    numbers. (Elhage et al. 2021, "Composition".)

    >>> from headway.sources.handmade import induction_model
    >>> composition_scores(induction_model().weights, via="K").rows()[0]["writer"]
    'L0H0'
    """
    pairs = Pairs.of(weights, via, reader, (processing, offset))
    frames = [pair_frame(pairs, v, sides, scores) for v, sides, scores in scored(pairs)]
    return pairs.table(frames, COLUMNS, {"null": pairs.null_text, "notes": NOTES})


def tight_composition_scores(
    weights: Weights,
    *,
    via: str | None = None,
    reader: str | HeadId | None = None,
    processing: str = "folded",
    offset: int = 0,
) -> Table:
    """Composition over the most that it could be: ||A B|| / sqrt(sum_i s_i(A)^2 s_i(B)^2), singular values sorted.

    A is the reader's circuit, B the writer's W_OV. 1 when the strongest direction that is written is the one that is read
    the strongest, the second strongest the second, and so on (von Neumann's trace inequality); where the product of both
    norms is divided by, a pair whose spectra are flat can never come near 1, and the less so the wider the head.
    Arguments, order of rows, flags and errors as in `composition_scores`; z is the same number, since the two scores
    differ by a factor that no rotation changes, and null_rms is 1/sqrt(d) times that factor. (Turner, see
    `composition_scores` for the score it tightens.)

    >>> from headway.sources.handmade import induction_model
    >>> round(tight_composition_scores(induction_model().weights, via="K").rows()[0]["score"], 6)
    1.0
    """
    pairs = Pairs.of(weights, via, reader, (processing, offset))
    frames = [pair_frame(pairs, v, sides, scores, _tightness(*sides)) for v, sides, scores in scored(pairs)]
    return pairs.table(frames, TIGHT_COLUMNS, {"null": pairs.null_text, "notes": NOTES})


def composition_score(reader: Head, writer: Head, via: str, *, offset: int = 0) -> float:
    """Composition of one pair, from the two heads as they are: dimensionless, 0 to 1.

    Unchanged by any change of basis inside d_head. Raises CannotCompose when both heads have ids and the writer's layer
    is not the earlier one, BadInput when a circuit is zero (the ratio does not exist), UsageError for another via or
    what is no head.

    >>> eye = torch.eye(4, dtype=torch.float64)
    >>> head = Head(W_Q=eye[:2], W_K=eye[:2], W_V=eye[1:3], W_O=eye[:, :2])
    >>> round(composition_score(head, head, "K"), 4)  # reads all that is written, over two equal directions: 1/sqrt(2)
    0.7071
    """
    check_heads(reader, writer)
    check_offset(offset)
    (v,) = check_via(via, one=True)
    if reader.id is not None and writer.id is not None and writer.id.layer >= reader.id.layer:
        raise CannotCompose(
            f"{reader.id} cannot read {writer.id}",
            expected="a writer in an earlier layer",
            got=f"layer {writer.id.layer}",
        )
    reads = reader.ov if v == "V" else reader.qk(offset)
    reads = reads.T if v == "Q" else reads
    reads, writes = (LowRank(*unit_factors(m.factors)[0]) for m in (reads, writer.ov))  # the score has no scale
    norms = [float(m.norm()) for m in (reads, writes)]
    if not all(norms):
        zero = "reader's circuit" if not norms[0] else "writer's W_OV"
        raise BadInput(f"the {zero} is zero", where=f"composition via {v}", expected="two circuits that are not zero")
    return float((reads @ writes).norm()) / (norms[0] * norms[1])


def _tightness(reads: Side, writes: Side) -> Float[Tensor, "head head"]:
    """What a residual score is multiplied by: 1 over the root of sum_i s_i(reader)^2 s_i(writer)^2, both of norm 1."""
    spectra = [torch.linalg.svdvals(side.matrices).square().double().cpu() for side in (reads, writes)]
    most = spectra[0] @ spectra[1].T
    return most.masked_fill(most == 0, 1).rsqrt()  # zero circuits, which have no score
