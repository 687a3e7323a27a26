"""Copying: does attending to a token raise that same token's logit?

    copying(h) = sum(lambda) / sum |lambda|,   lambda = eigenvalues of W_U W_OV W_E        (Elhage et al. 2021)

The nonzero ones are those of the d_head x d_head matrix W_V (W_E W_U) W_O. The ratio is not a property of the model's
predictions alone: W_U + 1 c^T changes no probability and every eigenvalue. So it is given twice, with W_U as it is
(the paper's) and with W_U centred over the vocabulary, each beside its own null. `copying_eigenvalues` gives what the
ratio sums up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from headway.algebra.null import check_seed, copying_null, eigenvalue_ratio
from headway.errors import UsageError
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

MATRICES = ("raw", "centred")  # W_U as it is, or centred over the vocabulary
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
EIGENVALUE_COLUMNS = {
    "head": Column("the head"),
    "matrix": Column("raw: W_U W_OV W_E; centred: the same with W_U centred over the vocabulary"),
    "real": Column("real part of the eigenvalue", "logits"),
    "imag": Column("imaginary part of the eigenvalue", "logits"),
    "modulus": Column("absolute value of the eigenvalue", "logits", 0),
    "angle": Column("angle of the eigenvalue: 0 raises its eigenvector, pi lowers it", "radians", -math.pi, math.pi),
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
    and W_U kept; see `algebra.null.copying_null`. It is most of the work: draws=0 leaves it out, and its columns null.
    Unchanged by a change of basis inside d_head. A head that takes no token to any logit gives null and a flag. Raises
    UsageError for one draw, which has no sd, or another processing.

    >>> from headway.sources.handmade import induction_model
    >>> rows = copying_scores(induction_model().weights, draws=20).rows()
    >>> [row["head"] for row in rows]
    ['L0H0', 'L1H0']
    """
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 0 or draws == 1:
        expected = "draws >= 2, 200 or more for a z to quote, or 0 for no null"
        raise UsageError("too few draws for a null", expected=expected, got=repr(draws))
    check_seed(seed)
    check_weights(weights)
    seen = processed(weights.check_finite(), processing).check_finite()
    c = seen.config
    W_O, W_V = (_unit(t)[0] for t in _heads(seen))
    spectra = (_spectrum(W_O), _spectrum(W_V)) if draws else (W_O, W_V)
    values: dict[str, list[float]] = {}
    for name, between in zip(("copying", "copying_centred"), token_round_trips(seen), strict=True):
        eigenvalues, floor = _eigenvalues(W_O, W_V, between)
        ratio = eigenvalue_ratio(eigenvalues).masked_fill(floor.isnan(), torch.nan)
        mean, sd = (torch.full_like(ratio, torch.nan) for _ in range(2))
        alive = ~ratio.isnan()
        if draws and bool(alive.any()):
            kept = spectra[0][alive], spectra[1][alive]
            null = _null(between, kept, d_head=c.d_head, draws=draws, seed=seed)
            mean[alive], sd[alive] = null.mean(-1), null.std(-1)
        z = (ratio - mean) / sd.masked_fill(sd <= 1e-12, torch.nan)
        for suffix, column in (("", ratio), ("_null_mean", mean), ("_null_sd", sd), ("_z", z)):
            values[name + suffix] = column.tolist()
    zero = _is_zero(W_O, W_V)
    rows: list[dict[str, Any]] = []
    for i, head in enumerate(seen.head_ids()):
        row: dict[str, Any] = {"head": str(head)} | {name: column[i] for name, column in values.items()}
        rows.append(row | {"flag": _flag(row, bool(zero[i]), draws)})
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(seed, draws=draws)
    return Table.from_rows(rows, COLUMNS, origin, _meta(seen))


def copying_eigenvalues(weights: Weights, head: str | HeadId | None = None, *, processing: str = "folded") -> Table:
    """The eigenvalues of W_U W_OV W_E that can differ from 0, raw and vocabulary-centred: those copying is the ratio of.

    min(d_head, d_model, d_vocab) rows for each matrix of each head (or of `head` alone), largest modulus first, in the
    scale of the weights: an eigenvector v of tokens comes back as lambda v of logits, apart from the scales of norms.
    float64. An eigenvalue within rounding of 0 has no angle, and a flag; a zero circuit has such eigenvalues only.
    Eigenvectors are not orthogonal, so one eigenvalue says little about one token. Raises UnknownName for a head that
    does not exist, UsageError for another processing. (Elhage et al. 2021, "Detecting copying behavior".)

    >>> from headway.sources.handmade import copying_model
    >>> rows = copying_eigenvalues(copying_model(d_vocab=5, seed=None).weights).rows()
    >>> len(rows), all(row["real"] > 0 and abs(row["angle"]) < 1e-6 for row in rows[:4])
    (8, True)
    """
    check_weights(weights)
    seen = processed(weights.check_finite(), processing).check_finite()
    heads = list(seen.head_ids())
    chosen = heads if head is None else [seen.head_id(head)]
    at = [heads.index(one) for one in chosen]
    (W_O, size_O), (W_V, size_V) = (_unit(t[at]) for t in _heads(seen))
    size = (size_O * size_V).flatten() * _size(seen.W_E) * _size(seen.W_U)
    found = [_eigenvalues(W_O, W_V, between) for between in token_round_trips(seen)]
    kept, zero = min(seen.config.d_head, *seen.W_E.shape), _is_zero(W_O, W_V)
    rows: list[dict[str, Any]] = []
    for i, one in enumerate(chosen):
        for matrix, (eigenvalues, floor) in zip(MATRICES, found, strict=True):
            why = f"zero circuit: {one} OV" if bool(zero[i]) else "within rounding of 0: no angle"
            scale, least = float(size[i]), float(floor[i].nan_to_num(torch.inf))
            rows.extend(
                {"head": one, "matrix": matrix} | row for row in _points(eigenvalues[i], kept, scale, least, why)
            )
    options = {} if head is None else {"head": str(chosen[0])}
    origin = replace(seen.provenance, weights=weights.content_hash()).with_options(None, **options)
    return Table.from_rows(rows, EIGENVALUE_COLUMNS, origin, _meta(seen))


