"""Where heads read and write: the query, key, value and write space of every head, and how much they overlap.

    query: column space of W_QK      key: row space of W_QK      value: row space of W_OV      write: column space of W_OV

Of the circuits, so no basis inside d_head enters. With rotary positions W_QK depends on the offset, and the spaces are what
W_Q and W_K read at any. Query, key and value space are three different spaces of a head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.low_rank import LowRank
from headway.circuits.as_read import tokens_as_read
from headway.errors import UnknownName, counted
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

SPACES = ("query", "key", "value", "write")

COLUMNS = {
    "head": Column("the head"),
    "space": Column("which of its spaces: " + ", ".join(SPACES)),
    "other": Column("the other head"),
    "other_space": Column("which of its spaces"),
    "overlap": Column("sum of cos^2 of the principal angles between both spaces", "dimensions shared", 0),
    "share": Column("overlap over the smaller number of dimensions, which it cannot exceed", "dimensionless", 0, 1),
    "dims": Column("dimensions of the space", "dimensions", 0),
    "other_dims": Column("dimensions of the other space", "dimensions", 0),
    "expected": Column(
        "overlap of two such spaces in random directions, dims x other_dims / d", "dimensions shared", 0
    ),
    "z": Column("(overlap - expected) / its standard deviation in random directions, exact", "sd"),
    "flag": Column("why a value of this row is missing"),
}


@dataclass(frozen=True, eq=False)
class HeadSpaces:
    """Orthonormal bases [d_model, r] of one head's four spaces; no columns where the circuit is zero."""

    query: Float[Tensor, "d_model rq"]
    key: Float[Tensor, "d_model rk"]
    value: Float[Tensor, "d_model rv"]
    write: Float[Tensor, "d_model rw"]


@torch.no_grad()
def head_spaces(weights: Weights, head: str | HeadId) -> HeadSpaces:
    """The four spaces of a head, float64, of weights with their norms folded in.

    Singular values within max(d_model, d_head) machine epsilons of the weights' precision times the size of the factors
    are no dimensions. Under LayerNorm nobody reads the all-ones direction, and it is taken out of what is written.

    >>> from headway.sources.handmade import previous_token_model
    >>> spaces = head_spaces(previous_token_model().weights, "L0H0")
    >>> bool(abs(spaces.value.T @ spaces.write).max() < 1e-9)  # it writes where it does not read
    True
    """
    check_weights(weights)
    return _spaces(processed(weights.check_finite(), "folded"), weights.head_id(head))


def _spaces(seen: Weights, id_: HeadId) -> HeadSpaces:
    head = seen.head(id_)
    eps = torch.finfo(torch.promote_types(seen.dtype, torch.float32)).eps * max(seen.config.d_model, seen.config.d_head)
    Q, K, V, out = (t.detach().double() for t in (head.W_Q, head.W_K, head.W_V, head.W_O))
    if "reads centred" in seen.provenance.steps:
        out = out - out.mean(0)
    if seen.config.rotary_dims:
        none = not bool(Q.any()) or not bool(K.any())
        query, key = (_basis(LowRank(W.T), eps)[0][:, : 0 if none else None] for W in (Q, K))
    else:
        query, key = _basis(LowRank(Q.T, K), eps)
    write, value = _basis(LowRank(out, V), eps)
    return HeadSpaces(query, key, value, write)


def _basis(product: LowRank, eps: float) -> tuple[Tensor, Tensor]:
    """Orthonormal columns of the column space and of the row space, of singular values above rounding."""
    svd = product.svd()
    size = torch.stack([torch.linalg.matrix_norm(f, 2) for f in product.factors]).prod()
    rank = int((eps * size < svd.S).sum())
    return svd.U[:, :rank], svd.V[:, :rank]


@torch.no_grad()
def space_overlaps(weights: Weights, *, space: str | None = None, other_space: str | None = None) -> Table:
    """The overlap of every two spaces of different heads, with what random directions give; largest share first.

    space, other_space: only pairs of these kinds, of `SPACES`. Each pair of heads and kinds has one row, the earlier head
    first. Between what a head writes and what a later one reads this is composition's geometry (`projection_kernel`);
    between two writers, who crowds whom. expected and z: one of both spaces turned by a random rotation in d dimensions,
    d_model, or d_model - 1 where reads are centred: mean d_S d_T / d, variance exact. A zero circuit has null and a flag.

    >>> from headway.sources.handmade import induction_model
    >>> table = space_overlaps(induction_model(d_vocab=6).weights, space="write", other_space="key")
    >>> row = table.rows()[0]
    >>> row["head"], row["other"], round(row["share"], 6)
    ('L0H0', 'L1H0', 1.0)
    """
    check_weights(weights)
    kinds = [_kind(name) for name in (space, other_space)]
    seen = processed(weights.check_finite(), "folded")
    d = seen.config.d_model - ("reads centred" in seen.provenance.steps)
    every = [
        (id_, name, getattr(one, name)) for id_ in seen.head_ids() for one in [_spaces(seen, id_)] for name in SPACES
    ]
    rows: list[dict[str, Any]] = []
    for place, (id_, name, basis) in enumerate(every):
        for other, other_name, other_basis in every[place + 1 :]:
            if other != id_ and name in kinds[0] and other_name in kinds[1]:
                row = {"head": str(id_), "space": name, "other": str(other), "other_space": other_name}
                rows.append(row | _overlap(basis, other_basis, d))
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(
        None, space=space, other_space=other_space
    )
    meta: dict[str, Any] = {"dtype": "float64", "null": f"random rotation between both spaces in d={d} dimensions"}
    if not rows:
        c = seen.config
        meta["empty"] = f"no two heads: {counted(c.n_layers, 'layer')} of {counted(c.n_heads, 'head')}"
    table = Table.from_rows(rows, COLUMNS, origin, meta)
    return table.sort("share", descending=True)


