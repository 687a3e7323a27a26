"""Copying, token by token: what the diagonal of a head's OV circuit says of each token's own logit.

The eigenvalue ratio knows only sums (sum of eigenvalues = trace = sum of the diagonal), and eigenvectors are not
orthogonal: all eigenvalues can be positive while half of the tokens lower themselves. So here every token is asked. The
circuit is W_U W_OV E [out, source], E the embeddings as the head's layer reads them, centred over outs (a constant on all
logits changes no probability). It is passed over in tiles, once a head: exact, and never held.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.algebra.low_rank import LowRank
from headway.algebra.stream import DiagonalRanks, centred, diagonal_ranks
from headway.circuits.ov import ov_circuit
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

Progress = Callable[[int, int], object]
TOP = 5  # own-token-in-top-5, as name movers were scored
COLUMNS = {
    "head": Column("the head"),
    "diagonal_mean": Column(
        "what a token adds to its own logit, above the mean of all logits, mean over tokens", "logits"
    ),
    "diagonal_in_sd": Column(
        "diagonal_mean over the standard deviation of all entries; at most sqrt(rank) of the circuit", "sd"
    ),
    "diagonal_z": Column(
        "diagonal_mean over its standard deviation when sources are paired with outs at random", "dimensionless"
    ),
    "diagonal_positive": Column(
        "share of tokens that raise their own logit above the mean of all", "dimensionless", 0, 1
    ),
    "top1": Column("share of tokens whose own logit is raised most of all", "dimensionless", 0, 1),
    "top5": Column(f"share of tokens whose own logit is among the {TOP} raised most", "dimensionless", 0, 1),
    "bottom1": Column("share of tokens whose own logit is lowered most of all", "dimensionless", 0, 1),
    "bottom5": Column(f"share of tokens whose own logit is among the {TOP} lowered most", "dimensionless", 0, 1),
    "median_rank": Column("outs raised more than the token itself, median over tokens; ties count half", "outs", 0),
    "top5_null": Column(f"top5 and bottom5 by chance, {TOP} / d_vocab", "dimensionless", 0, 1),
    "top5_null_se": Column("standard error of top5 by chance, tokens independent", "dimensionless", 0, 1),
    "flag": Column("why a value of this row is missing"),
}
_NOTES = (
    "Exact in layer 0 without learned positions; above, an embedding alone is what a head reads of it, not all it reads.",
    "The scale of the final norm is not in it, nor is W_O b_V.",
    "Of entries equal within rounding each is as likely to be the larger: a token tied for the top counts in part.",
)


def copying_token_scores(
    weights: Weights, head: str | HeadId | None = None, *, progress: Progress | None = None
) -> Table:
    """Diagonal and rank statistics of the OV circuit in tokens, one row a head (or of `head` alone); in head order.

    Every token of the vocabulary counts, once. A head that returns each token has top1 = top5 = 1 and median_rank 0; one
    that lowers what it sees has bottom1 = bottom5 = 1. By chance the own token is among the top 5 for 5 / d_vocab of the
    tokens. diagonal_z: over random pairings of sources with outs the sum of the diagonal has mean 0 and variance
    ||D||^2 / (d_vocab - 1), D the circuit centred over sources too (exact). Needs about d_vocab^2 d_head operations a
    head and memory for tiles only; progress is told (heads done, heads). A head that moves no logit gives null and a
    flag. Raises UnknownName for a head that does not exist. (Own token in the top 5: Wang et al. 2022.)

    >>> from headway.sources.handmade import copying_model
    >>> row = copying_token_scores(copying_model(d_vocab=9, bos=False).weights).rows()[0]
    >>> row["top1"], row["bottom5"], row["median_rank"]
    (1.0, 0.0, 0.0)
    """
    check_weights(weights)
    seen = processed(weights.check_finite(), "folded").check_finite()
    heads = list(seen.head_ids()) if head is None else [seen.head_id(head)]
    rows: list[dict[str, Any]] = []
    for done, one in enumerate(heads, 1):
        rows.append({"head": one} | _scores(seen, one))
        if progress is not None:
            progress(done, len(heads))
    c = seen.config
    options = {} if head is None else {"head": str(heads[0])}
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(None, **options)
    empty = {} if rows else {"empty": f"no heads: {c.n_layers} layers of {c.n_heads}"}
    return Table.from_rows(
        rows, COLUMNS, origin, {"circuit": "W_U W_OV E, centred over outs", "notes": [*_NOTES]} | empty
    )


def _scores(weights: Weights, head: HeadId) -> dict[str, Any]:
    """The row of one head, from the folded weights."""
    d_vocab = weights.config.d_vocab
    chance = min(TOP, d_vocab) / d_vocab
    known = {"top5_null": chance, "top5_null_se": math.sqrt(chance * (1 - chance) / d_vocab)}
    product = LowRank(*(f.detach() for f in ov_circuit(weights, head).factors))
    size = float(product.norm().double())
    if size <= _rounding(weights, head):
        h = weights.head(head)
        zero = not bool(h.W_O.any()) or not bool(h.W_V.any())
        return known | {"flag": f"zero circuit: {head} OV" if zero else "the head moves no logit"}
    ranks = diagonal_ranks(product)
    mean = float(ranks.diagonal.mean())
    spread = float(centred(product, 1).norm().double()) / math.sqrt(d_vocab - 1) / d_vocab  # size > 0 needs two outs
    still = spread <= torch.finfo(product.factors[0].dtype).eps * size
    return known | {
        "diagonal_mean": mean,
        "diagonal_in_sd": mean / (size / d_vocab),
        "diagonal_z": math.nan if still else mean / spread,
        "diagonal_positive": float((ranks.diagonal > ranks.slack).double().mean()),
        "top1": _among(ranks, 1, ranks.above),
        "top5": _among(ranks, TOP, ranks.above),
        "bottom1": _among(ranks, 1, ranks.below),
        "bottom5": _among(ranks, TOP, ranks.below),
        "median_rank": float(torch.quantile(ranks.above + (ranks.tied - 1) / 2, 0.5)),
        "flag": "diagonal_z: all sources move the logits alike" if still else None,
    }


def _among(ranks: DiagonalRanks, k: int, ahead: Tensor) -> float:
    """Share of columns whose entry is among the k with the fewest `ahead`, a tie being broken at random."""
    return float(((k - ahead) / ranks.tied).clamp(0, 1).mean())


def _rounding(weights: Weights, head: HeadId) -> float:
    """The norm a circuit can have that is rounding alone."""
    whole = ov_circuit(weights, head, centred=False).factors
    sizes = [float(torch.linalg.matrix_norm(f.detach().double())) for f in whole]
    return weights.config.d_head * torch.finfo(whole[0].dtype).eps * math.prod(sizes)
