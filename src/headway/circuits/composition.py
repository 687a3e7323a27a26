"""Composition: how much of what one head writes lies where a later head reads it.

    Q: ||W_QK^T W_OV|| / (||W_QK|| ||W_OV||)   K: ||W_QK W_OV|| / (...)   V: ||W_OV(reader) W_OV(writer)|| / (...)

Frobenius norms, so the order of the factors matters: a cyclic permutation keeps eigenvalues, not this
(Elhage et al. 2021, "Composition", with its erratum). Biases are in none of the matrices.

Fast route for all pairs at once: a reader is a product X Y with X [d_model, d_head] outermost, a writer Y' X'. With
X = Q_X T_X (QR) the orthonormal Q_X changes no norm, so T_X Y is absorbed into one [d_head, d_model] matrix a head,
Y' T_X'^T into one [d_model, d_head], and a score is the norm of one d_head x d_head product. QR, not Cholesky of the
Gram matrix: heads that are zero exist, and small scores keep their digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headway.algebra.null import anisotropy, composition_null
from headway.errors import BadInput, CannotCompose, UsageError
from headway.ids import HeadId
from headway.model.config import ModelConfig
from headway.model.head import Head
from headway.model.positions import rotation
from headway.model.process import processed
from headway.model.weights import Weights
from headway.tables.table import Column, Table

VIAS = ("Q", "K", "V")

COLUMNS = {
    "reader": Column("the later head"),
    "writer": Column("the earlier head, whose output the reader may read"),
    "via": Column("what of the reader the writer feeds: Q, K or V"),
    "score": Column(
        "||reader circuit x writer's W_OV|| over the product of both norms, Frobenius", "dimensionless", 0, 1
    ),
    "null_rms": Column(
        "root mean square of the score when a random rotation stands between the two", "dimensionless", 0, 1
    ),
    "z": Column(
        "(score^2 - its mean under that rotation) / its standard deviation; large is not yet proof", "dimensionless"
    ),
    "percentile": Column(
        "percent of all allowed pairs with this via that score at most as much; ties share", "percent", 0, 100
    ),
    "reverse_score": Column(
        "the same score with the two heads' roles exchanged, an order no path takes", "dimensionless", 0, 1
    ),
    "flag": Column("why a value of this row is missing"),
}
_SCHEMA = pl.Schema({name: pl.Float64() if column.unit else pl.String() for name, column in COLUMNS.items()})
_NOTES = (
    "Biases are not in these matrices.",
    "z compares with random directions only; trained heads share directions, so read percentile and reverse_score too.",
    "Pairs that layer order forbids have no row.",
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
    for a head that does not exist, UsageError for another via, processing or offset. (Elhage et al. 2021, "Composition".)

    >>> from headway.sources.handmade import induction_model
    >>> composition_scores(induction_model().weights, via="K").rows()[0]["writer"]
    'L0H0'
    """
    vias = _vias(via)
    chosen = None if reader is None else _reader(weights, reader)
    _check_offset(offset)
    seen = processed(weights, processing)
    found = _pairs(seen.config)
    centred = "reads centred" in seen.provenance.steps
    d = seen.config.d_model - centred
    frames = [_frame(seen, v, found, offset, centred) for v in vias] if len(found[0]) else []
    frame = pl.concat(frames) if frames else pl.DataFrame(schema=_SCHEMA)
    if chosen is not None:
        frame = frame.filter(pl.col("reader") == str(chosen))
    options = {"via": "".join(vias), "offset": offset} | ({} if chosen is None else {"reader": str(chosen)})
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(None, **options)
    meta = {
        "dtype": str(torch.promote_types(seen.dtype, torch.float32)).removeprefix("torch."),
        "null": f"random rotation between reader and writer in d={d} dimensions, both spectra kept",
        "positions": seen.config.positions,
        "notes": list(_NOTES),
    }
    if not frames:
        meta["empty"] = f"no head has an earlier head: {seen.config.n_layers} layers of {seen.config.n_heads} heads"
    return Table(frame, COLUMNS, origin, meta).sort("score", descending=True)


def composition_score(reader: Head, writer: Head, via: str, *, offset: int = 0) -> float:
    """Composition of one pair, from the two heads as they are: dimensionless, 0 to 1.

    Unchanged by any change of basis inside d_head. Raises CannotCompose when both heads have ids and the writer's layer
    is not the earlier one, BadInput when a circuit is zero (the ratio does not exist), UsageError for another via.

    >>> eye = torch.eye(4, dtype=torch.float64)
    >>> head = Head(W_Q=eye[:2], W_K=eye[:2], W_V=eye[1:3], W_O=eye[:, :2])
    >>> round(composition_score(head, head, "K"), 4)  # reads all that is written, over two equal directions: 1/sqrt(2)
    0.7071
    """
    (v,) = _vias(via, one=True)
    if reader.id is not None and writer.id is not None and writer.id.layer >= reader.id.layer:
        raise CannotCompose(
            f"{reader.id} cannot read {writer.id}",
            expected="a writer in an earlier layer",
            got=f"layer {writer.id.layer}",
        )
    reads = reader.ov if v == "V" else reader.qk(offset)
    reads = reads.T if v == "Q" else reads
    norms = [float(m.norm()) for m in (reads, writer.ov)]
    if not all(norms):
        zero = "reader's circuit" if not norms[0] else "writer's W_OV"
        raise BadInput(f"the {zero} is zero", where=f"composition via {v}", expected="two circuits that are not zero")
    return float((reads @ writer.ov).norm()) / (norms[0] * norms[1])


