"""One circuit read out in tokens: its largest and smallest entries, and what it says of one token.

OV, [out, source]: by how much attending to a source token changes the logit of an out token, centred over outs. QK,
[destination, source]: the score a destination token gives to a source token, centred over sources. Centring takes away
what softmax does not see. Nothing [vocab, vocab] is ever held. (Elhage et al. 2021, "One-Layer Models".)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.given import whole_number
from headway.algebra.largest import top_entries
from headway.algebra.low_rank import LowRank
from headway.algebra.stream import centred
from headway.circuits.ov import ov_circuit
from headway.circuits.qk import qk_circuit
from headway.errors import TokenProblem, UnknownName
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.provenance import Provenance
from headway.tables.table import Column, Table

CIRCUITS = ("ov", "qk")
Progress = Callable[[int, int], object]

_RANK = Column("1, 2, ... for the largest values from the top, -1, -2, ... for the smallest from the bottom", "rank")
_VALUES = {
    "ov": Column("W_U W_OV W_E: logits of `out` from attending to `source`, centred over outs", "logits"),
    "qk": Column("score that `destination` gives to `source`, scale and biases in it, centred over sources", "nats"),
}


def _token(what: str) -> dict[str, Column]:
    return {f"{what}_id": Column(f"id of the {what} token", "id", 0), what: Column(f"the {what} token, made visible")}


ENTRY_COLUMNS = {
    "ov": {"rank": _RANK, **_token("source"), **_token("out"), "value": _VALUES["ov"]},
    "qk": {"rank": _RANK, **_token("destination"), **_token("source"), "value": _VALUES["qk"]},
}
TOKEN_COLUMNS = {
    "as": Column("what the asked token is: `source`, or `destination`, of the entries"),
    "rank": _RANK,
    "token_id": Column("id of the other token: an out for OV, a source or destination for QK", "id", 0),
    "token": Column("the other token, made visible"),
}
_NOTES = {
    "ov": (
        "What the head adds whatever it reads (b_V, the read norm's bias) and the final norm's scale are left out.",
    ),
    "qk": ("Entries of different destinations are not comparable: softmax is over the sources of each.",),
}
_PLACED = "Positions give terms of their own, not in these entries: see offset_profile, or --positions."
_DIRECT = "What earlier heads add to the stream is not in these entries: tokens are as embedded."


def circuit_entries(
    weights: Weights,
    head: str | HeadId,
    circuit: str = "ov",
    *,
    top: int = 20,
    offset: int = 0,
    progress: Progress | None = None,
) -> Table:
    """The `top` largest and `top` smallest entries of a head's whole circuit in tokens, exact, one row an entry.

    circuit: `ov` (rows source, out) or `qk` (rows destination, source). offset: destination - source, which matters to qk
    under rotary positions only. Both ends together hold all entries when there are no more than 2 top. The same for raw
    and folded weights. A circuit that is constant gives an empty table whose meta says so. Raises UnknownName for a head
    or circuit that does not exist, UsageError for a `top` or offset that is no whole number >= 0.

    >>> from headway.sources.handmade import skip_trigram_model
    >>> model = skip_trigram_model([(3, 7, 5)], d_vocab=9).weights
    >>> row = circuit_entries(model, "L0H0", "ov", top=1).rows()[0]
    >>> row["source_id"], row["out_id"]
    (3, 5)
    """
    matrix, origin, meta = _circuit(weights, head, circuit, offset)
    top = whole_number(top, "top", least=0)
    if "empty" in meta:
        return Table.from_rows([], ENTRY_COLUMNS[circuit], origin.with_options(None, top=top), meta)
    n = matrix.shape[0] * matrix.shape[1]
    low = min(top, n // 2)  # an entry has one row, whichever end it is nearer to
    ends = ((min(top, n - low), True), (low, False))
    names = ("out", "source") if circuit == "ov" else ("destination", "source")
    rows: list[dict[str, Any]] = []
    for k, largest in ends:
        found = top_entries(matrix, k, largest=largest, progress=progress)
        for rank, (value, i, j) in enumerate(
            zip(found.values.tolist(), found.rows.tolist(), found.columns.tolist(), strict=True), 1
        ):
            pair = dict(zip(names, (i, j), strict=True))
            row = {"rank": rank if largest else -rank, "value": value}
            for name, token in pair.items():
                row |= {f"{name}_id": token, name: token_label(weights, token)}
            rows.append(row)
    return Table.from_rows(rows, ENTRY_COLUMNS[circuit], origin.with_options(None, top=top), meta)


def circuit_of_token(
    weights: Weights,
    head: str | HeadId,
    circuit: str,
    token: str | SupportsIndex,
    *,
    top: int = 20,
    offset: int = 0,
) -> Table:
    """What a head's circuit says of one token: the `top` largest and smallest of its entries, one row each.

    ov: the logits that attending to it raises and lowers (`as` source). qk: the sources it scores highest and lowest as a
    destination (`as` destination), then the destinations that score it so (`as` source). token: an id, or text as
    `token_id` reads it. Raises as `circuit_entries` does, UnknownName for a token that does not exist.

    >>> from headway.sources.handmade import skip_trigram_model
    >>> model = skip_trigram_model([(3, 7, 5)], d_vocab=9).weights
    >>> [row["token_id"] for row in circuit_of_token(model, "L0H0", "qk", 7, top=1).rows()][0]
    3
    """
    matrix, origin, meta = _circuit(weights, head, circuit, offset)
    top, asked = whole_number(top, "top", least=0), token_id(weights, token)
    columns = TOKEN_COLUMNS | {"value": _VALUES[circuit]}
    origin = origin.with_options(None, top=top, token=asked)
    meta |= {"token": token_label(weights, asked), "token_id": asked}
    if "empty" in meta:
        return Table.from_rows([], columns, origin, meta)
    sides = {"source": matrix.columns(asked)} if circuit == "ov" else {"destination": matrix.rows(asked)}
    if circuit == "qk":
        sides["source"] = matrix.columns(asked)
    rows = [
        {"as": side, "rank": rank, "token_id": other, "token": token_label(weights, other), "value": value}
        for side, values in sides.items()
        for rank, other, value in both_ends(values, top)
    ]
    return Table.from_rows(rows, columns, origin, meta)


def token_id(weights: Weights, token: str | SupportsIndex) -> int:
    """The id of a token: of an id itself, of text by the model's tokenizer (exact text, label or #ID), or of `#ID`.

    Raises UnknownName when there is none, with near tokens where there is a tokenizer.

    >>> from headway.sources.handmade import copying_model
    >>> token_id(copying_model().weights, "#5")
    5
    """
    n = weights.config.d_vocab
    if isinstance(token, str):
        digits = token.removeprefix("#")
        number = int(digits[:99]) if digits.isascii() and digits.isdigit() else None
        if weights.tokenizer is not None and not (token.startswith("#") and number is not None and number >= n):
            try:
                return weights.tokenizer.find(token)
            except TokenProblem:
                number = n if number is None else number
        if number is None:
            raise UnknownName(f"no token {token!r}: this model carries no tokenizer", expected=f"an id, 0 .. {n - 1}")
    else:
        try:
            number = operator.index(token)
        except TypeError:
            raise UnknownName("not a token", expected="text or an id", got=repr(token)) from None
    if isinstance(token, bool) or not 0 <= number < n:
        raise UnknownName("no such token id", expected=f"0 .. d_vocab-1={n - 1}", got=repr(token))
    return number


def token_label(weights: Weights, token: int) -> str | None:
    """What to print for an id; None where the model's tokenizer does not know it, or there is none.

    >>> from headway.sources.handmade import copying_model
    >>> token_label(copying_model().weights, 3) is None
    True
    """
    known = weights.tokenizer
    return None if known is None or token >= known.d_vocab else known.label(token)


def check_circuit(circuit: object) -> str:
    """`ov` or `qk`. Raises UnknownName for anything else.

    >>> check_circuit("ov")
    'ov'
    """
    if not isinstance(circuit, str) or circuit not in CIRCUITS:
        raise UnknownName(f"no circuit {circuit!r}", expected=" or ".join(CIRCUITS))
    return circuit


def both_ends(values: Float[Tensor, " n"], top: int) -> Iterable[tuple[int, int, float]]:
    """(rank, index, value) of the `top` largest, from the top, and the `top` smallest, from the bottom; each index once.

    >>> list(both_ends(torch.tensor([3.0, 1.0, 2.0]), 1))
    [(1, 0, 3.0), (-1, 1, 1.0)]
    """
    order = values.sort(descending=True, stable=True)
    low = min(top, len(values) // 2)
    high = min(top, len(values) - low)
    for place in range(high):
        yield place + 1, int(order.indices[place]), float(order.values[place])
    for place in range(1, low + 1):
        yield -place, int(order.indices[-place]), float(order.values[-place])


@torch.no_grad()
def _circuit(
    weights: Weights, head: str | HeadId, circuit: str, offset: int
) -> tuple[LowRank, Provenance, dict[str, Any]]:
    """The centred circuit, its provenance, and what the table's meta says of it; `empty` when it is zero."""
    check_weights(weights)
    circuit, id_ = check_circuit(circuit), weights.head_id(head)
    whole_number(offset, "an offset is destination minus source", least=0)
    c = weights.config
    seen = processed(weights.check_finite(), "folded")
    if circuit == "ov":
        whole, matrix = ov_circuit(weights, id_, centred=False), ov_circuit(weights, id_)
    else:
        whole = qk_circuit(weights, id_, offset=offset)
        matrix = centred(whole, 1)
    options: dict[str, Any] = {"head": str(id_), "circuit": circuit}
    options |= {"offset": offset} if circuit == "qk" else {}
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(None, **options)
    notes = [*_NOTES[circuit], *([_DIRECT] if id_.layer else [])]
    notes += [_PLACED] if circuit == "qk" and c.positions in {"shortformer", "learned"} else []
    dtype = str(matrix.factors[0].dtype).removeprefix("torch.")
    meta: dict[str, Any] = {"dtype": dtype, "centred": "outs" if circuit == "ov" else "sources", "notes": notes}
    if not _moves(matrix, whole):
        meta["empty"] = f"zero circuit: {id_} {circuit.upper()}, centred over {meta['centred']}"
    return matrix, origin, meta


def _moves(matrix: LowRank, whole: LowRank) -> bool:
    """Whether centring left more than the rounding of the factors it took away from."""
    left, right = whole.pair()
    size = torch.linalg.matrix_norm(left.double()) * torch.linalg.matrix_norm(right.double())
    return bool(matrix.norm().double() > 8 * torch.finfo(left.dtype).eps * size)
