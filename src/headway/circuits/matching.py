"""Which head of one model is like which of another, whatever bases both were trained into.

Two models with one vocabulary share no basis but that of tokens, so heads are compared there:

    OV: C = W_U W_OV E, centred over outs         QK: C = attn_scale (W_Q E + b_Q)^T (W_K E + b_K), centred over sources

and the likeness of two heads is the cosine of their circuits, <C_a, C_b> / (|C_a| |C_b|), the mean of OV and QK. Centred,
because a constant on all logits, or on a row of scores, changes nothing. Inner products come from the factors alone:
nothing [vocab, vocab], and nothing [vocab, heads x d_head], is made.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from headway.circuits.as_read import tokens_as_read
from headway.errors import ShapeProblem, TokenProblem
from headway.ids import HeadId
from headway.model.positions import check_offset
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

COLUMNS = {
    "head": Column("a head of the first model"),
    "match": Column("the head of the second model it is matched with, one to one, all likenesses together largest"),
    "likeness": Column("mean of ov and qk, or the one there is", "dimensionless", -1, 1),
    "ov": Column("cosine of both OV circuits in tokens, centred over outs", "dimensionless", -1, 1),
    "qk": Column("cosine of both QK circuits in tokens, centred over sources", "dimensionless", -1, 1),
    "nearest": Column("the head of the second model it is most like, whoever else is"),
    "nearest_likeness": Column("likeness with that head", "dimensionless", -1, 1),
    "next_likeness": Column("likeness with the head it is next most like", "dimensionless", -1, 1),
    "percentile": Column(
        "percent of all pairs of heads of both models that are at most as alike as the match", "percent", 0, 100
    ),
    "flag": Column("why a value of this row is missing"),
}


@torch.no_grad()
def match_heads(first: Weights, second: Weights, *, offset: int = 0) -> Table:
    """For every head of the first model, the head of the second that is like it: one row each, in order.

    Tokens are read as each head's layer reads the embedding; what positions add to scores, and what earlier heads write, is
    left out. offset: at which QK circuits under rotary positions are compared. Unchanged by bases inside d_head, of the
    stream (without norms), by constants on logits or rows of scores, and by the scale of one circuit. Chance: `percentile`
    among all pairs; heads of one model share its embedding, so even unlike heads are a little alike. A head with one
    circuit that is zero in tokens is compared by the other; with none (it reads positions and writes for other heads
    alone, say) it has no likeness and no match; of a larger model some heads are left over: all flagged. Raises
    ShapeProblem for vocabularies of different sizes, TokenProblem for tokenizers that differ.

    >>> from headway.sources.handmade import induction_model
    >>> a, b = (induction_model(d_vocab=8, seed=seed).weights for seed in (0, 1))
    >>> [(row["head"], row["match"], row["flag"]) for row in match_heads(a, b).rows()]
    [('L0H0', None, 'no circuit from tokens to tokens'), ('L1H0', 'L1H0', None)]
    """
    for weights in (first, second):
        check_weights(weights)
    check_offset(offset)
    _check_same_tokens(first, second)
    sides = [_Side.of(weights, offset) for weights in (first, second)]
    ov, qk = _cosines(sides[0], sides[1])
    both = np.where(np.isnan(ov), qk, np.where(np.isnan(qk), ov, (ov + qk) / 2))
    usable = np.nan_to_num(both, nan=-2.0)
    match = dict(zip(*(part.tolist() for part in linear_sum_assignment(usable, maximize=True)), strict=True))
    known = np.sort(both[~np.isnan(both)])
    rows = [_row(i, head, match.get(i), (both, ov, qk), sides[1].heads, known) for i, head in enumerate(sides[0].heads)]
    origin = replace(first.provenance, weights=first.content_hash())
    options = {"second": second.content_hash(), "offset": offset}
    return Table.from_rows(rows, COLUMNS, origin.with_options(None, **options), {"dtype": "float64"})


@dataclass(frozen=True, eq=False)
class _Side:
    """One model's heads as factors: what multiplies tokens on the left and on the right of each circuit.

    read: tokens as read and a row of ones, per layer; unread: W_U centred over the vocabulary, transposed. ov, qk: factors
    (left [d + 1 or d_model, r], right [d + 1, r]) of each head. eps: the rounding of the weights, relative.
    """

    heads: list[HeadId]
    read: list[Float[Tensor, "d vocab"]]
    unread: Float[Tensor, "d_model vocab"]
    ov: list[tuple[Tensor, Tensor]]
    qk: list[tuple[Tensor, Tensor]]
    eps: float

    @classmethod
    def of(cls, weights: Weights, offset: int) -> _Side:
        seen = processed(weights.check_finite(), "folded")
        read = []
        for layer in range(seen.config.n_layers):
            tokens = tokens_as_read(seen, layer).double()
            read.append(torch.cat((tokens, torch.ones_like(tokens[:1]))))
        W_U = seen.W_U.detach().double()
        heads, ov, qk = list(seen.head_ids()), [], []
        for id_ in heads:
            head = seen.head(id_)
            V = torch.cat((head.W_V.detach().double().T, torch.zeros(1, head.W_V.shape[0], dtype=torch.float64)))
            ov.append((head.W_O.detach().double(), V))
            left, right = head.qk(offset, biases=True).to(torch.float64).pair()
            qk.append((left.detach() * head.attn_scale, right.detach().T))
        # Norms come from inner products, whose rounding is that of a square.
        eps = max(64 * torch.finfo(torch.promote_types(seen.dtype, torch.float32)).eps, 1e-7)
        return cls(heads, read, (W_U - W_U.mean(0)).T, ov, qk, eps)


def _cosines(a: _Side, b: _Side) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of the OV and of the QK circuits of every two heads; NaN where one is zero."""
    found = []
    for of in ("ov", "qk"):
        inner = _inner(a, b, of)
        norms = [np.sqrt(np.maximum(np.diag(_inner(x, x, of)), 0)) for x in (a, b)]
        dead = [n <= x.eps * _sizes(x, of) for n, x in zip(norms, (a, b), strict=True)]
        size = np.outer(*(np.where(d, np.nan, n) for n, d in zip(norms, dead, strict=True)))
        found.append(np.clip(inner / size, -1, 1))
    return found[0], found[1]


