"""A model with its positions or its earlier layers taken away, so that runs show what contents alone do."""

from __future__ import annotations

from typing import Any

import torch

from headway.model.weights import Weights


def without_positions(weights: Weights) -> Weights:
    """The same model with positions of size zero; rotary ones stay, for they are in the offset."""
    c = weights.config
    changed: dict[str, Any] = {}
    if c.positions == "shortformer":
        changed = {"config": type(c).from_dict(c.to_dict() | {"position_amplitude": 0.0})}
    elif weights.W_pos is not None:
        changed = {"W_pos": torch.zeros_like(weights.W_pos)}
    return weights.replace(**changed)


def silent_earlier(weights: Weights) -> Weights:
    """The same model in which only the last layer writes: it reads the embedding alone."""
    earlier = weights.config.n_layers - 1
    W_O = weights.W_O.clone()
    W_O[:earlier] = 0
    b_O = None if weights.b_O is None else weights.b_O.clone()
    if b_O is not None:
        b_O[:earlier] = 0
    return weights.replace(W_O=W_O, b_O=b_O)
