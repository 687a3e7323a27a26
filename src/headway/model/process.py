"""Processing, `Weights -> Weights`: each leaves every prediction unchanged, and each is recorded in the provenance.

Loading never does any of this. Scores default to `folded`: norm gains and centring moved into the reading weights.
"""

from __future__ import annotations

from torch import Tensor

from headway.errors import UsageError
from headway.model.weights import Weights, check_weights

PROCESSING = ("raw", "folded")


def processed(weights: Weights, processing: str) -> Weights:
    """The weights as scores should see them: `raw`, or `folded` (norm gains folded and reads centred, never b_V)."""
    check_weights(weights)
    if not isinstance(processing, str) or processing not in PROCESSING:
        raise UsageError("unknown processing", expected=" or ".join(PROCESSING), got=repr(processing))
    if processing == "raw":
        return weights
    folded = fold_norms(weights)
    return centre_reads(folded) if folded.config.norm == "layer" else folded


def fold_norms(weights: Weights) -> Weights:
    """Norm gains and biases moved into the weights that read: W -> W diag(gain), b -> b + W beta. Logits unchanged.

    beta reaches scores and values through b_Q, b_K, b_V and b_U. Ties are cut by making a new W_U, so W_E stays bit
    for bit. Shortformer sinusoids join after the norm: they keep the unfolded matrices, as W_Q_pos and W_K_pos.
    The weights themselves when there is nothing to fold.
    """
    check_weights(weights)
    changes: dict[str, Tensor | None] = {}
    gain, beta = weights.norm_gain, weights.norm_bias
    if gain is not None or beta is not None:
        changes |= _waves_keep(weights)
        for W, b in (("W_Q", "b_Q"), ("W_K", "b_K"), ("W_V", "b_V")):
            matrix, old = getattr(weights, W), getattr(weights, b)
            if beta is not None:
                add = (matrix * beta[:, None, None, :]).sum(-1)
                changes[b] = add if old is None else old + add
            if gain is not None:
                changes[W] = matrix * gain[:, None, None, :]
        changes |= {"norm_gain": None, "norm_bias": None}
    if weights.final_bias is not None:
        add = weights.W_U @ weights.final_bias
        changes |= {"b_U": add if weights.b_U is None else weights.b_U + add, "final_bias": None}
    if weights.final_gain is not None:
        changes |= {"W_U": weights.W_U * weights.final_gain, "final_gain": None}
    return weights.replace("norms folded", **changes) if changes else weights


def centre_reads(weights: Weights) -> Weights:
    """Reading weights made blind to the all-ones direction, which LayerNorm removes anyway: W -> W (I - 11^T/d).

    Logits unchanged. Only under LayerNorm without gain left on it (fold first); UsageError elsewhere, where it would
    change the model.
    """
    check_weights(weights)
    c = weights.config
    if c.norm != "layer" or any(t is not None for t in (weights.norm_gain, weights.final_gain)):
        raise UsageError(
            "centring reads changes this model",
            expected="norm='layer' with its gains folded",
            got=f"norm={c.norm!r}" + (", gains not folded" if c.norm == "layer" else ""),
            next_step="Run fold_norms first" if c.norm == "layer" else "Leave it out: there is no mean to remove",
        )
    changes = _waves_keep(weights)
    for name in ("W_Q", "W_K", "W_V", "W_U"):
        matrix = getattr(weights, name)
        changes[name] = matrix - matrix.mean(-1, keepdim=True)
    return weights.replace("reads centred", **changes)


def untie(weights: Weights) -> Weights:
    """W_U in memory of its own, so that changing it leaves W_E alone. The weights themselves when not tied."""
    check_weights(weights)
    return weights.replace("untied", W_U=weights.W_U.clone()) if weights.tied else weights


def fold_value_biases(weights: Weights) -> Weights:
    """b_V moved into b_O: b_O + sum_h W_O b_V, exact wherever rows of patterns sum to one.

    Rows with nothing to attend to (padding) sum to zero, and an ablated head then still leaves its bias behind, which
    is why scores never do this by default. The weights themselves without b_V.
    """
    check_weights(weights)
    if weights.b_V is None:
        return weights
    b_V = weights.b_V.repeat_interleave(weights.config.group, dim=1)
    add = (weights.W_O @ b_V[..., None]).squeeze(-1).sum(1)
    return weights.replace("b_V folded", b_V=None, b_O=add if weights.b_O is None else weights.b_O + add)


def _waves_keep(weights: Weights) -> dict[str, Tensor | None]:
    """Shortformer sinusoids go on being read by the matrices as they were."""
    if weights.config.positions != "shortformer":
        return {}
    pairs = (("W_Q_pos", "W_Q"), ("W_K_pos", "W_K"))
    return {new: getattr(weights, old) for new, old in pairs if getattr(weights, new) is None}
