"""How embedding and unembedding use the stream: one principal component analysis of both together.

A large stream is not filled by its vocabulary: the spectra of W_E and W_U decay fast, and some directions are used by both,
some by one alone. (Elhage et al. 2021, footnote 6.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import BadInput
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

COLUMNS = {
    "component": Column("principal component of both together, 1 the largest", "rank", 1),
    "variance": Column("share of the squared size of both matrices, each scaled to size 1", "dimensionless", 0, 1),
    "cumulative": Column("the shares up to this component, summed", "dimensionless", 0, 1),
    "embedding": Column("part of W_E along it, of W_E's squared size", "dimensionless", 0, 1),
    "unembedding": Column("part of W_U along it, of W_U's squared size", "dimensionless", 0, 1),
    "mix": Column(
        "(embedding - unembedding) / (embedding + unembedding): 1 the embedding's alone, -1 the unembedding's, 0 shared",
        "dimensionless",
        -1,
        1,
    ),
}


@torch.no_grad()
def stream_components(weights: Weights) -> Table:
    """The joint principal components of W_E and W_U^T, largest first, and how much of each lies along them; float64.

    Each matrix is centred over the vocabulary (a mean token says nothing of tokens; a mean logit changes no probability)
    and scaled to Frobenius norm 1, so that neither counts for more. Norms are folded in, so W_U is what reads the normed
    stream. meta: how many components hold nine tenths (`dims90`) of W_E alone, of W_U alone and of both, and the effective
    dimensions (sum lambda)^2 / sum lambda^2. Raises BadInput for a W_E or W_U that is constant over the vocabulary.

    >>> from headway.sources.handmade import copying_model
    >>> table = stream_components(copying_model(d_vocab=9, bos=False).weights)
    >>> table.meta["dims90"]["both"], round(sum(row["variance"] for row in table.rows()), 6)
    (15, 1.0)
    """
    check_weights(weights)
    seen = processed(weights.check_finite(), "folded")
    sides = {
        name: _unit(m, name) for name, m in (("W_E", seen.W_E.detach().double()), ("W_U", seen.W_U.detach().double().T))
    }
    moments = {name: m @ m.T for name, m in sides.items()}
    values, vectors = torch.linalg.eigh((moments["W_E"] + moments["W_U"]) / 2)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    along = {name: ((vectors.T @ m) * vectors.T).sum(1).clamp_min(0) for name, m in moments.items()}
    rows: list[dict[str, Any]] = []
    total = values.cumsum(0)
    for k, value in enumerate(values.tolist()):
        e, u = (float(along[name][k]) for name in ("W_E", "W_U"))
        if value > 1e-12:
            row = {"component": k + 1, "variance": value, "cumulative": min(float(total[k]), 1.0)}
            rows.append(row | {"embedding": e, "unembedding": u, "mix": (e - u) / (e + u)})
    spectra = {name: torch.linalg.eigvalsh(m).flip(0).clamp_min(0) for name, m in moments.items()} | {"both": values}
    meta = {
        "dtype": "float64",
        "d_model": seen.config.d_model,
        "dims90": {name: dims_holding(s, 0.9) for name, s in spectra.items()},
        "effective_dims": {name: float(s.sum() ** 2 / s.square().sum()) for name, s in spectra.items()},
    }
    return Table.from_rows(rows, COLUMNS, replace(seen.provenance, weights=weights.content_hash()), meta)


def dims_holding(values: Float[Tensor, " d"], share: float) -> int:
    """How many of the largest values, in falling order, hold this share of their sum.

    >>> dims_holding(torch.tensor([0.5, 0.3, 0.2]), 0.8)
    2
    """
    return int((values.cumsum(0) < share * values.sum() * (1 - 1e-12)).sum()) + 1


def _unit(matrix: Float[Tensor, "d_model vocab"], name: str) -> Tensor:
    centred = matrix - matrix.mean(1, keepdim=True)
    size = torch.linalg.matrix_norm(centred)
    if not float(size) > torch.finfo(torch.float64).eps * float(torch.linalg.matrix_norm(matrix)):
        raise BadInput(f"{name} is constant over the vocabulary", expected="tokens that differ", got="no variance")
    return centred / size
