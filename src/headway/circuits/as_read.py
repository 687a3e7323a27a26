"""Tokens as a layer reads them: the embedding, after that layer's read norm."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from headway.algebra.chain import at_least_float32
from headway.algebra.given import whole_number
from headway.errors import UsageError
from headway.model.weights import Weights, check_weights


def tokens_as_read(weights: Weights, layer: int) -> Float[Tensor, "d_model d_vocab"]:
    """W_E's columns through the read norm of a layer, gain and bias too where they are not folded; W_E without a norm.

    What a head of layer 0 reads, exactly, unless learned positions join before the norm; deeper heads also read what
    earlier heads wrote. At least float32. Raises UsageError for a layer that does not exist.

    >>> from headway.sources.handmade import copying_model
    >>> model = copying_model().weights
    >>> bool((tokens_as_read(model, 0) == model.W_E).all())
    True
    """
    check_weights(weights)
    c = weights.config
    if whole_number(layer, "layer", least=0) >= c.n_layers:
        raise UsageError("layer", expected=f"0 .. n_layers-1={c.n_layers - 1}", got=layer)
    tokens = at_least_float32(weights.W_E.detach())
    if c.norm == "none":
        return tokens
    if c.norm == "layer":
        tokens = tokens - tokens.mean(0)
    tokens = tokens * (tokens.square().mean(0) + c.norm_eps).rsqrt()
    if weights.norm_gain is not None:
        tokens = tokens * weights.norm_gain[layer].detach()[:, None]
    return tokens if weights.norm_bias is None else tokens + weights.norm_bias[layer].detach()[:, None]
