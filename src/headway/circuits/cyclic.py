"""The cyclic score: what a library once drew in place of composition, under its own name.

    K: ||W_K W_OV W_Q^T|| / (||W_QK|| ||W_OV||)     Q: W_Q and W_K exchanged     V: ||W_V W_OV(writer) W_O|| / (...)

The published diagram of K-composition showed ||W_K W_O W_V W_Q^T|| for ||W_Q^T W_K W_O W_V||: a cyclic permutation,
which keeps traces and eigenvalues but no Frobenius norm (Elhage et al. 2021, erratum to "Composition"). It is another
question: whether what the writer takes from where queries look lands where keys look. That is what an induction head asks
of its previous-token head, and so it marks induction heads sharply, but it is no measure of composition, and no property
of the heads: W_Q -> A W_Q, W_K -> A^-T W_K changes no score of attention and changes this one.
"""

from __future__ import annotations

import polars as pl
import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.low_rank import LowRank
from headway.circuits.absorbed import per_head, readers, seen_part, unit_scale, writers
from headway.circuits.pairs import BIASES_LEFT_OUT, FLAG, FORBIDDEN_LEFT_OUT, NAMES, PERCENTILE, Pairs, frame_of, values
from headway.ids import HeadId
from headway.model.positions import rotation
from headway.model.weights import Weights
from headway.tables.table import Column, Table

COLUMNS = {
    **NAMES,
    "score": Column("the cyclic score: ||W_K W_OV W_Q^T|| / (||W_QK|| ||W_OV||), Frobenius, for K", "dimensionless", 0),
    "null_rms": Column(
        "root mean square of the score when random rotations stand on both sides of the writer", "dimensionless", 0
    ),
    "z": Column("(score^2 - its mean under those rotations) / its standard deviation", "dimensionless"),
    "percentile": PERCENTILE,
    "reverse_score": Column(
        "the same score with the two heads' roles exchanged, an order no path takes", "dimensionless", 0
    ),
    "flag": FLAG,
}
_NOTES = (
    "This is not composition: see composition_scores for that.",
    "It changes with the basis inside d_head, of which the head's attention does not know.",
    BIASES_LEFT_OUT,
    FORBIDDEN_LEFT_OUT,
)


def cyclic_scores(
    weights: Weights,
    *,
    via: str | None = None,
    reader: str | HeadId | None = None,
    processing: str = "folded",
    offset: int = 0,
) -> Table:
    """The score of the erratum for every pair, one row for reader, writer and via; largest first. Not composition.

    Formula: see the module; with rotary positions R_-D stands before W_K. Dimensionless, and not bounded by 1. Null:
    two independent random rotations, before and behind the writer, keep all spectra; mean and variance of the squared
    score are exact. Where reads are centred both live in d_model - 1 dimensions. Arguments, order of rows, flags and
    errors as in `composition_scores`.

    >>> from headway.sources.handmade import induction_model
    >>> row = cyclic_scores(induction_model(d_vocab=6).weights, via="K").rows()[0]
    >>> row["reader"], row["writer"], round(row["score"], 4)  # 5 directions: sqrt(5) / (sqrt(5) sqrt(5))
    ('L1H0', 'L0H0', 0.4472)
    """
    pairs = Pairs.of(weights, via, reader, (processing, offset))
    frames = [_frame(pairs, v) for v in pairs.vias] if len(pairs.r) else []
    null = f"independent random rotations on both sides of the writer in d={pairs.d} dimensions, all spectra kept"
    return pairs.table(frames, COLUMNS, {"null": null, "notes": _NOTES})


