"""Answers to 1a-1d as data: right ones, published and unusual, and wrong ones with the reason they must be given."""

from __future__ import annotations

from typing import Any

import torch

from headway.exercises.blocks import copying
from headway.exercises.givens import Given
from headway.exercises.references import reference

M4 = torch.tensor([[2.0, 1, 0, 0], [0, 1, -1, 0], [1, 0, 1, 3], [0, 0, 1, -1]], dtype=torch.float64)
COPY = {0: 8, 1: 9, 2: 10, 3: 11}
SECOND = {4: 12, 5: 13, 6: 14, 8: 15}


def vo(W_OV: Any):
    """Factors of a W_OV of rank at most 4."""
    U, S, Vh = torch.linalg.svd(W_OV)
    return {"W_V": S[:4, None] * Vh[:4], "W_O": U[:, :4]}


def copies(pairs: Any, scale: Any = 1.0):
    return vo(scale * copying(pairs, 16))


def ones(*entries: Any):
    found = torch.zeros(16, 16, dtype=torch.float64)
    for written, read, value in entries:
        found[written, read] = value
    return found


def plus(pairs: Any, *entries: Any):
    return vo(copying(pairs, 16) + ones(*entries))


def published(g: Given):
    return reference(g.id, g)


def in_basis(g: Given, M: Any):
    part = published(g)
    return {"W_V": M @ part["W_V"], "W_O": part["W_O"] @ torch.linalg.inv(M)}


def products(one: Any, two: Any):
    return {"W_OV1": one, "W_OV2": two}


def terms(two: Any, one: Any, rank_two: Any = 1, rank_one: Any = 8):
    return {"two_token": two, "one_token": one, "rank_two_token": rank_two, "rank_one_token": rank_one}


