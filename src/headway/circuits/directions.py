"""The singular directions of a head's circuit, read out in tokens: what each reads, and what it writes.

    W_OV = sum_r S_r u_r v_r^T:  the head reads along v_r, and writes along u_r    (Elhage et al. 2021, fn 9)
    attn_scale W_QK = sum_r S_r u_r v_r^T:  u_r meets the destination, v_r the source

A token's place on a direction is v_r . x for reads (x its embedding as the layer reads it), W_U u_r for writes; an entry
of the circuit in tokens is the sum of S times both sides. Singular vectors exist only where singular values are apart:
near-equal ones span a space without directions of its own, a block, in which only the length of a projection has a
meaning (Millidge and Black 2022 list tokens of single vectors).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.chain import unit_factors
from headway.algebra.given import whole_number
from headway.algebra.low_rank import SVD, LowRank
from headway.circuits.as_read import tokens_as_read
from headway.circuits.entries import check_circuit, token_label
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

CLOSE = 1e-3  # of the larger value: nearer singular values are one block
_SURE = 1e3  # times eps times the largest value: nearer ones have vectors that rounding turns by more than 1e-3
_TOKENS = 8192  # projected at a time: W_E and W_U are never whole in float64
SIDES = {"ov": ("reads", "writes"), "qk": ("destination", "source")}

COLUMNS = {
    "block": Column("which block of near-equal singular values, 1 the strongest", "rank", 1),
    "dims": Column("how many singular values the block holds", "dimensions", 1),
    "singular": Column("the largest of them: of W_OV, or of attn_scale W_QK", "dimensionless", 0),
    "singular_least": Column("the smallest of them", "dimensionless", 0),
    "share": Column("their share of the sum of all squared singular values", "dimensionless", 0, 1),
    "side": Column("`reads` and `writes` for OV, `destination` and `source` for QK"),
    "rank": Column("1, 2, ... for the largest values from the top, -1, -2, ... for the most negative", "rank"),
    "token_id": Column("id of the token", "id", 0),
    "token": Column("the token, made visible"),
    "value": Column(
        "the token's projection on the direction, with sign; in a block of several dims the projection's length",
        "dimensionless",
    ),
    "flag": Column("why a value has no sign"),
}
_NOTES = {
    "ov": "Projections of writes are centred over tokens; biases and the final norm's scale are left out.",
    "qk": "Projections of sources are centred over tokens, which softmax does not see; biases are left out.",
}
_SIGNS = "Signs: the largest projection on the first side is positive; both sides turn together."


@torch.no_grad()
def circuit_directions(
    weights: Weights,
    head: str | HeadId,
    circuit: str = "ov",
    *,
    k: int = 10,
    blocks: int | None = None,
    offset: int = 0,
) -> Table:
    """The k tokens furthest along each singular direction of a circuit, on both its sides; strongest directions first.

    A block of one dimension gives the k most positive and the k most negative tokens of each side; one of several, whose
    values differ by less than 0.1 % (or by too little for their vectors to be certain at the weights' precision), the k
    tokens with the longest projections, flagged. blocks: only so many, the strongest. offset: destination - source, for
    qk under rotary positions. Values zero within rounding are no directions. float64; norm gains folded and reads centred,
    so the same for raw and folded weights up to their precision, and under any change of basis inside d_head. A zero
    circuit gives an empty table whose meta says so. Raises UnknownName for a head or circuit that does not exist,
    UsageError for numbers that are not whole and >= 0.

    >>> from headway.sources.handmade import copying_model
    >>> row = circuit_directions(copying_model(d_vocab=5).weights, "L0H0", k=1).rows()[0]
    >>> row["dims"], row["side"], row["flag"]
    (4, 'reads', '4 near-equal singular values: only lengths of projections have a meaning')
    """
    check_weights(weights)
    circuit, id_ = check_circuit(circuit), weights.head_id(head)
    k = whole_number(k, "k tokens", least=0)
    whole_number(offset, "an offset is destination minus source", least=0)
    most = None if blocks is None else whole_number(blocks, "blocks", least=0)
    seen = processed(weights.check_finite(), "folded")
    one = seen.head(id_)
    product = one.ov if circuit == "ov" else one.qk(offset) * one.attn_scale
    precision = torch.finfo(product.factors[0].dtype).eps
    svd = _directions(product, precision)
    found = block_slices(svd.S, precision)
    options: dict[str, Any] = {"head": str(id_), "circuit": circuit, "k": k} | (
        {} if most is None else {"blocks": most}
    )
    options |= {"offset": offset} if circuit == "qk" else {}
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(None, **options)
    meta: dict[str, Any] = {
        "dtype": "float64",
        "directions": len(svd.S),
        "blocks_found": len(found),
        "near_equal": f"gap <= {CLOSE:g} of the larger, or <= {_SURE * precision:.1e} of the largest",
        "notes": [_NOTES[circuit], _SIGNS],
    }
    if not found:
        meta["empty"] = f"zero circuit: {id_} {circuit.upper()}"
    chosen = found[:most]
    sides = _projections(seen, id_, circuit, svd, chosen[-1].stop if chosen else 0)
    rows = [
        described | {"side": side, "token": token_label(weights, described["token_id"])}
        for number, block in enumerate(chosen, 1)
        for side, values in zip(SIDES[circuit], _signed([s[:, block] for s in sides]), strict=True)
        for described in _rows(number, svd.S, block, (values, 4 * precision * float(values.abs().max())), k)
    ]
    return Table.from_rows(rows, COLUMNS, origin, meta)


def block_slices(values: Float[Tensor, " n"], precision: float) -> list[slice]:
    """Runs of near-equal singular values (descending, > 0): neighbours whose gap is small are in one run.

    Small: at most 1e-3 of the larger value, or at most 1000 `precision` of the largest value of all.

    >>> block_slices(torch.tensor([2.0, 1.9999, 1.0]), 1e-7)
    [slice(0, 2, None), slice(2, 3, None)]
    """
    if not len(values):
        return []
    gap = values[:-1] - values[1:]
    apart = (gap > CLOSE * values[:-1]) & (gap > _SURE * precision * values[0])
    ends = [*(apart.nonzero().flatten() + 1).tolist(), len(values)]
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _directions(product: LowRank, precision: float) -> SVD:
    """The SVD in float64, without values that are zero within the rounding of the weights."""
    factors, exponent = unit_factors(product.to(torch.float64).factors)
    U, values, V = LowRank(*factors).svd()
    kept = values > len(values) * precision * values.max()
    return SVD(U[:, kept], values[kept] * 2.0**exponent, V[:, kept])


def _projections(
    folded: Weights, id_: HeadId, circuit: str, svd: SVD, n: int
) -> tuple[Float[Tensor, "vocab n"], Float[Tensor, "vocab n"]]:
    """Every token on the first n directions of both sides, in the order of `SIDES`; float64."""
    read = tokens_as_read(folded, id_.layer).T
    U, V = svd.U[:, :n], svd.V[:, :n]
    if circuit == "ov":
        return _on(read, V), _centred(_on(folded.W_U, U))
    return _on(read, U), _centred(_on(read, V))


def _on(rows: Float[Tensor, "vocab d_model"], directions: Float[Tensor, "d_model n"]) -> Float[Tensor, "vocab n"]:
    return torch.cat([part.detach().double() @ directions for part in rows.split(_TOKENS)])


def _centred(values: Float[Tensor, "vocab n"]) -> Float[Tensor, "vocab n"]:
    return values - values.mean(0)


def _signed(sides: list[Float[Tensor, "vocab dims"]]) -> list[Float[Tensor, " vocab"]]:
    """One number a token and side: the projection, its sign fixed by the first side, or its length in several dims."""
    if sides[0].shape[1] != 1:
        return [side.norm(dim=-1) for side in sides]
    first = sides[0][:, 0]
    # The lowest id among tokens as far out as any: rounding may not choose between two that are equally far.
    leader = first[(first.abs() >= first.abs().max() * (1 - 1e-9)).nonzero()[0, 0]]
    sign = -1.0 if float(leader) < 0 else 1.0
    return [side[:, 0] * sign for side in sides]


def _rows(
    number: int, S: Float[Tensor, " n"], block: slice, found: tuple[Float[Tensor, " vocab"], float], k: int
) -> Iterator[dict[str, Any]]:
    """The rows of one block and side, but for the side's name and the tokens' labels; found: values, and what is zero."""
    values, zero = found
    inside, dims = S[block], block.stop - block.start
    row = {
        "block": number,
        "dims": dims,
        "singular": float(inside[0]),
        "singular_least": float(inside[-1]),
        "share": float((inside / S[0]).square().sum() / (S / S[0]).square().sum()),
        "flag": None if dims == 1 else f"{dims} near-equal singular values: only lengths of projections have a meaning",
    }
    for sign in (1, -1):
        far = (values * sign).sort(descending=True, stable=True)
        for rank, (value, token) in enumerate(zip(far.values[:k].tolist(), far.indices[:k].tolist(), strict=True), 1):
            if value > zero:  # lengths have no other side, and a token that is not on the direction no rank on it
                yield row | {"rank": sign * rank, "token_id": token, "value": sign * value}
