"""What a pair of heads does to attention, token by token: W_E^T W_QK W_OV W_E and its eigenvalues.

Through the writer's attention, a destination token t scores a source in which the writer stored token u by the entry
[t, u] of this matrix (K; for Q the writer stands on the destination's side, W_E^T W_OV^T W_QK W_E). An induction head
wants t = u: a large diagonal, positive eigenvalues (Elhage et al. 2021, "Induction heads"; Olsson et al. 2022, trace of
QK eigenvalues). With G = W_E W_E^T, the nonzero eigenvalues are those of the d_head x d_head matrix

    K: (W_K W_O) (W_V G W_Q^T)        Q: (W_Q W_O) (W_V G W_K^T)        rotary: R_-D before W_K, its transpose before W_Q

Softmax does not see a constant on a row, the eigenvalues do; centred over sources, G = W_E (1 - 11^T/d_vocab) W_E^T, they
do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headway.algebra.given import whole_number
from headway.algebra.null import check_seed, eigenvalue_ratio, haar_frame
from headway.circuits.absorbed import per_head, readers, seen_part, writers
from headway.circuits.pairs import BIASES_LEFT_OUT, FLAG, FORBIDDEN_LEFT_OUT, NAMES, Pairs, zero_reasons
from headway.errors import UsageError
from headway.ids import HeadId
from headway.model.positions import rotation
from headway.model.weights import Weights
from headway.tables.table import Column, Table

TERM_VIAS = ("Q", "K")
_TOKENS = 8192  # at a time: W_E is never whole in float64


def _columns(name: str, of: str) -> dict[str, Column]:
    """A ratio of eigenvalues, its spread under the null, and how far it is from its mean there, which is 0."""
    return {
        name: Column(f"sum of the eigenvalues of {of} over the sum of their absolute values", "dimensionless", -1, 1),
        f"{name}_null_sd": Column(
            "its standard deviation under the rotation null, whose mean is 0", "dimensionless", 0
        ),
        f"{name}_z": Column("the ratio over that standard deviation", "dimensionless"),
    }


COLUMNS = {
    **NAMES,
    **_columns("positivity", "the term W_E^T W_QK W_OV W_E"),
    **_columns("positivity_centred", "the same with scores centred over source tokens"),
    "trace": Column("attn_scale x trace of the term: summed over tokens, the score of each for itself", "nats"),
    "trace_z": Column("the trace over its standard deviation under the rotation null, exact", "dimensionless"),
    "flag": FLAG,
}
_NOTES = (
    BIASES_LEFT_OUT,
    "Norm scales are left out, so the trace is in nats up to them; the ratios do not see scale.",
    "Only positivity_centred is unchanged when a constant is added to all scores of a destination.",
    FORBIDDEN_LEFT_OUT,
)


class Draws(NamedTuple):
    """How many draws of a null, and their seed. 0 draws leave the null out."""

    n: int = 50
    seed: int = 0


USUAL = Draws()


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of one reader with every writer in an earlier layer: cores whose eigenvalues are those of the terms.

    reader: place of the reader among all heads, writers: those of the writers. cores: (raw, centred), up to `size`.
    floor: what rounding alone could make of a core's norm. lead [k] and wrote [writer, k]: the spectra on both sides of
    where reader and writer meet, and rest what follows, so that the core is lead X wrote rest for the orthonormal corner
    X that the null redraws.
    """

    reader: int
    writers: Int[np.ndarray, " writer"]
    cores: Float[Tensor, "kind writer d_head d_head"]
    size: Float[Tensor, " writer"]
    floor: Float[Tensor, "kind writer"]
    lead: Float[Tensor, " k"]
    wrote: Float[Tensor, "writer k"]
    rest: Float[Tensor, "kind writer k k"]

    @property
    def positivity(self) -> Float[Tensor, "kind writer"]:
        """Ratios of eigenvalues; NaN where the core is all rounding."""
        ratio = eigenvalue_ratio(torch.linalg.eigvals(self.cores))
        return ratio.masked_fill(torch.linalg.matrix_norm(self.cores) <= self.floor, torch.nan)


