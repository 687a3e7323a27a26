"""Copying as Olsson et al. 2022 score heads: on random tokens, does a head raise the token it attends to?

The paper's words (its "head evaluators") leave open what the attended token of a head is that attends to many. Here the
head's result is split by source, which is exact: position i receives sum_j A_ij W_O v_j, so what source j adds to the
logits through the direct path is A_ij / sigma_i times

    l_j = W_U gain (W_O v_j, centred under LayerNorm) - its mean over the vocabulary,   a_t = max(l_j[t], 0).

    r_j = a_own / (a_own + sum of a_t over the sample)          own = the token at j, itself in the sample, so r_j <= 1/2
    score = sum_ij A_ij (4 r_j - 1) / sum_ij A_ij                                    over i and j that hold sample tokens

A_ij / sigma_i cancels in r_j: how much was attended weighs the average and nothing else, so a head that copies scores 1
whether it looks at one token or at all alike. (Taking r from the mixed result instead would give a perfect copier that
looks at n tokens alike 4 / (1 + n) - 1.) 1: nothing in the sample is raised but the token itself; -1: the token itself
is never raised. By chance, each token of the sample equally likely to be the attended one, it is not 0 but far below:
that value stands beside the score.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.behaviour.averages import Averages
from headway.behaviour.repeated import repeated_tokens
from headway.behaviour.windows import batches
from headway.model.forward import run
from headway.model.process import processed
from headway.model.recording import Recording
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

_ROWS_AT_ONCE = 8

COLUMNS = {
    "head": Column("the head"),
    "copying_olsson": Column(
        "4 r - 1, r = raise of the attended token's logit over itself plus that of every token of the sample, mean over "
        "sources, weighed by attention",
        "dimensionless",
        -1,
        1,
    ),
    "copying_olsson_se": Column("its standard error over rows of random tokens", "dimensionless", 0),
    "copying_olsson_null": Column(
        "the same with every token of the sample in turn for the attended one", "dimensionless", -1, 1
    ),
    "attention_counted": Column(
        "attention to sources that raise some token of the sample, mean over queries; the rest goes to BOS or to sources "
        "without a ratio",
        "probability",
        0,
        1,
    ),
    "n": Column("rows of random tokens", "rows", 1),
    "flag": Column("why a value of this row is missing"),
}
_NOTES = (
    "Direct path only: the head's own write, through the final norm at the scale of the run, to the logits.",
    "W_O b_V is part of what each attended source adds; b_U and W_U beta are not.",
    "Attention to BOS, and to sources that raise no token of the sample, is left out of the average.",
)


@torch.no_grad()
def olsson_copying_scores(
    weights: Weights, *, length: int = 25, rows: int = 10, seed: int = 0, pool: Int[Tensor, " pool"] | None = None
) -> Table:
    """The copying score of every head on random tokens, with its standard error over rows; one row a head.

    Each row is BOS (where the model has one) and `length` random tokens, none twice: the paper's 25, and 10 rows;
    `pool=token_pool(config, frequencies=...)` leaves out rare and common tokens as the paper does. From -1 to 1, see the
    module; unchanged by a constant on all logits and by the scale of what the head writes. A head whose attention
    reaches no source that raises a token of the sample is null, with a flag. Raises UsageError for a pool smaller than
    `length`. (Olsson et al. 2022, "Copying"; splitting by source is this reading of it.)

    >>> from headway.sources.handmade import copying_model
    >>> [round(row["copying_olsson"], 6) for row in olsson_copying_scores(copying_model().weights, rows=2).rows()]
    [1.0]
    """
    check_weights(weights)
    tokens = repeated_tokens(weights.config, length=length, copies=2, rows=rows, seed=seed, pool=pool)[:, :-length]
    tokens = tokens.to(weights.device)
    seen = processed(weights.check_finite(), "folded").check_finite()
    unembed = seen.W_U.double()
    unembed = unembed - unembed.mean(0)
    parts = [_measure(run(seen, tokens[part]), unembed, length) for part in batches(rows, _ROWS_AT_ONCE)]
    scores, chance, counted = (torch.cat(found, dim=-1) for found in zip(*parts, strict=True))
    averages, null = Averages.of(scores, counted), Averages.of(chance, counted)
    share = (counted.sum(-1) / (length * rows)).clamp(max=1)
    out = [
        {
            "head": head,
            "copying_olsson": averages.mean[i],
            "copying_olsson_se": averages.se[i],
            "copying_olsson_null": null.mean[i],
            "attention_counted": share[i],
            "n": rows,
            "flag": _flag(weights, i, float(share[i]), rows),
        }
        for i, head in enumerate(weights.head_ids())
    ]
    origin = replace(seen.provenance, weights=weights.content_hash())
    options: dict[str, Any] = {
        "length": length,
        "pool": "the vocabulary without BOS" if pool is None else f"{len(pool)} ids",
    }
    return Table.from_rows(out, COLUMNS, origin.with_options(seed, **options), {"dtype": "float64", "notes": [*_NOTES]})


def _measure(
    seen: Recording, unembed: Float[Tensor, "vocab d_model"], length: int
) -> tuple[Float[Tensor, "head row"], Float[Tensor, "head row"], Float[Tensor, "head row"]]:
    """Attention times 4 r - 1, the same by chance, and the attention that counts: sums over queries of each row."""
    rows = len(seen.tokens)
    sample = unembed[seen.tokens[:, -length:]]  # [row, token of the sample, d_model]
    found: list[Tensor] = []
    for layer, pattern in enumerate(seen.patterns):
        raised, floor = _raises(seen, layer, sample)
        total = raised.sum(-1, keepdim=True)
        known = (total > floor[..., None])[..., 0]
        ratio = raised / (raised + total).masked_fill(~known[..., None], 1)  # [row, head, source, token for own]
        attended = pattern[..., -length:, -length:].double().sum(-2) * known
        of_source = torch.stack(
            (4 * ratio.diagonal(dim1=-2, dim2=-1) - 1, 4 * ratio.mean(-1) - 1, torch.ones_like(attended))
        )
        found.append((of_source * attended).sum(-1).mT)
    every = torch.cat(found, 1) if found else unembed.new_zeros(3, 0, rows)
    scores, chance, counted = every.cpu()
    return scores, chance, counted


def _raises(
    seen: Recording, layer: int, sample: Float[Tensor, "row token d_model"]
) -> tuple[Float[Tensor, "row head src token"], Float[Tensor, "row head src"]]:
    """What each source's value raises of each token of the sample, >= 0, and the rounding in that.

    The weights are folded: only the scale of the read norm is left of it, and W_U reads centred. In float64, whatever the
    model's precision, so that a head that reaches no logit is told from one that barely does.
    """
    weights, length = seen.weights, sample.shape[1]
    read = seen.streams[layer][:, -length:].double()
    if seen.norm_scales is not None:
        read = read * seen.norm_scales[layer][:, -length:, None].double()
    W_V, W_O = weights.W_V[layer].double(), weights.W_O[layer].double()
    values = torch.einsum("rpm,hdm->rhpd", read, W_V)
    size = torch.linalg.matrix_norm(W_V)[:, None] * read.norm(dim=-1)[:, None, :]
    if weights.b_V is not None:
        b_V = weights.b_V[layer].double()
        values, size = values + b_V[:, None], size + b_V.norm(dim=-1)[:, None]
    values, size = (t.repeat_interleave(weights.config.group, dim=1) for t in (values, size))
    logits = torch.einsum("rhpd,hmd,rtm->rhpt", values, W_O, sample)
    eps = weights.config.d_model * torch.finfo(torch.float64).eps
    floor = eps * size * torch.linalg.matrix_norm(W_O)[:, None] * sample.norm(dim=-1).amax(-1)[:, None, None]
    return logits.clamp_min(0), floor


def _flag(weights: Weights, index: int, share: float, rows: int) -> str | None:
    if share == 0:
        c = weights.config
        layer, head = divmod(index, c.n_heads)
        zero = not bool(weights.W_O[layer, head].any())
        no_value = weights.b_V is None and not bool(weights.W_V[layer, head // c.group].any())
        if zero or no_value:
            return f"zero circuit: L{layer}H{head} OV"
        return "no source that it attends to raises a token of the sample"
    return "one row: no standard error" if rows == 1 else None