def _frame(pairs: Pairs, via: str) -> pl.DataFrame:
    seen, group = pairs.seen, pairs.seen.config.group
    left, right = _ends(seen, via, pairs.offset)
    norm = LowRank(right, left).norm()
    W_O = unit_scale(seen.W_O).flatten(0, 1)
    W_V = per_head(unit_scale(seen.W_V), "W_V", group).flatten(0, 1)
    wrote = LowRank(W_O, W_V).norm()
    dead = readers(seen, via, pairs.offset, pairs.d).dead, writers(seen, pairs.centred).dead
    score = torch.stack([torch.linalg.matrix_norm((a @ W_O) @ (W_V @ b)) for a, b in zip(left, right, strict=True)])
    size = norm[:, None] * wrote
    score = (score / size.masked_fill(size == 0, 1)).double().cpu()
    r, w = torch.from_numpy(pairs.r), torch.from_numpy(pairs.w)
    found = score[r, w]
    if pairs.d > 1:
        moved = [seen_part(end.mT).mT if pairs.centred else end for end in (right, W_O)]
        mean, variance = (part[r, w] for part in _moments((left, moved[0]), LowRank(moved[1], W_V), size, pairs.d))
        rms, z = mean.sqrt(), (found.square() - mean) / variance.masked_fill(variance <= 0, torch.nan).sqrt()
    else:  # in one dimension there is nothing to rotate
        rms, z = (torch.full_like(found, torch.nan) for _ in range(2))
    missing = dead[0][pairs.r] | dead[1][pairs.w]
    columns = {
        "score": values(found, missing),
        "null_rms": values(rms, missing),
        "z": values(z, missing),
        "reverse_score": values(score[w, r], dead[0][pairs.w] | dead[1][pairs.r]),
    }
    return frame_of(pairs, via, columns, dead)


def _ends(
    seen: Weights, via: str, offset: int
) -> tuple[Float[Tensor, "head d_head d_model"], Float[Tensor, "head d_model d_head"]]:
    """What stands left of W_OV and right of it: W_K and W_Q^T for K."""
    group, turn = seen.config.group, rotation(-offset, seen.config)
    Q, K, V = (per_head(unit_scale(getattr(seen, n)), n, group).flatten(0, 1) for n in ("W_Q", "W_K", "W_V"))
    if via == "V":
        return V, unit_scale(seen.W_O).flatten(0, 1)
    return (turn.T.to(Q) @ Q, K.mT) if via == "Q" else (turn.to(K) @ K, Q.mT)


def _moments(
    ends: tuple[Float[Tensor, "head d_head d_model"], Float[Tensor, "head d_model d_head"]],
    writes: LowRank,
    size: Float[Tensor, "head head"],
    d: int,
) -> tuple[Float[Tensor, "head head"], Float[Tensor, "head head"]]:
    """Mean and variance of the squared score ||L R1 W R2 R||^2 / size^2, R1 and R2 Haar and independent.

    With P = L^T L, T = R R^T, A = W^T W and S = W R2 T R2^T W^T: given R2 the first rotation gives tr P tr S / d and the
    variance of the composition null. Over R2, tr S = tr A R2 T R2^T is again of that kind, and, writing T = t 1 + T0,
    tr S^2 = t^2 tr A^2 + 2 t tr A^2 T0 + tr A T0 A T0 has mean t^2 tr A^2 + c ((tr A)^2 + (1 - 2/d) tr A^2),
    c = ||T0||^2 / ((d - 1)(d + 2)).
    """
    core = writes.svd().S.double().cpu().square()
    P, T = (torch.linalg.svdvals(end).double().cpu().square() for end in ends)
    a1, a2 = core.sum(-1), core.square().sum(-1)
    (p1, p2), (t1, t2) = ((m.sum(-1)[:, None], m.square().sum(-1)[:, None]) for m in (P, T))
    k = (d - 1) * (d + 2)
    t0, a0, p0 = t2 - t1.square() / d, a2 - a1.square() / d, p2 - p1.square() / d
    s1 = t1 * a1 / d
    s1_squared = s1.square() + 2 * t0 * a0 / k
    s2 = (t1 / d).square() * a2 + t0 / k * (a1.square() + (1 - 2 / d) * a2)
    mean = p1 * s1 / d
    second = (p1 / d).square() * s1_squared + 2 * p0 / k * (s2 - s1_squared / d)
    scale = size.double().cpu().square().masked_fill(size.cpu() == 0, 1)
    variance = (second - mean.square()).clamp_min(0)
    return mean / scale, variance.where(variance > 1e-12 * mean.square(), 0) / scale.square()
