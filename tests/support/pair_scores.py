"""Every score a hand-written head can give, by enumerating what the stream can hold: for proofs by exhaustion."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.model.weights import Weights


def embedded(weights: Weights) -> Tensor:
    """The stream before layer 0 of every token at every position, [position, token, d_model]."""
    tokens = weights.W_E.T[None].expand(weights.config.n_ctx, -1, -1)
    return tokens if weights.W_pos is None else tokens + weights.W_pos.T[:, None]


def pair_scores(weights: Weights, name: str, queries: Tensor, keys: Tensor) -> Tensor:
    """Scores [i, t, j, u] of the head, for queries [i, t, d_model] and keys [j, u, d_model], j > i included."""
    head = weights.head(name)
    ones = torch.ones(*queries.shape[:2], 1, dtype=queries.dtype)
    q, k = torch.cat((queries, ones), -1), torch.cat((keys, torch.ones_like(keys[..., :1])), -1)
    out = torch.empty(*queries.shape[:2], *keys.shape[:2], dtype=queries.dtype)
    for i in range(len(queries)):
        for j in range(len(keys)):
            circuit = head.qk(max(i - j, 0), biases=True).dense()
            out[i, :, j] = head.attn_scale * q[i] @ circuit @ k[j].T
    return out
