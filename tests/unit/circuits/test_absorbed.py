"""The fast route for all pairs: tiles of any size, and scores so small that an inner product would lose them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headway.circuits import absorbed
from headway.circuits.absorbed import pair_scores, readers, writers
from headway.model.weights import Weights
from support.random_models import random_weights


def dense_scores(weights: Weights) -> Tensor:
    """K-composition [reader, writer] of all heads, multiplied out in float64."""
    heads = [weights.to(torch.float64).head(head) for head in weights.head_ids()]
    reads = [h.qk().dense() for h in heads]
    writes = [h.ov.dense() for h in heads]
    norm = torch.linalg.matrix_norm
    return torch.stack([torch.stack([norm(R @ W) / (norm(R) * norm(W)) for W in writes]) for R in reads])


def k_scores(weights: Weights) -> Tensor:
    c = weights.config
    layer = torch.arange(c.n_layers).repeat_interleave(c.n_heads)
    sides = readers(weights, "K", 0, c.d_model), writers(weights, centred=False)
    return pair_scores([sides[0]], sides[1], layer)[0]


def between_layers(weights: Weights, scores: Tensor) -> Tensor:
    layer = torch.arange(weights.config.n_layers).repeat_interleave(weights.config.n_heads)
    return scores[layer[:, None] != layer]


@pytest.mark.parametrize("tile", [1, 3, 7, 100])
def test_tiles_of_any_size_give_the_same_scores(tile: int, monkeypatch: pytest.MonkeyPatch):
    weights = random_weights(n_layers=3)
    monkeypatch.setattr(absorbed, "_TILE", tile)
    found, exact = (between_layers(weights, s) for s in (k_scores(weights), dense_scores(weights)))
    assert torch.allclose(found, exact, rtol=0, atol=1e-12)


def test_a_stream_wider_than_one_tile_in_single_precision():
    weights = random_weights(d_model=300, d_head=8, n_heads=2, n_kv_heads=1, dtype=torch.float32)
    found, exact = (between_layers(weights, s) for s in (k_scores(weights), dense_scores(weights)))
    assert torch.allclose(found, exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("dtype", "accuracy"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_a_reader_that_looks_elsewhere_scores_zero_to_the_last_digit(dtype: torch.dtype, accuracy: float):
    # Writers write into one half of a rotated stream and readers read from the other: 0, though no entry is.
    turn = torch.linalg.qr(torch.randn(10, 10, dtype=torch.float64)).Q
    weights = random_weights(n_kv_heads=4)
    W_O = turn[:, :5] @ torch.randn(2, 4, 5, 5, dtype=torch.float64)
    W_K = torch.randn(2, 4, 5, 5, dtype=torch.float64) @ turn[:, 5:].T
    weights = weights.replace(W_O=W_O, W_K=W_K).to(dtype)
    assert float(between_layers(weights, k_scores(weights)).max()) < accuracy
    # A little of what is written put where it is read keeps all its digits.
    leak = weights.replace(W_O=(W_O + 1e-4 * turn[:, 5:] @ torch.randn(2, 4, 5, 5, dtype=torch.float64)).to(dtype))
    found, exact = (between_layers(leak, s) for s in (k_scores(leak), dense_scores(leak)))
    assert float(exact.max()) < 1e-3
    assert torch.allclose(found, exact, rtol=1e-2 if dtype == torch.float32 else 1e-7, atol=0)


def test_pairs_done_again_are_only_the_small_ones(monkeypatch: pytest.MonkeyPatch):
    weights = random_weights()
    before = k_scores(weights)
    monkeypatch.setattr(absorbed, "_DOUBTFUL", 1e30)  # every pair
    monkeypatch.setattr(absorbed, "_CHUNK", 5)
    again = k_scores(weights)
    assert torch.allclose(before, again, rtol=0, atol=1e-13)
    assert not torch.equal(between_layers(weights, before), between_layers(weights, again))


def test_sides_have_norm_one_and_no_more_rows_than_the_stream():
    weights = random_weights(d_head=13, d_model=6)
    for side in (readers(weights, "Q", 0, 6), readers(weights, "V", 0, 6), writers(weights, centred=True)):
        assert side.matrices.shape == (8, 6, 6)
        assert torch.allclose(torch.linalg.matrix_norm(side.matrices), torch.ones(8, dtype=torch.float64))
        gram = side.matrices.mT @ side.matrices
        assert torch.allclose(side.gram_norm, torch.linalg.matrix_norm(gram))
