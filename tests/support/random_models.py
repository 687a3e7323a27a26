"""Random models with every feature the forward pass knows, so that no test rests on a special case.

The sizes are awkward on purpose: d_head is not d_model / n_heads, key/value heads are fewer than query heads, gains and
biases are random, the scale is not 1/sqrt(d_head), and nothing is square.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from headway.model.config import ModelConfig
from headway.model.weights import AXES, REQUIRED, Weights

BIASES = ("b_Q", "b_K", "b_V", "b_O", "b_U")
NORM_TENSORS = ("norm_gain", "norm_bias", "final_gain", "final_bias")
SIZES: dict[str, Any] = {
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_model": 10,
    "d_head": 5,
    "d_vocab": 13,
    "n_ctx": 16,
    "attn_scale": 0.7,
    "position_base": 50.0,
    "bos": 0,
}


def random_weights(
    *,
    seed: int = 0,
    biases: str | Iterable[str] = "all",
    affine: str | Iterable[str] = "all",
    dtype: torch.dtype = torch.float64,
    tied: bool = False,
    **config: Any,
) -> Weights:
    """Weights of a random model: `SIZES`, with any config field replaced.

    biases: `all`, `none`, or names out of `BIASES`. affine: the same for the gains and biases of norms.
    Matrices are scaled so that streams, scores and logits stay of order one and attention is neither flat nor one-hot.
    """
    c = ModelConfig(**{**SIZES, **config})
    random = torch.Generator().manual_seed(seed)
    names = [*REQUIRED, *_chosen(biases, BIASES)]
    names += ["W_pos"] if c.positions == "learned" else []
    names += _chosen(affine, NORM_TENSORS) if c.norm != "none" else []
    tensors: dict[str, Any] = {}
    for name in names:
        shape = [getattr(c, axis) for axis in AXES[name]]
        values = torch.randn(shape, generator=random, dtype=torch.float64)
        if name.endswith("gain"):
            values = 1 + 0.4 * values
        elif name in {"W_Q", "W_K", "W_V", "W_U"}:
            values = 0.8 * values / c.d_model**0.5
        elif name == "W_O":
            values = values / c.d_head**0.5
        elif name not in {"W_E", "W_pos"}:
            values = 0.5 * values
        tensors[name] = values.to(dtype)
    if tied:
        tensors["W_U"] = tensors["W_E"].T  # the same memory
    return Weights(config=c, **tensors)


def random_tokens(weights: Weights, rows: int = 3, n: int = 9, seed: int = 1) -> torch.Tensor:
    """Rows of random ids, BOS first where the model has one."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(weights.config.d_vocab, (rows, n), generator=random)
    if weights.config.bos is not None:
        tokens[:, 0] = weights.config.bos
    return tokens


def padding(rows: int, n: int, side: str) -> torch.Tensor:
    """A keep mask: row r has r + 1 padded positions on the given side, row 0 none; `both` pads one on each side."""
    keep = torch.ones(rows, n, dtype=torch.bool)
    for row in range(1, rows):
        if side in {"left", "both"}:
            keep[row, : row + 1 if side == "left" else 1] = False
        if side in {"right", "both"}:
            keep[row, n - (row + 1 if side == "right" else 1) :] = False
    return keep


def feature_name(features: dict[str, Any]) -> str:
    """A test id, such as `norm=layer positions=rotary`."""
    return " ".join(f"{k}={'+'.join(v) if isinstance(v, tuple) else v}" for k, v in features.items()) or "plain"


def _chosen(wanted: str | Iterable[str], every: tuple[str, ...]) -> list[str]:
    names = {"all": every, "none": ()}.get(wanted, wanted) if isinstance(wanted, str) else tuple(wanted)
    unknown = set(names) - set(every)
    if unknown or isinstance(names, str):
        raise ValueError(f"not among {every}: {wanted}")
    return list(names)


# Every value of every feature, and the pairs that have gone wrong in other tools.
FEATURES: list[dict[str, Any]] = [
    {"biases": "none"},
    {"positions": "none", "n_kv_heads": 4},
    {"positions": "shortformer", "position_amplitude": 0.8},
    {"positions": "learned", "bos": None},
    {"positions": "rotary", "rotary_dims": 4, "rotary_pairs": "halves"},
    {"positions": "rotary", "d_head": 6, "rotary_pairs": "adjacent", "n_kv_heads": 1},
    {"positions": "rotary", "rotary_dims": 2, "rotary_pairs": "adjacent", "norm": "rms"},
    {"norm": "layer", "positions": "shortformer"},
    {"norm": "layer", "positions": "rotary", "biases": ("b_V", "b_O"), "attn_scale": 1.0},
    {"norm": "layer", "positions": "learned", "biases": "none", "affine": "none"},
    {"norm": "rms", "positions": "shortformer", "affine": ("norm_gain", "final_gain")},
    {"norm": "rms", "positions": "none", "n_layers": 3, "n_heads": 2, "n_kv_heads": 2, "d_head": 7},
    {"norm": "layer", "positions": "none", "affine": ("norm_bias",), "biases": ("b_Q", "b_K")},
    {"norm": "layer", "positions": "shortformer", "tied": True},
    {"n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "d_head": 11, "positions": "shortformer"},
    {"n_layers": 0, "n_heads": 0, "n_kv_heads": 0, "norm": "layer"},
]