W1, W2 = copying(COPY, 16), copying(SECOND, 16)
MIX3 = torch.tensor([[1.0, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.float64)


def mixed():
    found = torch.zeros(16, 16, dtype=torch.float64)
    found[12:15, 4:7] = MIX3
    found[15, 8] = 1
    return found


RIGHT = {
    "1a": {
        "published": published,
        "another basis": lambda g: in_basis(g, M4),
        "dims of v in another order": lambda g: in_basis(g, torch.eye(4, dtype=torch.float64)[[2, 0, 3, 1]]),
        "scales that cancel": lambda g: in_basis(g, torch.diag(torch.tensor([2.0, 0.5, 10, 1], dtype=torch.float64))),
        "signs that cancel": lambda g: in_basis(g, -torch.eye(4, dtype=torch.float64)),
        "from singular vectors": lambda g: copies(COPY),
        "numpy": lambda g: {name: array.numpy() for name, array in published(g).items()},
    },
    "1b": {
        "published": published,
        "another basis": lambda g: in_basis(g, M4),
        "relays dim 11": lambda g: copies({4: 12, 5: 13, 6: 14, 11: 15}),
        "other fresh dims": lambda g: copies({7: 4, 13: 5, 15: 6, 9: 12}),
        "other destinations": lambda g: copies({4: 5, 5: 6, 6: 4, 8: 0}),
        "a mixture of the fresh dims": lambda g: vo(mixed()),
        "writes where it reads": lambda g: copies({4: 4, 5: 13, 6: 14, 10: 15}),
    },
    "1c": {
        "published": published,
        "by hand": lambda g: products(W1, W2),
        "numpy": lambda g: products(W1.numpy(), W2.numpy()),
        "lists": lambda g: products(W1.tolist(), W2.tolist()),
        "integers": lambda g: products(W1.long(), W2.long()),
        "float32 products": lambda g: products(
            g.W_O1.float() @ g.W_V1.float(), (g.W_O2.float() @ g.W_V2.float()).numpy()
        ),
    },
    "1d": {
        "published": published,
        "by hand": lambda g: terms(ones((15, 0, 1.0)), W1 + W2),
        "the rank on streams whose dims 8 to 11 are empty": lambda g: terms(W2 @ W1, W1 + W2, 1, 7),
        "numpy": lambda g: terms((W2 @ W1).numpy(), (W1 + W2).numpy()),
        "lists": lambda g: terms((W2 @ W1).tolist(), (W1 + W2).tolist(), 1.0, 8.0),
        "ranks as tensors": lambda g: terms(W2 @ W1, W1 + W2, torch.tensor(1), torch.tensor(8)),
    },
}

WRONG = {
    "1a": {
        "reversed": (lambda g: copies({8: 0, 9: 1, 10: 2, 11: 3}), "WRONG_WRITE", {}),
        "twice as large": (lambda g: copies(COPY, 2.0), "SCALE", {}),
        "one dim too large": (lambda g: vo(W1 + ones((9, 1, 2.0))), "SCALE", {}),
        "negated": (lambda g: copies(COPY, -1.0), "SIGN", {"factor": -1.0}),
        "dims exchanged": (lambda g: copies({0: 9, 1: 8, 2: 10, 3: 11}), "ORDER", {}),
        "mixed": (lambda g: vo(ones(*((8 + i, j, float(M4[i, j])) for i in range(4) for j in range(4)))), "ORDER", {}),
        "adds itself": (lambda g: plus(COPY, *((i, i, 1.0) for i in range(4))), "EXTRA_READ", {}),
        "reads dim 4 too": (lambda g: plus(COPY, (8, 4, 1.0)), "EXTRA_READ", {"reads": "dim 4"}),
        "writes dim 12 too": (lambda g: plus(COPY, (12, 0, 1.0)), "WRONG_WRITE", {"writes": "dim 12 as well"}),
        "to dims 12 to 15": (
            lambda g: copies({0: 12, 1: 13, 2: 14, 3: 15}),
            "WRONG_WRITE",
            {"writes": "dims 12 to 15"},
        ),
        "from dims 4 to 7": (lambda g: copies({4: 8, 5: 9, 6: 10, 7: 11}), "WRONG_READ", {"reads": "dims 4 to 7"}),
        "only three": (lambda g: copies({0: 8, 1: 9, 2: 10}), "RANK", {"got": "3"}),
        "nothing": (lambda g: vo(torch.zeros(16, 16, dtype=torch.float64)), "ZERO", {}),
    },
    "1b": {
        "two relays": (lambda g: copies({4: 12, 5: 13, 8: 14, 9: 15}), "EXTRA_READ", {}),
        "reads dims 0 to 3 again": (lambda g: copies({0: 12, 5: 13, 6: 14, 8: 15}), "EXTRA_READ", {}),
        "head 1 once more": (lambda g: copies(COPY), "EXTRA_READ", {}),
        "no virtual head": (lambda g: copies({4: 12, 5: 13, 6: 14, 7: 15}), "WRONG_READ", {}),
        "only two further dims": (lambda g: copies({4: 12, 5: 13, 8: 15}), "WRONG_READ", {}),
        "the relay alone": (lambda g: copies({8: 15}), "WRONG_READ", {}),
        "two copies to one dim": (lambda g: copies({4: 12, 5: 12, 6: 14, 8: 15}), "RANK", {"got": "3"}),
        "twice as large": (lambda g: copies(SECOND, 2.0), "SCALE", {"factor": 2.0}),
        "the relay halved": (lambda g: vo(W2 - ones((15, 8, 0.5))), "SCALE", {"factor": 0.5}),
        "negated": (lambda g: copies(SECOND, -1.0), "SIGN", {}),
        "the relay spread": (lambda g: vo(W2 + ones((3, 8, 1.0))), "WRONG_WRITE", {}),
        "the relay onto another copy": (lambda g: vo(W2 + ones((15, 4, 1.0))), "WRONG_WRITE", {}),
        "nothing": (lambda g: vo(torch.zeros(16, 16, dtype=torch.float64)), "ZERO", {}),
    },
    "1c": {
        "exchanged": (lambda g: products(W2, W1), "ORDER", {}),
        "first transposed": (lambda g: products(W1.T, W2), "TRANSPOSED", {}),
        "second transposed": (lambda g: products(W1, W2.T), "TRANSPOSED", {}),
        "twice as large": (lambda g: products(2 * W1, W2), "VALUE", {"name": "W_OV1", "error": 1.0}),
        "zeros": (lambda g: products(0 * W1, W2), "ZERO", {}),
        "their product for the second": (lambda g: products(W1, W2 @ W1), "VALUE", {"name": "W_OV2"}),
        "their sum for the first": (lambda g: products(W1 + W2, W2), "VALUE", {"name": "W_OV1"}),
        "with the residual": (lambda g: products(W1 + torch.eye(16), W2), "VALUE", {"name": "W_OV1"}),
    },
    "1d": {
        "the product in the other order": (lambda g: terms(W1 @ W2, W1 + W2), "ORDER", {}),
        "transposed": (lambda g: terms((W2 @ W1).T, W1 + W2), "TRANSPOSED", {}),
        "one token transposed": (lambda g: terms(W2 @ W1, (W1 + W2).T), "TRANSPOSED", {}),
        "one token from head 2 alone": (lambda g: terms(W2 @ W1, W2), "VALUE", {"name": "one_token"}),
        "two token with one token": (lambda g: terms(W1 + W2, W1 + W2), "VALUE", {"name": "two_token"}),
        "rank of two token": (lambda g: terms(W2 @ W1, W1 + W2, 4, 8), "RANK", {"name": "rank_two_token", "got": "4"}),
        "rank of one token": (lambda g: terms(W2 @ W1, W1 + W2, 1, 4), "RANK", {"name": "rank_one_token", "got": "4"}),
        "with the residual": (lambda g: terms(W2 @ W1, W1 + W2 + torch.eye(16)), "VALUE", {"name": "one_token"}),
        "zeros": (lambda g: terms(W2 @ W1, 0 * W1), "ZERO", {}),
    },
}
