"""Where order enters: sinusoids for shortformer models, rotations for rotary ones.

Both use angles theta_f = base^(-2f/d): pair f of position m stands at angle m * theta_f.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.errors import UsageError
from headway.model.config import ModelConfig

LARGEST_OFFSET = 2**31 - 1  # up to here the angles of rotary positions are right to a millionth


def check_offset(offset: object) -> None:
    """Raise UsageError for what is no offset D = destination - source, a whole number from 0 to 2^31 - 1.

    >>> check_offset(-1)
    Traceback (most recent call last):
    headway.errors.UsageError: an offset is destination minus source; expected a whole number, 0 .. 2^31 - 1, got -1
    """
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= LARGEST_OFFSET:
        expected = "a whole number, 0 .. 2^31 - 1"
        raise UsageError("an offset is destination minus source", expected=expected, got=repr(offset)[:40])


def sinusoids(positions: Int[Tensor, "*batch pos"], config: ModelConfig) -> Float[Tensor, "*batch pos d_model"]:
    """The shortformer table: dim 2f holds amplitude * sin(m theta_f), dim 2f+1 the cosine. Float64.

    Added where W_Q and W_K read (papers.md 1.1), so neither V nor the stream knows positions.
    """
    angles = positions[..., None] * _thetas(config.d_model + config.d_model % 2, config, positions.device)
    waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
    return config.position_amplitude * waves[..., : config.d_model]


def rotary_waves(
    positions: Int[Tensor, "*batch pos"], config: ModelConfig
) -> tuple[Float[Tensor, "*batch pos pair"], Float[Tensor, "*batch pos pair"]]:
    """cos and sin of m theta_f for each rotated pair f, float64."""
    angles = positions[..., None] * _thetas(config.rotary_dims, config, positions.device)
    return angles.cos(), angles.sin()


def rotate(
    x: Float[Tensor, "*batch d_head"],
    cos: Float[Tensor, "*#batch pair"],
    sin: Float[Tensor, "*#batch pair"],
    pairs: str,
) -> Float[Tensor, "*batch d_head"]:
    """R_m x: turns each pair of the first rotary dims by its angle; the rest of the head passes unturned."""
    n = 2 * cos.shape[-1]
    if pairs == "halves":
        a, b = x[..., : n // 2], x[..., n // 2 : n]
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    else:
        a, b = x[..., 0:n:2], x[..., 1:n:2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    return torch.cat((turned, x[..., n:]), dim=-1) if n < x.shape[-1] else turned


def rotation(step: int, config: ModelConfig) -> Float[Tensor, "d_head d_head"]:
    """The matrix R_step, float64: (R_i q) . (R_j k) = q^T R_{j-i} k. The identity without rotary positions.

    >>> c = ModelConfig(n_layers=1, n_heads=1, d_model=3, d_head=2, d_vocab=2, n_ctx=4, positions="rotary")
    >>> rotation(1, c).round(decimals=3).tolist()
    [[0.54, -0.841], [0.841, 0.54]]
    """
    eye = torch.eye(config.d_head, dtype=torch.float64)
    if not config.rotary_dims:
        return eye
    cos, sin = rotary_waves(torch.tensor([step]), config)
    return rotate(eye, cos, sin, config.rotary_pairs).T


def _thetas(dims: int, config: ModelConfig, device: torch.device) -> Float[Tensor, "pair"]:
    f = torch.arange(0, dims, 2, dtype=torch.float64, device=device)
    return config.position_base ** (-f / max(dims, 1))
