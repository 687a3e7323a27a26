"""The full QK circuit of a head in tokens: which source a destination looks for, by content alone."""

from __future__ import annotations

import torch

from headway.algebra.low_rank import LowRank
from headway.circuits.as_read import tokens_as_read
from headway.ids import HeadId
from headway.model.process import processed
from headway.model.weights import Weights


@torch.no_grad()
def qk_circuit(weights: Weights, head: str | HeadId, *, offset: int = 0) -> LowRank:
    """attn_scale (W_Q E + b_Q)^T R_{-D} (W_K E + b_K), [destination, source] in nats: scores before the softmax.

    E are the embeddings as the head's layer reads them. Rows are defined up to a constant each, so compare sources of
    one destination (`algebra.stream.centred(product, 1)` takes it out). offset D = destination - source matters under
    rotary positions only; what shortformer and learned positions add is in `positional.qk_terms`. Norms are folded first,
    so raw and folded weights give the same. Exact in layer 0 without learned positions; above, the direct path alone.
    Raises UnknownName for a head that does not exist, UsageError for an offset < 0. (Elhage et al. 2021, "QK circuit".)

    >>> from headway.sources.handmade import skip_trigram_model
    >>> model = skip_trigram_model([(3, 7, 5)], d_vocab=9).weights
    >>> int(qk_circuit(model, "L0H0").rows(7).argmax())
    3
    """
    folded = processed(weights, "folded")
    id_ = folded.head_id(head)
    one = folded.head(id_)
    read = tokens_as_read(folded, id_.layer)
    with_one = torch.cat((read, torch.ones_like(read[:1])))
    circuit = one.qk(offset, biases=True) * one.attn_scale
    return LowRank(with_one.T, *(f.detach() for f in circuit.factors), with_one)