@dataclass(frozen=True)
class _Side:
    """One side of every score: circuits with their outer orthonormal part left out, of norm 1 (or 0 where dead).

    f: anisotropy of the Gram matrix on the side that meets the other. share: part of the squared norm that a rotation
    of the null moves, 1 unless the reads are centred.
    """

    matrices: Float[Tensor, "layer head m n"]
    dead: Bool[np.ndarray, " flat"]
    f: Float[Tensor, " flat"]
    share: Float[Tensor, " flat"]


def _frame(
    weights: Weights, via: str, pairs: tuple[np.ndarray, np.ndarray], offset: int, centred: bool
) -> pl.DataFrame:
    """All rows of one via, unsorted."""
    r, w = pairs
    d = weights.config.d_model - centred
    reads, writes = _reads(weights, via, offset, d), _writes(weights, centred)
    scores = _all_scores(reads.matrices, writes.matrices)
    flat_r, flat_w = torch.from_numpy(r), torch.from_numpy(w)
    score, reverse = scores[flat_r, flat_w], scores[flat_w, flat_r]
    if d > 1:
        null = composition_null(reads.f[flat_r], writes.f[flat_w], d)
        share = writes.share[flat_w].sqrt()
        z, rms = null.z(score / share), share * null.rms
    else:  # in one dimension there is nothing to rotate
        z, rms = (torch.full_like(score, torch.nan) for _ in range(2))
    dead = reads.dead[r] | writes.dead[w]
    columns = {
        "score": _values(score, dead),
        "null_rms": _values(rms, dead),
        "z": _values(z, dead),
        "reverse_score": _values(reverse, reads.dead[w] | writes.dead[r]),
    }
    names = np.array([str(i) for i in weights.head_ids()])
    frame = pl.DataFrame(
        {"reader": names[r], "writer": names[w]}
        | {name: pl.Series(values, nan_to_null=True) for name, values in columns.items()}
        | {"flag": _flags(columns, (r, w), (reads.dead, writes.dead), (names, "OV" if via == "V" else "QK"))},
    )
    rank = pl.col("score").rank("max") / pl.col("score").count() * 100
    return frame.with_columns(via=pl.lit(via), percentile=rank).select(*COLUMNS).cast(_SCHEMA)


def _reads(weights: Weights, via: str, offset: int, d: int) -> _Side:
    """Readers: W_QK^T (Q), W_QK (K) or W_OV (V), rows made d_head by QR of the outer factor."""
    group, turn = weights.config.group, rotation(-offset, weights.config)
    outer, inner = {"Q": ("W_K", "W_Q"), "K": ("W_Q", "W_K"), "V": ("W_O", "W_V")}[via]
    left, right = _unit_scale(getattr(weights, outer)), _unit_scale(getattr(weights, inner))
    left = _triangle(left if outer == "W_O" else left.mT)
    if via != "V":
        left = left @ (turn.T if via == "Q" else turn).to(left)
    left, right = (_per_head(t, name, group) for t, name in ((left, outer), (right, inner)))
    product, dead = _normalised(left @ right, left, right)
    square = (product @ product.mT).square().sum((-2, -1)).flatten()
    trace = product.square().sum((-2, -1)).flatten()
    return _Side(product, dead, _anisotropy(trace, square, d), torch.ones(len(trace), dtype=torch.float64))


def _writes(weights: Weights, centred: bool) -> _Side:
    """Writers: W_OV, columns made d_head by QR of W_V; f and share of the part that a centred read can see."""
    left = _unit_scale(weights.W_O)
    right = _per_head(_triangle(_unit_scale(weights.W_V).mT).mT, "W_V", weights.config.group)
    product, dead = _normalised(left @ right, left, right)
    moved = product - product.mean(-2, keepdim=True) if centred else product
    trace = moved.square().sum((-2, -1)).flatten()
    square = (moved.mT @ moved).square().sum((-2, -1)).flatten()
    # Heads side by side, [d_model, head, d_head] a layer: then all pairs of two layers are one matrix product.
    together = product.transpose(1, 2).contiguous()
    d = weights.config.d_model - centred
    share = trace.masked_fill(trace <= torch.finfo(trace.dtype).eps, 0).cpu().double()
    return _Side(together, dead, _anisotropy(trace, square, d), share)


