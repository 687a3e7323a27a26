"""The zero-layer model: a bigram table as W_U W_E."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import NotFinite, ShapeProblem
from headway.model.weights import Weights
from headway.provenance import Provenance
from headway.sources.handmade.built import assemble
from headway.sources.handmade.subspaces import orthogonal


# Why it works.  The columns of W_E are orthonormal, so W_U = table W_E^T gives W_U W_E = table W_E^T W_E = table: any table
# at all, since d_model is the vocabulary. With d_model below it, only tables of that rank could be had.
def bigram_model(
    table: Float[Tensor, "next current"], *, n_ctx: int = 128, bos: int | None = None, seed: int = 0
) -> Weights:
    """No layers: the logits after token t are table[:, t], exactly; log-probabilities make it the best zero-layer model.

    table: [next d_vocab, current d_vocab], finite. seed: of the embedding's basis. Raises ShapeProblem for a table that is
    not square, NotFinite for NaN or infinity (smooth a table that has zeros before taking its logarithm).

    >>> table = torch.tensor([[0.9, 0.2], [0.1, 0.8]]).log()
    >>> from headway.model.forward import logits
    >>> logits(bigram_model(table), torch.tensor([[0, 1]])).softmax(-1)[0].round(decimals=3).tolist()
    [[0.8999999761581421, 0.10000000149011612], [0.20000000298023224, 0.800000011920929]]
    """
    if not isinstance(table, Tensor) or table.ndim != 2 or table.shape[0] != table.shape[1]:
        got = tuple(table.shape) if isinstance(table, Tensor) else type(table).__name__
        raise ShapeProblem("bigram table", expected="a square tensor (next d_vocab, current d_vocab)", got=got)
    if not table.is_floating_point() or not bool(torch.isfinite(table).all()):
        raise NotFinite("the bigram table holds NaN or infinity", expected="finite floating-point logits")
    W_E = orthogonal(len(table), seed).to(table)
    ends = {"W_E": W_E, "W_U": table @ W_E.T}
    return assemble([], ends, n_ctx=n_ctx, bos=bos, provenance=Provenance(source="handmade bigram_model", seed=seed))
