"""Copying: does attending to a token raise that same token's logit?

    copying(h) = sum(lambda) / sum |lambda|,   lambda = eigenvalues of W_U W_OV W_E        (Elhage et al. 2021)

The nonzero ones are those of the d_head x d_head matrix W_V (W_E W_U) W_O. The ratio is not a property of the model's
predictions alone: W_U + 1 c^T changes no probability and every eigenvalue. So it is given twice, with W_U as it is
(the paper's) and with W_U centred over the vocabulary, each beside its own null.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.null import check_seed, copying_null, eigenvalue_ratio
from headway.errors import UsageError
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

_BLOCK = 4096  # tokens at a time: W_E and W_U are never whole in float64


def _columns(name: str, of: str) -> dict[str, Column]:
    """A score and its null: mean, standard deviation, z."""
    return {
        name: Column(f"sum of the eigenvalues of {of} over the sum of their absolute values", "dimensionless", -1, 1),
        f"{name}_null_mean": Column(
            "its mean when W_O and W_V keep their spectra in random directions", "dimensionless", -1, 1
        ),
        f"{name}_null_sd": Column("its standard deviation under that null", "dimensionless", 0),
        f"{name}_z": Column("(score - null mean) / null standard deviation", "dimensionless"),
    }


COLUMNS = {
    "head": Column("the head"),
    **_columns("copying", "W_U W_OV W_E"),
    **_columns("copying_centred", "W_U W_OV W_E with W_U centred over the vocabulary"),
    "flag": Column("why a value of this row is missing"),
}
_NOTES = (
    "W_OV b_V and norm scales are not in these matrices.",
    "Only copying_centred is unchanged when a constant is added to all logits.",
    "Eigenvectors are not orthogonal: a positive ratio does not mean that every token raises itself.",
)


def copying_scores(weights: Weights, *, processing: str = "folded", draws: int = 200, seed: int = 0) -> Table:
    """The copying ratio of every head, raw and vocabulary-centred, each with null mean, sd and z; in head order.

    1 when all eigenvalues of W_U W_OV W_E are positive, about 0 by chance, negative when the head lowers what it sees.
    Null: W_O and W_V redrawn `draws` times (seeded, float64) with their own singular values in random directions, W_E
    and W_U kept; see `algebra.null.copying_null`. Unchanged by a change of basis inside d_head. A head that takes no
    token to any logit gives null and a flag. Raises UsageError for fewer than 2 draws or another processing.

    >>> from headway.sources.handmade import induction_model
    >>> rows = copying_scores(induction_model().weights, draws=20).rows()
    >>> [row["head"] for row in rows]
    ['L0H0', 'L1H0']
    """
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
        raise UsageError(
            "too few draws for a null", expected="draws >= 2, 200 or more for a z to quote", got=repr(draws)
        )
    check_seed(seed)
    check_weights(weights)
    seen = processed(weights.check_finite(), processing).check_finite()
    c = seen.config
    W_O, W_V = _heads(seen)
    spectra = _spectrum(W_O), _spectrum(W_V)
    values: dict[str, list[float]] = {}
    for name, between in zip(("copying", "copying_centred"), token_round_trips(seen), strict=True):
        ratio = _ratios(W_O, W_V, between)
        mean, sd = (torch.full_like(ratio, torch.nan) for _ in range(2))
        alive = ~ratio.isnan()
        if bool(alive.any()):
            kept = spectra[0][alive], spectra[1][alive]
            null = _null(between, kept, d_head=c.d_head, draws=draws, seed=seed)
            mean[alive], sd[alive] = null.mean(-1), null.std(-1)
        z = (ratio - mean) / sd.masked_fill(sd <= 1e-12, torch.nan)
        for suffix, column in (("", ratio), ("_null_mean", mean), ("_null_sd", sd), ("_z", z)):
            values[name + suffix] = column.tolist()
    zero = (spectra[0] == 0).all(-1) | (spectra[1] == 0).all(-1)
    rows: list[dict[str, Any]] = []
    for i, head in enumerate(seen.head_ids()):
        row: dict[str, Any] = {"head": str(head)} | {name: column[i] for name, column in values.items()}
        rows.append(row | {"flag": _flag(row, bool(zero[i]))})
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(seed, draws=draws)
    meta: dict[str, Any] = {"dtype": "float64", "notes": list(_NOTES)}
    if not rows:
        meta["empty"] = f"no heads: {c.n_layers} layers of {c.n_heads}"
    return Table.from_rows(rows, COLUMNS, origin, meta)


def token_round_trips(weights: Weights) -> tuple[Float[Tensor, "d_model d_model"], Float[Tensor, "d_model d_model"]]:
    """W_E W_U, as it is and with W_U centred over the vocabulary: what lies between W_V and W_O. float64, on the CPU.

    Up to scale: each factor is divided by its largest entry, which no ratio of eigenvalues sees.

    >>> from headway.sources.handmade import induction_model
    >>> raw, centred = token_round_trips(induction_model().weights)
    >>> raw.shape == centred.shape
    True
    """
    d, n = weights.W_E.shape
    size_E, size_U = (float(t.detach().abs().max()) or 1.0 for t in (weights.W_E, weights.W_U))
    mean = weights.W_U.detach().double().mean(0, keepdim=True)
    raw, centred = (torch.zeros(d, d, dtype=torch.float64, device=weights.device) for _ in range(2))
    for start in range(0, n, _BLOCK):
        part = slice(start, start + _BLOCK)
        W_E, W_U = weights.W_E[:, part].detach().double() / size_E, weights.W_U[part].detach().double() / size_U
        raw += W_E @ W_U
        centred += W_E @ (W_U - mean / size_U)
    return raw.cpu(), centred.cpu()


def _unit(matrices: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch m n"]:
    """Each matrix over its largest entry: the ratio has no scale, and eigenvalue routines die of 1e100."""
    largest = matrices.abs().amax((-2, -1), keepdim=True)
    return matrices / largest.masked_fill(largest == 0, 1)


def _heads(weights: Weights) -> tuple[Float[Tensor, "head d_model d_head"], Float[Tensor, "head d_head d_model"]]:
    """W_O and W_V of every head, float64, on the CPU; shared values repeated for their group."""
    W_O, W_V = (t.detach().to("cpu", torch.float64) for t in (weights.W_O, weights.W_V))
    each = W_V.repeat_interleave(weights.config.group, dim=1)
    return _unit(W_O.flatten(0, 1)), _unit(each.flatten(0, 1))


def _spectrum(matrices: Float[Tensor, "head m n"]) -> Float[Tensor, "head k"]:
    return torch.linalg.svdvals(matrices)


def _ratios(
    W_O: Float[Tensor, "head d_model d_head"],
    W_V: Float[Tensor, "head d_head d_model"],
    between: Float[Tensor, "d_model d_model"],
) -> Float[Tensor, " head"]:
    """Eigenvalue ratios; NaN where W_V between W_O is zero within the rounding that multiplying makes."""
    core = W_V @ between @ W_O
    size, *parts = (torch.linalg.matrix_norm(t) for t in (core, W_V, between, W_O))
    dead = size <= core.shape[-1] * torch.finfo(torch.float64).eps * parts[0] * parts[1] * parts[2]
    return eigenvalue_ratio(torch.linalg.eigvals(core)).masked_fill(dead, torch.nan)


def _null(
    between: Float[Tensor, "d_model d_model"],
    spectra: tuple[Float[Tensor, "head k"], Float[Tensor, "head k"]],
    *,
    d_head: int,
    draws: int,
    seed: int,
) -> Float[Tensor, "head draws"]:
    """`copying_null`, heads spread over threads: the same seed gives every part the same frames, so nothing changes."""
    n, threads = len(spectra[0]), torch.get_num_threads()
    parts = (
        [slice(n * i // threads, n * (i + 1) // threads) for i in range(threads)] if n >= 2 * threads else [slice(n)]
    )

    def of(part: slice) -> Tensor:
        return copying_null(between, *(s[part] for s in spectra), draws=draws, seed=seed, d_head=d_head)

    with ThreadPoolExecutor(len(parts)) as pool:
        return torch.cat(list(pool.map(of, parts)))


def _flag(row: dict[str, Any], is_zero: bool) -> str | None:
    """Why something is null in this row."""
    if is_zero:
        return f"zero circuit: {row['head']} OV"
    missing = [name for name in ("copying", "copying_centred") if math.isnan(row[name])]
    reasons = [f"{name}: W_U W_OV W_E takes no token to any logit" for name in missing]
    still = [name for name in ("copying", "copying_centred") if name not in missing and math.isnan(row[f"{name}_z"])]
    return "; ".join([*reasons, *(f"{name}_z: the null does not vary" for name in still)]) or None