def _overlap(a: Tensor, b: Tensor, d: int) -> dict[str, Any]:
    p, q = a.shape[1], b.shape[1]
    row: dict[str, Any] = {"dims": p, "other_dims": q}
    if not p or not q:
        return row | {"flag": "zero circuit"}
    found, expected = float((a.T @ b).square().sum()), p * q / d
    row |= {"overlap": found, "share": min(found / min(p, q), 1.0), "expected": expected}
    if d < 2 or d in {p, q}:
        return row | {"flag": "z: one space is all there is"}
    # The varying part of tr(P Q S Q^T) is that of the traceless parts, as in the composition null.
    variance = 2 * (p - p * p / d) * (q - q * q / d) / ((d - 1) * (d + 2))
    return row | {"z": (found - expected) / variance**0.5, "flag": None}


def _kind(name: str | None) -> tuple[str, ...]:
    if name is not None and (not isinstance(name, str) or name not in SPACES):
        raise UnknownName(f"no space {name!r}", expected=" or ".join(SPACES))
    return SPACES if name is None else (name,)


WRITER_COLUMNS = {
    "writer": Column("token (the embedding), position (learned), or a head"),
    "dims": Column(
        "dimensions of the stream that are this writer's: shares of all directions, summed", "dimensions", 0
    ),
    "largest": Column("its largest share of any one direction; 1: nobody else writes there", "dimensionless", 0, 1),
    "mostly": Column("directions in which it writes more than all others together", "dimensions", 0),
    "energy": Column("its share of all that is written, mean squares over tokens", "dimensionless", 0, 1),
    "flag": Column("why a value of this row is missing"),
}


@torch.no_grad()
def write_shares(weights: Weights) -> Table:
    """Who writes where nobody else does: how the stream's dimensions are shared out among its writers; in order.

    With S_w the second moment of what writer w writes when every token is read alike (W_OV E for a head, E the embeddings
    as its layer reads them), and S their sum, a writer's share of a direction u is u^T S_w u / u^T S u. The generalised
    eigenvalues of (S_w, S) are its shares of the directions that set it apart most: `largest` is the first, `mostly` how
    many exceed 1/2, and `dims` = tr(S_w S^+) their sum. Over all writers `dims` adds up to the dimensions written at all.
    Unchanged by a change of the stream's basis (a symmetry without norms). Attention and biases are not in it.

    >>> from headway.sources.handmade import previous_token_model
    >>> rows = write_shares(previous_token_model(d_vocab=12).weights).rows()
    >>> [(row["writer"], round(row["largest"], 6)) for row in rows]
    [('token', 1.0), ('position', 1.0), ('L0H0', 1.0)]
    """
    check_weights(weights)
    seen = processed(weights.check_finite(), "folded")
    written: dict[str, Tensor] = {"token": _moment(seen.W_E.detach().double())}
    if seen.W_pos is not None:
        written["position"] = _moment(seen.W_pos.detach().double())
    for id_ in seen.head_ids():
        ov = seen.head(id_).ov.to(torch.float64)
        left, right = ov.pair()
        inner = right @ tokens_as_read(seen, id_.layer).double()
        written[str(id_)] = left @ _moment(inner) @ left.T
    total = torch.stack(list(written.values())).sum(0)
    values, vectors = torch.linalg.eigh(total)
    kept = values > values.max().clamp_min(0) * len(values) * torch.finfo(torch.float32).eps
    whiten = vectors[:, kept] * values[kept].rsqrt()
    rows: list[dict[str, Any]] = []
    for name, moment in written.items():
        shares = torch.linalg.eigvalsh(whiten.T @ moment @ whiten).clamp(0, 1)
        zero = not bool(moment.any())
        row = {"writer": name, "dims": float(shares.sum()), "largest": float(shares.max()) if len(shares) else 0.0}
        row |= {
            "mostly": int((shares > 0.5).sum()),
            "energy": float(moment.trace() / total.trace()) if len(shares) else None,
        }
        rows.append(row | {"flag": "writes nothing" if zero else None})
    origin = replace(seen.provenance, weights=weights.content_hash())
    meta = {"dtype": "float64", "dimensions_written": int(kept.sum())}
    return Table.from_rows(rows, WRITER_COLUMNS, origin, meta)


def _moment(written: Float[Tensor, "d n"]) -> Float[Tensor, "d d"]:
    return written @ written.T / written.shape[1]
