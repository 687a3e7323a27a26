"""Pairs of heads that may compose: which are asked for, and the table of what they score beside what chance gives.

Every measure of composition is of pairs (reader, writer) with the writer in an earlier layer, for Q, K or V of the
reader. What the measures share stands here: the checks, the null of a random rotation, percentiles, reversed pairs, flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headway.algebra.null import composition_null
from headway.circuits.absorbed import Side, pair_scores, readers, writers
from headway.errors import CannotCompose, UsageError, counted
from headway.ids import HeadId
from headway.model.positions import check_offset
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.provenance import Provenance
from headway.tables.table import Column, Table

VIAS = ("Q", "K", "V")
BIASES_LEFT_OUT = "Biases are not in these matrices."
FORBIDDEN_LEFT_OUT = "Pairs that layer order forbids have no row."
NAMES = {
    "reader": Column("the later head"),
    "writer": Column("the earlier head, whose output the reader may read"),
    "via": Column("what of the reader the writer feeds: Q, K or V"),
}
PERCENTILE = Column(
    "percent of all allowed pairs with this via that score at most as much; ties share", "percent", 0, 100
)
FLAG = Column("why a value of this row is missing")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Every pair of heads that layer order allows, in one processing of the weights.

    reader: rows of this head only, None for all; origin: provenance with the options asked for; r, w: heads of each pair
    as places in `names`, by reader.
    """

    seen: Weights
    vias: tuple[str, ...]
    reader: HeadId | None
    offset: int
    origin: Provenance
    names: np.ndarray
    r: Int[np.ndarray, " pair"]
    w: Int[np.ndarray, " pair"]

    @classmethod
    def of(
        cls,
        weights: Weights,
        via: str | None,
        reader: str | HeadId | None,
        options: tuple[str, int],
        vias: tuple[str, ...] = VIAS,
    ) -> Pairs:
        """The pairs asked for; options are processing and offset, vias those that the measure knows.

        Raises CannotCompose for a reader in layer 0, UnknownName for a head that does not exist, UsageError for another
        via, processing or offset, NotFinite for weights that are no numbers.
        """
        processing, offset = options
        check_weights(weights)
        chosen = check_via(via, vias)
        only = None if reader is None else _reader(weights, reader)
        check_offset(offset)
        seen = processed(weights.check_finite(), processing).check_finite()
        layer = _layers(seen).numpy()
        r, w = np.nonzero(layer[:, None] > layer)
        asked = {"via": "".join(chosen), "offset": offset} | ({} if only is None else {"reader": str(only)})
        origin = replace(seen.provenance, weights=weights.content_hash()).with_options(None, **asked)
        names = np.array([str(head) for head in seen.head_ids()], dtype=np.str_)
        return cls(seen, chosen, only, offset, origin, names, r, w)

    @property
    def centred(self) -> bool:
        """Whether reads are blind to the mean, as LayerNorm makes them once folded."""
        return "reads centred" in self.seen.provenance.steps

    @property
    def d(self) -> int:
        """Dimensions in which the null rotates: those that reads can see."""
        return self.seen.config.d_model - self.centred

    @property
    def null_text(self) -> str:
        """The null of every measure that turns reader against writer, in words."""
        return f"random rotation between reader and writer in d={self.d} dimensions, both spectra kept"

    @property
    def layer(self) -> Int[Tensor, " head"]:
        """The layer of every head."""
        return _layers(self.seen)

    def table(
        self,
        frames: Sequence[pl.DataFrame],
        columns: Mapping[str, Column],
        meta: Mapping[str, Any],
        *,
        by: str = "score",
    ) -> Table:
        """The frames of all vias as one table, largest first, of the reader asked for; meta says so when it is empty."""
        frame = pl.concat(frames) if frames and len(self.r) else pl.DataFrame(schema=schema(columns))
        if self.reader is not None:
            frame = frame.filter(pl.col("reader") == str(self.reader))
        notes = meta.get("notes", ())
        said = {
            "dtype": str(torch.promote_types(self.seen.dtype, torch.float32)).removeprefix("torch."),
            **{key: value for key, value in meta.items() if key != "notes"},
            "positions": self.seen.config.positions,
            "notes": list(notes),
        }
        if not len(self.r):
            layers, heads = counted(self.seen.config.n_layers, "layer"), counted(self.seen.config.n_heads, "head")
            said["empty"] = f"no head has an earlier head: {layers} of {heads}"
        return Table(frame, columns, self.origin, said).sort(by, descending=True)


def schema(columns: Mapping[str, Column]) -> dict[str, Any]:
    """Types of a table of pairs: numbers where there is a unit, whole ones where it is `rank` or `dimensions`."""
    whole = ("rank", "dimensions")
    return {
        name: pl.String() if not column.unit else pl.Int64() if column.unit in whole else pl.Float64()
        for name, column in columns.items()
    }


def scored(
    pairs: Pairs, sides: tuple[Sequence[Side], Side] | None = None
) -> list[tuple[str, tuple[Side, Side], Float[Tensor, "head head"]]]:
    """For each via its two sides and the scores [reader, writer] between them; nothing in a model without pairs.

    sides: those of each via, and the writers; of the heads as they are seen when left out.
    """
    if not len(pairs.r):
        return []
    if sides is None:
        reads = [readers(pairs.seen, via, pairs.offset, pairs.d) for via in pairs.vias]
        sides = reads, writers(pairs.seen, pairs.centred)
    every = pair_scores(sides[0], sides[1], pairs.layer)
    return [(v, (side, sides[1]), scores) for v, side, scores in zip(pairs.vias, sides[0], every, strict=True)]


