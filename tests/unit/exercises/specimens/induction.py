"""Answers to 3 and 3-rotary as data: right ones, published and unusual, and wrong ones with their promised reason."""

from __future__ import annotations

from typing import Any

import torch

from headway.exercises.givens import Given
from headway.exercises.predicates.attention import pairs, turns
from headway.exercises.references import reference

M4 = torch.tensor([[2.0, 1, 0, 0], [0, 1, -1, 0], [1, 0, 1, 3], [0, 0, 1, -1]], dtype=torch.float64)


def published(g: Given):
    return reference(g.id, g)


def changed(**parts: Any):
    """The published answer with arrays replaced, each by a function of the data and of the array."""
    return lambda g: {**published(g), **{name: change(g, published(g)[name]) for name, change in parts.items()}}


def content_in_v(g: Given, extra: Any):
    """W_V1 that also carries something."""
    return g.u_content + extra


def shared(g: Given, cosine: float):
    """Scratch columns that lie partly on content: each a mixture of v and a content direction."""
    write = (g.subspaces or g.extra["space"]).write("content")
    there = write @ (g.u_content @ write).T
    there = there / there.norm(dim=0)
    return (1 - cosine**2) ** 0.5 * g.v_write + cosine * there


def padded(g: Given, rows: Any):
    """Rows in the slow pairs of a rotary head."""
    return torch.cat((torch.zeros(g.d_head - 4, g.d_model, dtype=torch.float64), rows))


def in_fast_pairs(g: Given, rows: Any):
    return torch.cat((rows, torch.zeros(g.d_head - 4, g.d_model, dtype=torch.float64)))


def one_pair(g: Given):
    return {"W_Q": turns(g, -1.0, 0) @ pairs(g, 0), "W_K": pairs(g, 0)}


RIGHT = {
    "3": {
        "published": published,
        "another v": changed(W_V1=lambda g, W: M4 @ W, W_K2=lambda g, W: torch.linalg.inv(M4) @ W),
        "another basis of queries": changed(W_Q2=lambda g, W: M4 @ W, W_K2=lambda g, W: torch.linalg.inv(M4).T @ W),
        "large scores": changed(W_Q2=lambda g, W: 1e3 * W, W_Q1=lambda g, W: 1e3 * W),
        "v twice as large": changed(W_O1=lambda g, W: 2 * W),
        "negated twice": changed(W_Q2=lambda g, W: -W, W_K2=lambda g, W: -W),
        "turned on the key": changed(
            W_Q1=lambda g, W: pairs(g, 0, 1), W_K1=lambda g, W: turns(g, 1.0, 0, 1) @ pairs(g, 0, 1)
        ),
        "head 1 by pairs 0 and 2": changed(
            W_Q1=lambda g, W: turns(g, -1.0, 0, 2) @ pairs(g, 0, 2), W_K1=lambda g, W: pairs(g, 0, 2)
        ),
        "a little content in the keys": changed(W_K2=lambda g, W: W + 0.03 * g.u_content),
    },
    "3-rotary": {
        "published": published,
        "another v": changed(W_V1=lambda g, W: M4 @ W, W_K2=lambda g, W: padded(g, torch.linalg.inv(M4) @ g.v)),
        "large scores": changed(W_Q2=lambda g, W: 100 * W),
        "v twice as large": changed(W_O1=lambda g, W: 2 * W),
        "negated twice": changed(W_Q2=lambda g, W: -W, W_K2=lambda g, W: -W),
        "a wider value": changed(
            W_V1=lambda g, W: torch.cat((W, torch.zeros(2, g.d_model))),
            W_O1=lambda g, W: torch.cat((W, torch.zeros(g.d_model, 2)), dim=1),
        ),
        "v negated": changed(W_O1=lambda g, W: -W, W_K2=lambda g, W: -W),
    },
}

WRONG = {
    "3": {
        "keys read content": (changed(W_K2=lambda g, W: g.u_content), "WRONG_READ", {"head": 2}),
        "query and key exchanged": (
            changed(W_Q2=lambda g, W: g.v, W_K2=lambda g, W: g.u_content), "WRONG_READ", {"repair": "SWAP"}),
        "negated": (changed(W_Q2=lambda g, W: -W), "SIGN", {"repair": "NEGATE"}),
        "keys read content and v": (changed(W_K2=lambda g, W: W + 2 * g.u_content), "CONTENT_LEAK", {"side": "key"}),
        "values carry position too": (
            changed(W_V1=lambda g, W: content_in_v(g, 4 * pairs(g, 0, 1))), "EXTRA_READ", {"repair": ""}),
        "v on content": (changed(W_O1=lambda g, W: shared(g, 0.95)), "OVERLAP", {"with": "content"}),
        "v not told": (changed(W_V1=lambda g, W: M4 @ W), "DOWNSTREAM", {"part": "head 1"}),
        "head 1 looks at itself": (changed(W_Q1=lambda g, W: pairs(g, 0, 1)), "OFFSET", {"head": 1}),
        "head 1 turned the wrong way": (
            changed(W_Q1=lambda g, W: turns(g, 1.0, 0, 1) @ pairs(g, 0, 1)), "SIGN", {"head": 1}),
        "head 1 moves nothing": (changed(W_V1=lambda g, W: 0 * W), "WRONG_READ", {"head": 2}),
        "head 1 moves position": (changed(W_V1=lambda g, W: pairs(g, 0, 1)), "WRONG_READ", {"head": 2}),
        "head 2 silent": (changed(W_Q2=lambda g, W: 0 * W), "ZERO", {"head": 2}),
        "head 2 matches position": (
            changed(W_Q2=lambda g, W: pairs(g, 0, 1), W_K2=lambda g, W: pairs(g, 0, 1)), "WRONG_READ", {"head": 2}),
    },
    "3-rotary": {
        "keys read content": (changed(W_K2=lambda g, W: padded(g, g.u_content)), "WRONG_READ", {"head": 2}),
        "query and key exchanged": (
            changed(W_Q2=lambda g, W: padded(g, g.v), W_K2=lambda g, W: padded(g, g.u_content)),
            "WRONG_READ", {"repair": "SWAP"}),
        "negated": (changed(W_Q2=lambda g, W: -W), "SIGN", {"repair": "NEGATE"}),
        "contents in the fast pairs": (
            changed(W_Q2=lambda g, W: in_fast_pairs(g, g.u_content), W_K2=lambda g, W: in_fast_pairs(g, g.v)),
            "WRONG_READ", {"head": 2}),
        "keys read content and v": (
            changed(W_K2=lambda g, W: W + 2 * padded(g, g.u_content)), "CONTENT_LEAK", {"side": "key"}),
        "v not told": (changed(W_V1=lambda g, W: M4 @ W), "DOWNSTREAM", {"part": "head 1"}),
        "head 1 looks at itself": (
            changed(W_Q1=lambda g, W: published(g)["W_K1"]), "OFFSET", {"head": 1}),
        "head 1 turned the wrong way": (
            changed(W_Q1=lambda g, W: published(g)["W_K1"], W_K1=lambda g, W: published(g)["W_Q1"]), "SIGN", {"head": 1}),
        "head 1 moves nothing": (changed(W_V1=lambda g, W: 0 * W), "WRONG_READ", {"head": 2}),
        "head 2 silent": (changed(W_K2=lambda g, W: 0 * W), "ZERO", {"head": 2}),
        "v on content": (changed(W_O1=lambda g, W: shared(g, 0.95)), "OVERLAP", {"with": "content"}),
    },
}  # fmt: skip
