"""Composition: how much of what one head writes lies where a later head reads it.

    Q: ||W_QK^T W_OV|| / (||W_QK|| ||W_OV||)   K: ||W_QK W_OV|| / (...)   V: ||W_OV(reader) W_OV(writer)|| / (...)

Frobenius norms, so the order of the factors matters: a cyclic permutation keeps eigenvalues, not this
(Elhage et al. 2021, "Composition", with its erratum). Biases are in none of the matrices.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headway.algebra.chain import unit_factors
from headway.algebra.low_rank import LowRank
from headway.algebra.null import composition_null
from headway.circuits.absorbed import Side, pair_scores, readers, writers
from headway.errors import BadInput, CannotCompose, UsageError
from headway.ids import HeadId
from headway.model.config import ModelConfig
from headway.model.head import Head, check_heads
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
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
    for a head that does not exist, UsageError for another via, processing or offset, NotFinite for weights that are no
    numbers. (Elhage et al. 2021, "Composition".)

    >>> from headway.sources.handmade import induction_model
    >>> composition_scores(induction_model().weights, via="K").rows()[0]["writer"]
    'L0H0'
    """
    check_weights(weights)
    vias = _vias(via)
    chosen = None if reader is None else _reader(weights, reader)
    _check_offset(offset)
    seen = processed(weights.check_finite(), processing).check_finite()
    found = _pairs(seen.config)
    centred = "reads centred" in seen.provenance.steps
    d = seen.config.d_model - centred
    frame = pl.DataFrame(schema=_SCHEMA)
    if len(found[0]):
        writes = writers(seen, centred)
        reads = [readers(seen, v, offset, d) for v in vias]
        every = pair_scores(reads, writes, _layers(seen.config))
        ids = np.array([str(head) for head in seen.head_ids()])
        frame = pl.concat(
            _frame(v, side, writes, scores, (ids, found, d)) for v, side, scores in zip(vias, reads, every, strict=True)
        )
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
    if not len(found[0]):
        meta["empty"] = f"no head has an earlier head: {seen.config.n_layers} layers of {seen.config.n_heads} heads"
    return Table(frame, COLUMNS, origin, meta).sort("score", descending=True)


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
    (v,) = _vias(via, one=True)
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


def _frame(
    via: str,
    reads: Side,
    writes: Side,
    scores: Float[Tensor, "head head"],
    rest: tuple[np.ndarray, tuple[np.ndarray, np.ndarray], int],
) -> pl.DataFrame:
    """All rows of one via, unsorted; `rest` is names of heads, pairs of heads, and the null's dimension."""
    names, (r, w), d = rest
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
    frame = pl.DataFrame(
        {"reader": names[r], "writer": names[w]}
        | {name: pl.Series(values, nan_to_null=True) for name, values in columns.items()}
        | {"flag": _flags(columns, (r, w), (reads.dead, writes.dead), (names, "OV" if via == "V" else "QK"))},
    )
    rank = pl.col("score").rank("max") / pl.col("score").count() * 100
    return frame.with_columns(via=pl.lit(via), percentile=rank).select(*COLUMNS).cast(_SCHEMA)


def _layers(config: ModelConfig) -> Int[Tensor, " head"]:
    return torch.arange(config.n_layers).repeat_interleave(config.n_heads)


def _pairs(config: ModelConfig) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Flat indices (reader, writer) of every pair that layer order allows, by reader."""
    layer = _layers(config).numpy()
    r, w = np.nonzero(layer[:, None] > layer)
    return r, w


def _values(values: Tensor, missing: Bool[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    found = values.numpy()
    return np.where(missing | ~np.isfinite(found), np.nan, found)


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
