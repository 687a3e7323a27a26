from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from headway.model.config import ModelConfig
from headway.model.positions import rotary_waves, rotate, rotation, sinusoids

SIZES: dict[str, Any] = {"n_layers": 1, "n_heads": 3, "d_model": 10, "d_head": 7, "d_vocab": 5, "n_ctx": 9}


def rotary(pairs: str, dims: int) -> ModelConfig:
    return ModelConfig(**SIZES, positions="rotary", rotary_dims=dims, rotary_pairs=pairs, position_base=30.0)


@pytest.mark.parametrize("d_model", [9, 10])
def test_sinusoids_by_hand(d_model: int):
    sizes: dict[str, Any] = {**SIZES, "d_model": d_model}
    config = ModelConfig(**sizes, positions="shortformer", position_base=100.0, position_amplitude=0.5)
    table = sinusoids(torch.arange(5), config)
    assert table.shape == (5, d_model) and table.dtype == torch.float64
    assert table[0].tolist() == [0.0, 0.5] * (d_model // 2) + [0.0] * (d_model % 2)
    theta = 100 ** (-2 / 10)  # pair 1 of 5
    assert math.isclose(float(table[3, 2]), 0.5 * math.sin(3 * theta))
    assert math.isclose(float(table[3, 3]), 0.5 * math.cos(3 * theta))


@pytest.mark.parametrize("pairs", ["halves", "adjacent"])
@pytest.mark.parametrize("dims", [2, 6])
def test_rotations_form_a_group(pairs: str, dims: int):
    config = rotary(pairs, dims)
    eye = torch.eye(7, dtype=torch.float64)
    for i, j in ((0, 3), (5, 2), (4, 4)):
        torch.testing.assert_close(rotation(i, config).T @ rotation(j, config), rotation(j - i, config))
    torch.testing.assert_close(rotation(3, config) @ rotation(3, config).T, eye)
    assert torch.equal(rotation(0, config), eye)
    assert torch.equal(rotation(5, config)[dims:, dims:], eye[dims:, dims:]), "the rest of the head is not turned"


@pytest.mark.parametrize(("pairs", "partner"), [("halves", 2), ("adjacent", 1)])
def test_which_dims_are_a_pair(pairs: str, partner: int):
    turned = rotation(1, rotary(pairs, 4))
    column = torch.zeros(7, dtype=torch.float64)
    column[0], column[partner] = math.cos(1), math.sin(1)  # theta_0 is 1
    torch.testing.assert_close(turned[:, 0], column)


@pytest.mark.parametrize("pairs", ["halves", "adjacent"])
def test_rotate_is_multiplication_by_the_rotation(pairs: str):
    config = rotary(pairs, 6)
    x = torch.randn(4, 7, dtype=torch.float64)
    turned = rotate(x, *rotary_waves(torch.arange(4), config), pairs)
    for m in range(4):
        torch.testing.assert_close(turned[m], rotation(m, config) @ x[m])


def test_without_rotary_a_rotation_is_the_identity():
    assert torch.equal(rotation(4, ModelConfig(**SIZES)), torch.eye(7, dtype=torch.float64))
