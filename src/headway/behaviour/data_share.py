"""Data share of composition: how much of what makes a head's scores vary comes from each of its sources.

The stream that keys read is a sum over sources: token, position, what each earlier head wrote, biases. With norm scales
as recorded each makes its own term s^h of the score, and the terms add up to it:

    share_K(h) = sum_i Cov_{j<=i}(s^h_ij, s_ij) / sum_i Var_{j<=i}(s_ij)         Q: the same with terms of the query's side

over the sources j that a destination i may see: what all of them share, softmax does not see. All shares of a side add
up to 1; one is negative where a source works against what the score does. With c_ij = (s_ij - mean_j s_ij) / n_i, n_i
the number of sources, the numerator is sum_ij c_ij s^h_ij = sum_j k^h_j . y_j, y_j = attn_scale sum_i c_ij q_i on the K
side: no term is made [dst, src]. Unlike a Frobenius norm this knows patterns, norms, means and what occurs.

Null: what the source wrote, as the norm lets it through, turned by one random rotation of the stream; scores are kept.
The numerator is linear in the rotation, tr(rotation M) with M = sum_j x_j (W_K^T y_j)^T, so its mean is 0 and its variance
||M||^2 / d, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.chain import at_least_float32
from headway.behaviour.averages import Averages
from headway.errors import CannotCompose, check_kind
from headway.ids import HeadId
from headway.model.config import ModelConfig
from headway.model.positions import rotary_waves, rotate, sinusoids
from headway.model.recording import Recording
from headway.shapes import Stream
from headway.tables.table import Column, Table

SIDES = ("Q", "K")
COLUMNS = {
    "reader": Column("the head whose scores are split"),
    "via": Column("the side that is split: its queries, Q, or its keys, K"),
    "source": Column(
        "token, position, an earlier head (what it wrote of its values), `L0H1 bias` (its W_O b_V and W_OV beta), "
        "`L0 b_O`, and the reader's own b_Q, b_K, `W_Q beta`, `W_K beta`"
    ),
    "share": Column("share of the variance of scores over sources; all shares of a side add up to 1", "dimensionless"),
    "share_se": Column("standard error of the share over texts", "dimensionless", 0),
    "z": Column(
        "share over its standard deviation when a random rotation turns what the source wrote; the mean is 0",
        "dimensionless",
    ),
    "n": Column("texts averaged over", "texts", 1),
    "flag": Column("why a value of this row is missing"),
}
_NOTES = (
    "Norm scales are those of the recording: a source's part in making them is not counted.",
    "A constant on all scores of a destination has share 0: so have b_K and b_O on the K side without rotary positions.",
)


@torch.no_grad()
def composition_data_share(recording: Recording, reader: str | HeadId | None = None) -> Table:
    """Shares of each source in the scores of each head, on both sides: by reader, Q before K, the largest first.

    reader: that head alone; any head, of the first layer too (whose sources are token, position and biases). Formula and
    null: see the module; in the weights' precision, at least float32. Means are pooled over the texts (rows) of the
    recording, `share_se` is over them. meta: `remainder`, how far the sums are from 1 at most: rounding, unless the
    recording was made with edits, whose scores are not the sum of these terms. A reader whose scores do not vary has null
    shares and a flag. Raises UnknownName for a head that does not exist, UsageError for what is no recording,
    CannotCompose in a model without heads.

    >>> from headway.model.forward import run
    >>> from headway.sources.handmade import induction_model
    >>> model = induction_model(d_vocab=6, n_ctx=8).weights
    >>> table = composition_data_share(run(model, torch.tensor([[0, 1, 2, 1, 2]])), "L1H0")
    >>> best = next(row for row in table.rows() if row["via"] == "K")
    >>> best["source"], best["share"] > 0.5  # the rest is the pull of BOS, for queries without a match
    ('L0H0', True)
    """
    hint = "headway.run(weights, tokens) makes one"
    check_kind(recording, Recording, "not a recording", expected="a Recording", next_step=hint)
    weights = recording.weights
    if not weights.config.n_layers * weights.config.n_heads:
        raise CannotCompose("a model without heads scores nothing", expected="a model of one layer or more")
    chosen = list(weights.head_ids()) if reader is None else [weights.head_id(reader)]
    seen = _Seen(recording)
    rows: list[dict[str, Any]] = []
    worst = 0.0
    for layer in sorted({head.layer for head in chosen}):
        sources = list(seen.sources(layer))
        for head in (h for h in chosen if h.layer == layer):
            parts = _shares(seen, head, sources)
            for via in SIDES:
                total = [row["share"] for row in parts if row["via"] == via and "share" in row]
                worst = max(worst, abs(sum(total) - 1)) if total else worst
            rows += sorted(parts, key=lambda row: (SIDES.index(row["via"]), -row.get("share", 0.0)))
    options = {} if reader is None else {"reader": str(chosen[0])}
    origin = replace(weights.provenance, weights=weights.content_hash()).with_options(None, **options)
    meta = {
        "dtype": str(seen.dtype).removeprefix("torch."),
        "texts": len(recording.tokens),
        "null": "a random rotation of the stream turns what the source wrote; mean 0, variance exact",
        "remainder": worst,
        "notes": list(_NOTES),
    }
    return Table.from_rows(rows, COLUMNS, origin, meta)


@dataclass(frozen=True, eq=False)
class _Source:
    """One part of what a layer reads: in the stream, or joined to queries and keys behind the norm.

    read: after the norm's centring and scale, before its gain. joined: (query, key) parts [batch, head, pos, d_head], None
    on a side where there is none. A name with braces takes the side.
    """

    name: str
    read: Stream | None = None
    joined: tuple[Tensor | None, Tensor | None] = (None, None)


class _Seen:
    """A recording taken apart: the stream by source, queries and keys by layer."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.weights = recording, recording.weights
        self.config: ModelConfig = self.weights.config
        self.dtype = torch.promote_types(self.weights.dtype, torch.float32)
        tokens, keep = recording.tokens, recording.keep
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        self.places = places if keep is None else (keep.cumsum(-1) - 1).clamp_min(0)

    def tensor(self, name: str) -> Tensor | None:
        """A tensor of the weights without gradients, in at least float32; None where the model has none."""
        found = getattr(self.weights, name)
        return None if found is None else at_least_float32(found.detach())

    def matrix(self, name: str, layer: int) -> Float[Tensor, "head *rest"]:
        """One layer's matrices or biases, those of keys and values repeated for the heads that share them."""
        found = at_least_float32(getattr(self.weights, name)[layer].detach())
        shared = name in {"W_K", "W_V", "W_K_pos", "b_K", "b_V"}
        return found.repeat_interleave(self.config.group, dim=0) if shared else found

    def sources(self, layer: int) -> Iterator[_Source]:
        """Everything that the scores of a layer are made of, by source."""
        tokens, c = self.recording.tokens, self.config
        yield self._in_stream("token", layer, at_least_float32(self.weights.W_E.detach()).T[tokens])
        if (table := self.tensor("W_pos")) is not None:
            yield self._in_stream("position", layer, table.T[self.places])
        if c.positions == "shortformer":
            names = [f"W_{s}_pos" if self.tensor(f"W_{s}_pos") is not None else f"W_{s}" for s in SIDES]
            yield _Source("position", joined=self._joined(names, layer, sinusoids(self.places, c).to(self.dtype)))
        for below in range(layer):
            for name, written in self._written(below):
                yield self._in_stream(name, layer, written)
        if (beta := self.tensor("norm_bias")) is not None:
            constant = beta[layer].expand(*tokens.shape, -1)
            yield _Source("W_{} beta", joined=self._joined(["W_Q", "W_K"], layer, constant))
        b_Q, b_K = (self._bias(f"b_{side}", layer) for side in SIDES)
        yield _Source("b_{}", joined=(b_Q, b_K))

    def _in_stream(self, name: str, layer: int, stream: Stream) -> _Source:
        return _Source(name, read=self.scaled(layer, stream))

    def _bias(self, name: str, layer: int) -> Float[Tensor, "batch head pos d_head"] | None:
        if self.tensor(name) is None:
            return None
        batch, n = self.recording.tokens.shape
        return self.matrix(name, layer)[None, :, None].expand(batch, -1, n, -1)

    def _joined(self, names: list[str], layer: int, what: Stream) -> tuple[Tensor, Tensor]:
        q, k = (torch.einsum("bpm,hdm->bhpd", what, self.matrix(name, layer)) for name in names)
        return q, k

    def _written(self, layer: int) -> Iterator[tuple[str, Stream]]:
        """What each head of a layer wrote of its values, its constants, and b_O."""
        pattern = at_least_float32(self.recording.patterns[layer])
        W_O, W_V = self.matrix("W_O", layer), self.matrix("W_V", layer)
        read = self.gained(layer, self.scaled(layer, at_least_float32(self.recording.streams[layer])))
        beta, b_V = self.tensor("norm_bias"), self.tensor("b_V")
        sums = pattern.sum(-1, keepdim=True)
        for head in range(self.config.n_heads):
            yield str(HeadId(layer, head)), pattern[:, head] @ (read @ W_V[head].T) @ W_O[head].T
            constant = W_V.new_zeros(self.config.d_head) if beta is None else W_V[head] @ beta[layer]
            constant = constant if b_V is None else constant + self.matrix("b_V", layer)[head]
            if beta is not None or b_V is not None:
                yield f"{HeadId(layer, head)} bias", sums[:, head] * (W_O[head] @ constant)
        if (b_O := self.tensor("b_O")) is not None:
            yield f"L{layer} b_O", b_O[layer].expand(*self.recording.tokens.shape, -1)

    def scaled(self, layer: int, stream: Stream) -> Stream:
        """What a layer's read norm makes of a part of the stream before its gain; the part itself without norms."""
        scales = self.recording.norm_scales
        if scales is None:
            return stream
        centred = stream - stream.mean(-1, keepdim=True) if self.config.norm == "layer" else stream
        return centred * at_least_float32(scales[layer])[..., None]

    def gained(self, layer: int, read: Tensor) -> Tensor:
        """Times the gain of a layer's read norm, along the last axis."""
        gain = self.tensor("norm_gain")
        return read if gain is None else read * gain[layer]

    def turn(self, x: Float[Tensor, "batch pos d_head"], *, back: bool = False) -> Float[Tensor, "batch pos d_head"]:
        """Queries or keys turned to their positions, or back from there; as they are without rotary positions."""
        if not self.config.rotary_dims:
            return x
        cos, sin = (w.to(self.dtype) for w in rotary_waves(self.places, self.config))
        return rotate(x, cos, -sin if back else sin, self.config.rotary_pairs)