def _all_scores(
    reads: Float[Tensor, "layer head k d_model"], writes: Float[Tensor, "layer d_model head n"]
) -> Float[Tensor, "flat flat"]:
    """scores[reader, writer] for all heads of different layers, float64; only one pair of layers is held at a time."""
    layers, heads = reads.shape[:2]
    scores = torch.zeros(layers, heads, layers, heads, dtype=torch.float64)
    for r in range(layers):
        rows = reads[r].flatten(0, 1)
        for w in range(layers):
            if r != w:
                block = (rows @ writes[w].flatten(1)).view(heads, -1, heads, writes.shape[-1])
                scores[r, :, w] = block.square_().sum((1, 3)).sqrt_()
    return scores.view(layers * heads, layers * heads)


def _normalised(product: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Bool[np.ndarray, " flat"]]:
    """Each product of left and right over its norm, and which are zero: within the rounding that multiplying makes."""
    size, of_left, of_right = (torch.linalg.matrix_norm(t) for t in (product, left, right))
    dead = size <= 4 * torch.finfo(size.dtype).eps * of_left * of_right
    unit = product / size.masked_fill(dead, 1)[..., None, None]
    return unit.masked_fill_(dead[..., None, None], 0), dead.flatten().cpu().numpy()


def _anisotropy(trace: Tensor, trace_of_square: Tensor, d: int) -> Float[Tensor, " flat"]:
    if d < 2:
        return torch.zeros(trace.shape, dtype=torch.float64)
    return anisotropy(trace, trace_of_square, d).cpu().double()


def _unit_scale(matrices: Tensor) -> Tensor:
    """Largest entry 1 in every head, so that no norm over- or underflows; scores do not see scale. At least float32."""
    m = matrices.detach()
    m = m.to(torch.promote_types(m.dtype, torch.float32))
    largest = m.abs().amax((-2, -1), keepdim=True)
    return m / largest.masked_fill(largest == 0, 1)


def _triangle(outer: Float[Tensor, "layer head d_model d_head"]) -> Float[Tensor, "layer head k d_head"]:
    return torch.linalg.qr(outer, mode="r").R


def _per_head(matrices: Tensor, name: str, group: int) -> Tensor:
    """Key and value matrices repeated for the query heads that share them."""
    return matrices.repeat_interleave(group, dim=1) if group > 1 and name in {"W_K", "W_V"} else matrices


def _pairs(config: ModelConfig) -> tuple[np.ndarray, np.ndarray]:
    """Flat indices (reader, writer) of every pair that layer order allows, by reader."""
    layer = np.arange(config.n_layers * config.n_heads) // max(config.n_heads, 1)
    r, w = np.nonzero(layer[:, None] > layer[None, :])
    return r, w


def _values(values: Tensor, missing: Bool[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    return np.where(missing, np.nan, values.numpy())


def _flags(
    columns: dict[str, Float[np.ndarray, " row"]],
    pairs: tuple[np.ndarray, np.ndarray],
    dead: tuple[Bool[np.ndarray, " flat"], Bool[np.ndarray, " flat"]],
    names: tuple[np.ndarray, str],
) -> list[str | None]:
    """Why something is null in a row; None in the rows where nothing is."""
    (reads, writes), (heads, circuit) = dead, names
    flags: list[str | None] = [None] * len(pairs[0])
    for row in np.nonzero(np.isnan(list(columns.values())).any(0))[0]:
        r, w = pairs[0][row], pairs[1][row]
        ahead = ((reads[r], f"zero circuit: {heads[r]} {circuit}"), (writes[w], f"zero circuit: {heads[w]} OV"))
        back = ((reads[w], f"zero circuit: {heads[w]} {circuit}"), (writes[r], f"zero circuit: {heads[r]} OV"))
        reasons = [reason for zero, reason in ahead if zero]
        if not reasons and np.isnan(columns["z"][row]):
            reasons.append("z: the null does not vary")
        flags[row] = "; ".join([*reasons, *(f"reverse: {reason}" for zero, reason in back if zero)])
    return flags


def _vias(via: str | None, *, one: bool = False) -> tuple[str, ...]:
    if via is None and not one:
        return VIAS
    if via not in VIAS:
        raise UsageError("unknown composition", expected="via Q, K or V" + ("" if one else ", or None"), got=repr(via))
    return (via,)


def _reader(weights: Weights, reader: str | HeadId) -> HeadId:
    """The reader named, if it has an earlier layer to read."""
    found = weights.head_id(reader)
    if found.layer == 0:
        c = weights.config
        last = f"L{c.n_layers - 1}H{c.n_heads - 1}"
        raise CannotCompose(
            f"{found} reads no other head: it is in the first layer",
            expected=f"a reader from L1H0 to {last}" if c.n_layers > 1 else "a model of two layers or more",
            got=str(found),
        )
    return found


def _check_offset(offset: int) -> None:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise UsageError("an offset is destination minus source", expected="a whole number >= 0", got=repr(offset))