def token_term_scores(
    weights: Weights,
    *,
    via: str | None = None,
    reader: str | HeadId | None = None,
    processing: str = "folded",
    offset: int = 0,
    draws: Draws = USUAL,
) -> Table:
    """Eigenvalue positivity of the token-level term of each pair, for K and Q; most positive first.

    1 when every eigenvalue is positive: through the writer, tokens score those that are they themselves. Raw and centred
    over sources, each with its spread under a null: a random rotation between reader and writer, which keeps all spectra,
    what the writer reads, the reader's other side and W_E. Turning a rotation round turns the sign, so the null's mean is
    0 exactly; its spread is the root mean square of `draws`, which are most of the work: `draws=Draws(0)` leaves them
    out. trace_z is exact without draws. Computed in d_head x d_head, float64. Arguments and errors as in
    `composition_scores`; the term of V is copying of a virtual head.

    >>> from headway.sources.handmade import induction_model
    >>> row = token_term_scores(induction_model(d_vocab=6).weights, via="K").rows()[0]
    >>> row["reader"], row["writer"], round(row["positivity"], 6)
    ('L1H0', 'L0H0', 1.0)
    """
    draws = checked_draws(draws)
    pairs = Pairs.of(weights, via, reader, (processing, offset), TERM_VIAS)
    corners = _corners(pairs, draws)
    frames: list[pl.DataFrame] = []
    for v in pairs.vias if len(pairs.r) else ():
        dead = readers(pairs.seen, v, offset, pairs.d).dead, writers(pairs.seen, pairs.centred).dead
        frames += [_frame(pairs, v, terms, corners, dead) for terms in terms_of(pairs, v)]
    meta = {
        "dtype": "float64",
        "null": f"random rotation between reader and writer in d={pairs.d} dimensions; {draws.n} draws, mean exactly 0",
        "notes": _NOTES,
    }
    table = pairs.table(frames, COLUMNS, meta, by="positivity")
    origin = table.provenance.with_options(draws.seed, draws=draws.n)
    return Table(table.frame, COLUMNS, origin, table.meta)


def terms_of(pairs: Pairs, via: str) -> Iterator[Terms]:
    """The terms of each reader asked for, one at a time; nothing in a model without pairs."""
    if not len(pairs.r):
        return
    moments = _second_moments(pairs.seen)
    lead, tail = _reads(pairs, via)
    W_O, size_O = _sized(pairs.seen.W_O.detach().double().cpu().flatten(0, 1))
    W_V, size_V = _sized(per_head(pairs.seen.W_V.detach().double().cpu(), "W_V", pairs.seen.config.group).flatten(0, 1))
    (lead, size_lead), (tail, size_tail) = _sized(lead), _sized(tail)
    _, wrote, turned = torch.linalg.svd(seen_part(W_O.mT).mT if pairs.centred else W_O, full_matrices=False)
    read = W_V @ moments[0][:, None]
    k = min(wrote.shape[-1], pairs.d)
    eps = lead.shape[-2] * torch.finfo(torch.float64).eps
    norms_O, norms_V = (torch.linalg.matrix_norm(t) for t in (W_O, W_V))
    for r in np.unique(pairs.r):
        if pairs.reader is not None and pairs.names[r] != str(pairs.reader):
            continue
        w = pairs.w[pairs.r == r]
        left, S, _ = torch.linalg.svd(lead[r], full_matrices=False)
        behind = read[:, w] @ tail[r].T
        floor = norms_O[w] * norms_V[w] * torch.linalg.matrix_norm(lead[r]) * torch.linalg.matrix_norm(tail[r])
        yield Terms(
            reader=int(r),
            writers=w,
            cores=(lead[r] @ W_O[w]) @ behind,
            size=size_lead[r] * size_tail[r] * size_O[w] * size_V[w] * moments[1],
            floor=eps * floor * torch.linalg.matrix_norm(moments[0])[:, None],
            lead=S[:k],
            wrote=wrote[w][:, :k],
            rest=turned[w][:, :k] @ behind @ left[:, :k],
        )


def checked_draws(draws: object) -> Draws:
    """The draws asked for. Raises UsageError for what are none, and for 1, which has no spread."""
    if not isinstance(draws, Draws):
        raise UsageError("draws of a null", expected="Draws(n, seed)", got=repr(draws)[:60])
    check_seed(draws.seed)
    if whole_number(draws.n, "draws of a null", least=0) == 1:
        raise UsageError("too few draws for a null", expected="2 or more, or 0 for no null", got=1)
    return draws