def _shares(seen: _Seen, head: HeadId, sources: list[_Source]) -> list[dict[str, Any]]:
    """The rows of one reader, both sides."""
    weights = [seen.gained(head.layer, seen.matrix(f"W_{side}", head.layer)[head.head]) for side in SIDES]
    parts: list[list[tuple[_Source, Tensor]]] = [[], []]  # of queries and of keys, by source, not yet turned
    for side, W in enumerate(weights):
        for source in sources:
            joined = source.joined[side]
            if source.read is not None:
                parts[side].append((source, source.read @ W.T))
            elif joined is not None:
                parts[side].append((source, joined[:, head.head]))
    turned = [seen.turn(torch.stack([part for _, part in side]).sum(0)) for side in parts]
    c, variance, floor = _centred_scores(seen.recording, head)
    moved = c @ turned[1], c.mT @ turned[0]  # sum_j c_ij k_j, sum_i c_ij q_i
    scale, free = seen.config.attn_scale, seen.config.d_model - (seen.config.norm == "layer")
    rows: list[dict[str, Any]] = []
    for side, via in enumerate(SIDES):
        y = scale * seen.turn(moved[side], back=True)
        sums = torch.stack([(part * y).sum((-2, -1)) for _, part in parts[side]])
        means = Averages.of(sums, variance[None])
        gradient = weights[side]
        if seen.config.norm == "layer":
            gradient = gradient - gradient.mean(-1, keepdim=True)
        for i, (source, _) in enumerate(parts[side]):
            row: dict[str, Any] = {"reader": head, "via": via, "source": source.name.format(via), "n": means.n}
            if floor:
                rows.append(row | {"flag": "the scores do not vary over sources"})
                continue
            row |= {"share": float(means.mean[i]), "share_se": float(means.se[i])}
            spread = _reach(source.read, y, gradient) / float(variance.double().sum())
            row["z"] = row["share"] / spread * free**0.5 if spread and free else None
            still = "joins after the norm" if source.read is None else "no rotation of it changes the share"
            flags = [f"z: {still}"] if row["z"] is None else []
            flags += ["one text: no standard error"] if means.n == 1 else []
            rows.append(row | {"flag": "; ".join(flags) or None})
    return rows


