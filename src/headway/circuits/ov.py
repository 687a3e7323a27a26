"""The full OV circuit of a head in tokens: what attending to a token does to the logits."""

from __future__ import annotations

import torch

from headway.algebra.given import true_or_false
from headway.algebra.low_rank import LowRank
from headway.algebra.stream import centred as centred_over
from headway.circuits.as_read import tokens_as_read
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights


@torch.no_grad()
def ov_circuit(weights: Weights, head: str | HeadId, *, centred: bool = True) -> LowRank:
    """W_U W_OV E, [out, source] in logits: E are the embeddings as the head's layer reads them (`tokens_as_read`).

    centred: over outs, for a constant on all logits changes no probability. Norms are folded first, so raw and folded
    weights give the same; the final norm's scale 1/sigma belongs to a text and is left out, as is W_O b_V (and W_OV beta),
    which the head adds whatever it reads. Exact in layer 0 without learned positions; above, the direct path alone.
    Raises UnknownName for a head that does not exist. (Elhage et al. 2021, "Splitting Attention Head terms".)

    >>> from headway.sources.handmade import copying_model
    >>> ov_circuit(copying_model(d_vocab=5, bos=False).weights, "L0H0").dense().argmax(0).tolist()
    [0, 1, 2, 3, 4]
    """
    folded = processed(weights, "folded")
    head = folded.head_id(head)
    ov = folded.head(head).ov
    product = LowRank(folded.W_U.detach(), *(f.detach() for f in ov.factors)) @ tokens_as_read(folded, head.layer)
    return centred_over(product, 0) if true_or_false(centred, "centred") else product