def pair_frame(
    pairs: Pairs,
    via: str,
    sides: tuple[Side, Side],
    scores: Float[Tensor, "head head"],
    scale: Float[Tensor, "head head"] | None = None,
) -> pl.DataFrame:
    """All pairs of one via, unsorted: score, null_rms, z, percentile, reverse_score, flag.

    sides: reads and writes, of norm 1; scores: [reader, writer] of all heads, between sides of norm 1; scale: what each
    is multiplied by, which moves scores and their null alike and so no z.
    """
    reads, writes = sides
    r, w = pairs.r, pairs.w
    flat_r, flat_w = torch.from_numpy(r), torch.from_numpy(w)
    score, reverse = scores[flat_r, flat_w], scores[flat_w, flat_r]
    rms, z = rotation_null(reads.f[flat_r], (writes.f[flat_w], writes.share[flat_w]), score, pairs.d)
    if scale is not None:
        score, rms, reverse = (
            score * scale[flat_r, flat_w],
            rms * scale[flat_r, flat_w],
            reverse * scale[flat_w, flat_r],
        )
    dead = reads.dead[r] | writes.dead[w]
    columns = {
        "score": values(score, dead),
        "null_rms": values(rms, dead),
        "z": values(z, dead),
        "reverse_score": values(reverse, reads.dead[w] | writes.dead[r]),
    }
    return frame_of(pairs, via, columns, (reads.dead, writes.dead))


def rotation_null(
    reads: Float[Tensor, " row"], writes: tuple[Float[Tensor, " row"], Float[Tensor, " row"]], score: Tensor, d: int
) -> tuple[Float[Tensor, " row"], Float[Tensor, " row"]]:
    """(rms, z) of scores between sides of norm 1 when a random rotation stands between them; NaN in one dimension.

    reads: f of the reading side; writes: f and share of the writing one (see `Side`). z is of the squared score.
    """
    f, share = writes
    if d < 2:  # in one dimension there is nothing to rotate
        return torch.full_like(score, torch.nan), torch.full_like(score, torch.nan)
    null = composition_null(reads, f, d)
    root = share.sqrt()
    return root * null.rms, null.z(score / root)


def frame_of(
    pairs: Pairs,
    via: str,
    columns: Mapping[str, Float[np.ndarray, " row"]],
    dead: tuple[Bool[np.ndarray, " head"], Bool[np.ndarray, " head"]],
) -> pl.DataFrame:
    """The rows of all pairs of one via: names, these columns, the percentile of `score`, and flags.

    dead: which heads read or write nothing. Values that are missing are NaN.
    """
    names, r, w = pairs.names, pairs.r, pairs.w
    frame = pl.DataFrame(
        {"reader": names[r], "writer": names[w]}
        | {name: pl.Series(column, nan_to_null=True) for name, column in columns.items()}
        | {"flag": pl.Series(_flags(columns, pairs, dead, "OV" if via == "V" else "QK"), dtype=pl.String)},
    )
    rank = pl.col("score").rank("max") / pl.col("score").count() * 100
    order = ("reader", "writer", "via", *(c for c in columns if c != "reverse_score"), "percentile")
    order = (*order, *(c for c in columns if c == "reverse_score"), "flag")
    return frame.with_columns(via=pl.lit(via), percentile=rank).select(*order)


def values(found: Tensor, missing: Bool[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """As numbers, NaN where missing or not finite."""
    numbers = found.numpy()
    return np.where(missing | ~np.isfinite(numbers), np.nan, numbers)


def zero_reasons(
    pair: tuple[int, int],
    dead: tuple[Bool[np.ndarray, " head"], Bool[np.ndarray, " head"]],
    names: np.ndarray,
    circuit: str,
) -> list[str]:
    """Which circuits of a pair (reader, writer) are zero; circuit is the reader's, QK or OV."""
    (r, w), (reads, writes) = pair, dead
    ends = ((reads[r], f"zero circuit: {names[r]} {circuit}"), (writes[w], f"zero circuit: {names[w]} OV"))
    return [reason for zero, reason in ends if zero]


def check_via(via: str | None, vias: tuple[str, ...] = VIAS, *, one: bool = False) -> tuple[str, ...]:
    """The vias asked for; None is all of them. Raises UsageError for another.

    >>> check_via("K"), check_via(None)
    (('K',), ('Q', 'K', 'V'))
    """
    if via is None and not one:
        return vias
    if not isinstance(via, str) or via not in vias:
        known = f"{', '.join(vias[:-1])} or {vias[-1]}"
        raise UsageError("unknown composition", expected=f"via {known}" + ("" if one else ", or None"), got=repr(via))
    return (via,)


def _layers(weights: Weights) -> Int[Tensor, " head"]:
    return torch.arange(weights.config.n_layers).repeat_interleave(weights.config.n_heads)


def _flags(
    columns: Mapping[str, Float[np.ndarray, " row"]],
    pairs: Pairs,
    dead: tuple[Bool[np.ndarray, " head"], Bool[np.ndarray, " head"]],
    circuit: str,
) -> list[str | None]:
    """Why something is null in a row; None in the rows where nothing is."""
    flags: list[str | None] = [None] * len(pairs.r)
    for row in np.nonzero(np.isnan(list(columns.values())).any(0))[0]:
        r, w = int(pairs.r[row]), int(pairs.w[row])
        reasons = zero_reasons((r, w), dead, pairs.names, circuit)
        if not reasons and np.isnan(columns["z"][row]):
            reasons.append("z: the null does not vary")
        if "reverse_score" in columns:
            reasons += [f"reverse: {reason}" for reason in zero_reasons((w, r), dead, pairs.names, circuit)]
        flags[row] = "; ".join(reasons) or None
    return flags


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