def token_round_trips(weights: Weights) -> tuple[Float[Tensor, "d_model d_model"], Float[Tensor, "d_model d_model"]]:
    """W_E W_U, as it is and with W_U centred over the vocabulary: what lies between W_V and W_O. float64, on the CPU.

    Up to scale: each factor is divided by its largest entry, which no ratio of eigenvalues sees.

    >>> from headway.sources.handmade import induction_model
    >>> raw, centred = token_round_trips(induction_model().weights)
    >>> raw.shape == centred.shape
    True
    """
    d, n = weights.W_E.shape
    size_E, size_U = _size(weights.W_E), _size(weights.W_U)
    mean = weights.W_U.detach().double().mean(0, keepdim=True) / size_U
    centred, total = (torch.zeros(d, k, dtype=torch.float64, device=weights.device) for k in (d, 1))
    for start in range(0, n, _BLOCK):
        part = slice(start, start + _BLOCK)
        W_E, W_U = weights.W_E[:, part].detach().double() / size_E, weights.W_U[part].detach().double() / size_U
        centred += W_E @ (W_U - mean)
        total += W_E.sum(1, keepdim=True)
    return (centred + total @ mean).cpu(), centred.cpu()  # W_U = (W_U - 1 mean) + 1 mean: one large product, not two


def _size(tensor: Tensor) -> float:
    """The largest entry, or 1."""
    return float(tensor.detach().abs().max()) or 1.0


def _unit(matrices: Float[Tensor, "*batch m n"]) -> tuple[Float[Tensor, "*batch m n"], Float[Tensor, "*batch 1 1"]]:
    """Each matrix over its largest entry, and that: the ratio has no scale, and eigenvalue routines die of 1e100."""
    largest = matrices.abs().amax((-2, -1), keepdim=True)
    largest = largest.masked_fill(largest == 0, 1)
    return matrices / largest, largest


def _heads(weights: Weights) -> tuple[Float[Tensor, "head d_model d_head"], Float[Tensor, "head d_head d_model"]]:
    """W_O and W_V of every head, float64, on the CPU; shared values repeated for their group."""
    W_O, W_V = (t.detach().to("cpu", torch.float64) for t in (weights.W_O, weights.W_V))
    return W_O.flatten(0, 1), W_V.repeat_interleave(weights.config.group, dim=1).flatten(0, 1)


def _is_zero(
    W_O: Float[Tensor, "head d_model d_head"], W_V: Float[Tensor, "head d_head d_model"]
) -> Bool[Tensor, " head"]:
    return ~W_O.flatten(1).any(-1) | ~W_V.flatten(1).any(-1)


def _spectrum(matrices: Float[Tensor, "head m n"]) -> Float[Tensor, "head k"]:
    return torch.linalg.svdvals(matrices)


def _eigenvalues(
    W_O: Float[Tensor, "head d_model d_head"],
    W_V: Float[Tensor, "head d_head d_model"],
    between: Float[Tensor, "d_model d_model"],
) -> tuple[Complex[Tensor, "head d_head"], Float[Tensor, " head"]]:
    """Eigenvalues of W_V between W_O, and the rounding that multiplying makes: NaN for a core that is all rounding."""
    core = W_V @ between @ W_O
    size, *parts = (torch.linalg.matrix_norm(t) for t in (core, W_V, between, W_O))
    floor = core.shape[-1] * torch.finfo(torch.float64).eps * parts[0] * parts[1] * parts[2]
    return torch.linalg.eigvals(core), floor.masked_fill(size <= floor, torch.nan)


def _points(
    eigenvalues: Complex[Tensor, " d_head"], kept: int, scale: float, least: float, why: str
) -> Iterator[dict[str, Any]]:
    """Rows of one spectrum, the `kept` largest; of two that are conjugate the one above the real axis comes first."""
    values: list[complex] = eigenvalues.tolist()
    for value in sorted(values, key=lambda v: (-abs(v), -v.real, -v.imag))[:kept]:
        modulus = abs(value)
        row = {"real": value.real * scale, "imag": value.imag * scale, "modulus": modulus * scale}
        known = modulus > least
        yield row | {"angle": math.atan2(value.imag, value.real) if known else None, "flag": None if known else why}


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


def _flag(row: dict[str, Any], is_zero: bool, draws: int) -> str | None:
    """Why something is null in this row."""
    if is_zero:
        return f"zero circuit: {row['head']} OV"
    missing = [name for name in ("copying", "copying_centred") if math.isnan(row[name])]
    reasons = [f"{name}: W_U W_OV W_E takes no token to any logit" for name in missing]
    if not draws:
        return "; ".join([*reasons, "no null was drawn"])
    still = [name for name in ("copying", "copying_centred") if name not in missing and math.isnan(row[f"{name}_z"])]
    return "; ".join([*reasons, *(f"{name}_z: the null does not vary" for name in still)]) or None


def _meta(weights: Weights) -> dict[str, Any]:
    c, notes = weights.config, list(_NOTES)
    empty = {} if c.n_layers * c.n_heads else {"empty": f"no heads: {c.n_layers} layers of {c.n_heads}"}
    return {"dtype": "float64", "notes": notes} | empty