def _centred_scores(recording: Recording, head: HeadId) -> tuple[Tensor, Float[Tensor, " batch"], bool]:
    """c [batch, dst, src], the variances summed over destinations of each text, and whether they are all rounding."""
    score = at_least_float32(recording.scores[head.layer][:, head.head])
    allowed = recording.allowed.expand_as(score)
    n = allowed.sum(-1, keepdim=True).clamp_min(1)
    score = score.masked_fill(~allowed, 0)
    c = (score - score.sum(-1, keepdim=True) / n).masked_fill(~allowed, 0)
    variance = (c.square() / n).sum((-2, -1))
    rounding = (32 * torch.finfo(score.dtype).eps * score.abs().amax(-1)).square().sum()
    return c / n, variance, bool(variance.sum() <= rounding)


def _reach(
    read: Stream | None, y: Float[Tensor, "batch pos d_head"], gradient: Float[Tensor, "d_head d_model"]
) -> float:
    """||M|| of the rotation null; 0 where the source is in no stream, or where it is all rounding."""
    if read is None:
        return 0.0
    M = torch.einsum("bpm,bpd->md", read, y) @ gradient
    size = float(torch.linalg.matrix_norm(M))
    reach = float(read.norm() * y.norm() * gradient.norm())
    return size if size > 64 * torch.finfo(read.dtype).eps * reach else 0.0