def _frame(
    pairs: Pairs,
    via: str,
    terms: Terms,
    corners: Float[Tensor, "draw k k"],
    dead: tuple[Bool[np.ndarray, " head"], Bool[np.ndarray, " head"]],
) -> pl.DataFrame:
    """The rows of one reader and via; dead: which heads read or write nothing."""
    ratio, spread = terms.positivity, _spread(terms, corners)
    z = ratio / spread.masked_fill(spread <= 1e-12, torch.nan)
    scale = pairs.seen.config.attn_scale
    trace = terms.cores[0].diagonal(dim1=-2, dim2=-1).sum(-1)
    swing = terms.wrote[..., None] * terms.rest[0] * terms.lead
    trace_sd = torch.linalg.matrix_norm(swing) / max(pairs.d, 1) ** 0.5
    unknown = ratio[0].isnan()
    columns: dict[str, Tensor] = {}
    for kind, name in enumerate(("positivity", "positivity_centred")):
        columns |= {name: ratio[kind], f"{name}_null_sd": spread[kind].masked_fill(ratio[kind].isnan(), torch.nan)}
        columns[f"{name}_z"] = z[kind]
    columns["trace"] = (trace * terms.size * scale).masked_fill(unknown, torch.nan)
    columns["trace_z"] = (trace / trace_sd.masked_fill(trace_sd == 0, torch.nan)).masked_fill(unknown, torch.nan)
    plain = {name: c.masked_fill(c.isinf(), torch.nan).numpy() for name, c in columns.items()}
    frame = pl.DataFrame(
        {"reader": [str(pairs.names[terms.reader])] * len(terms.writers), "writer": pairs.names[terms.writers]}
        | {name: pl.Series(column, nan_to_null=True) for name, column in plain.items()}
    )
    flags: list[str | None] = []
    for i, w in enumerate(terms.writers):
        zero = zero_reasons((terms.reader, int(w)), dead, pairs.names, "QK")
        flags.append(_flag({name for name, column in plain.items() if np.isnan(column[i])}, zero, len(corners)))
    flag = pl.Series(flags, dtype=pl.String)
    return frame.with_columns(via=pl.lit(via), flag=flag).select(*COLUMNS)


def _flag(missing: set[str], zero: list[str], draws: int) -> str | None:
    """Why these columns of a row are null."""
    if zero or not missing:
        return "; ".join(zero) or None
    lost = [name for name in ("positivity", "positivity_centred") if name in missing]
    reasons = [f"{name}: the term takes no token to any token" for name in lost]
    if not draws:
        reasons.append("no null was drawn")
    still = [n for n in sorted(missing) if n.endswith("_z") and n.removesuffix("_z") not in missing]
    reasons += [f"{n}: the null does not vary" for n in still if draws or n == "trace_z"]
    reasons += ["trace: too large for a number"] if "trace" in missing and "positivity" not in missing else []
    return "; ".join(reasons)


def _corners(pairs: Pairs, draws: Draws) -> Float[Tensor, "draw k k"]:
    """Corners of Haar matrices in d dimensions, k x k: what stands between two k-dimensional frames turned at random."""
    k, random = min(pairs.seen.config.d_head, pairs.d), torch.Generator().manual_seed(draws.seed)
    drawn = [haar_frame(pairs.d, k, random)[:k] for _ in range(draws.n)]
    return torch.stack(drawn) if drawn else torch.zeros(0, k, k, dtype=torch.float64)


def _spread(terms: Terms, corners: Float[Tensor, "draw k k"]) -> Float[Tensor, "kind writer"]:
    """Root mean square of the positivity over the draws; NaN without any."""
    total = torch.zeros(terms.rest.shape[:2], dtype=torch.float64)
    for corner in corners:  # one at a time: memory stays at [kind, writer, k, k]
        core = (terms.lead[:, None] * corner * terms.wrote[:, None, :]) @ terms.rest
        total += eigenvalue_ratio(torch.linalg.eigvals(core)).square()
    return (total / len(corners)).sqrt() if len(corners) else torch.full_like(total, torch.nan)


def _reads(pairs: Pairs, via: str) -> tuple[Float[Tensor, "head d_head d_model"], Float[Tensor, "head d_head d_model"]]:
    """What of the reader meets the writer, and its other side: R_-D W_K and W_Q for K."""
    seen, turn = pairs.seen, rotation(-pairs.offset, pairs.seen.config)
    Q, K = (
        per_head(getattr(seen, name).detach().double().cpu(), name, seen.config.group).flatten(0, 1)
        for name in ("W_Q", "W_K")
    )
    return (turn @ K, Q) if via == "K" else (turn.T @ Q, K)


def _second_moments(weights: Weights) -> tuple[Float[Tensor, "2 d_model d_model"], float]:
    """W_E W_E^T and the same centred over tokens, both over a size squared; and that size squared. float64."""
    d, n = weights.W_E.shape
    size = float(weights.W_E.detach().abs().max()) or 1.0
    mean = weights.W_E.detach().double().mean(1, keepdim=True) / size
    raw, centred = (torch.zeros(d, d, dtype=torch.float64, device=weights.device) for _ in range(2))
    for start in range(0, n, _TOKENS):
        part = weights.W_E[:, start : start + _TOKENS].detach().double() / size
        raw += part @ part.T
        centred += (part - mean) @ (part - mean).T
    return torch.stack((raw, centred)).cpu(), size**2


def _sized(matrices: Float[Tensor, "head m n"]) -> tuple[Float[Tensor, "head m n"], Float[Tensor, " head"]]:
    """Each matrix over its largest entry, and that."""
    largest = matrices.abs().amax((-2, -1))
    largest = largest.masked_fill(largest == 0, 1)
    return matrices / largest[:, None, None], largest