def _inner(a: _Side, b: _Side, of: str) -> np.ndarray:
    """<C_a, C_b> of every two heads: tr(L_a^T X L_b R_b^T Y R_a), X and Y the tokens' share, once a pair of layers."""
    out = np.zeros((len(a.heads), len(b.heads)))
    unread = a.unread @ b.unread.T
    crossed: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    for (i, x), (j, y) in itertools.product(enumerate(a.heads), enumerate(b.heads)):
        layers = x.layer, y.layer
        if layers not in crossed:
            r, s = a.read[x.layer], b.read[y.layer]
            crossed[layers] = r @ s.T, (r - r.mean(1, keepdim=True)) @ s.T
        plain, centred = crossed[layers]
        (left, right), (other_left, other_right) = getattr(a, of)[i], getattr(b, of)[j]
        X, Y = (unread, plain) if of == "ov" else (plain, centred)
        out[i, j] = float(((left.T @ X @ other_left) * (right.T @ Y @ other_right)).sum())
    return out


def _sizes(side: _Side, of: str) -> np.ndarray:
    """What the circuits would be without cancellation: rounding is measured against it."""
    ends = [float(torch.linalg.matrix_norm(side.unread)) if of == "ov" else None, None]
    sizes = []
    for id_, (left, right) in zip(side.heads, getattr(side, of), strict=True):
        read = float(torch.linalg.matrix_norm(side.read[id_.layer]))
        sizes.append(float(torch.linalg.matrix_norm(left) * torch.linalg.matrix_norm(right)) * (ends[0] or read) * read)
    return np.array(sizes)


def _row(
    i: int,
    head: HeadId,
    match: int | None,
    likeness: tuple[np.ndarray, np.ndarray, np.ndarray],
    others: list[HeadId],
    known: np.ndarray,
) -> dict[str, Any]:
    both, ov, qk = (values[i] for values in likeness)
    row: dict[str, Any] = {"head": str(head)}
    order = [j for j in np.argsort(-both, kind="stable").tolist() if not np.isnan(both[j])]
    if not order:
        zero = "no circuit from tokens to tokens" if len(others) else "the second model has no heads"
        return row | {"flag": zero}
    row |= {"nearest": str(others[order[0]]), "nearest_likeness": float(both[order[0]])}
    row["next_likeness"] = float(both[order[1]]) if len(order) > 1 else None
    if match is None or np.isnan(both[match]):
        return row | {"flag": "left over: the second model has no head for it"}
    row |= {"match": str(others[match]), "likeness": float(both[match]), "ov": float(ov[match]), "qk": float(qk[match])}
    row["percentile"] = 100 * float(np.searchsorted(known, both[match], side="right")) / len(known)
    row = {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in row.items()}
    missing = [f"{name}: zero circuit" for name in ("ov", "qk") if row[name] is None]
    return row | {"flag": "; ".join(missing) or None}


def _check_same_tokens(first: Weights, second: Weights) -> None:
    a, b = first.config.d_vocab, second.config.d_vocab
    if a != b:
        hint = "Heads are compared in tokens: both models need one vocabulary"
        raise ShapeProblem("two vocabularies", expected=f"d_vocab={a}", got=b, next_step=hint)
    both = [w.tokenizer for w in (first, second) if w.tokenizer is not None]
    if len({tokenizer.to_json() for tokenizer in both}) > 1:
        raise TokenProblem("two tokenizers", expected="one, that both models were trained with", got="two that differ")
