"""Answers to w1-w7 as data: right ones in the forms people give them, and wrong ones with the reason they must be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from headway.exercises.givens import Given
from headway.exercises.predicates.warmup import pattern
from headway.exercises.references import reference


def published(g: Given):
    return reference(g.id, g)


def forms(name: Any):
    """One array, as torch, numpy, lists, in single precision, with rounding, and not contiguous in memory."""
    return {
        "published": published,
        "numpy": lambda g: {name: published(g)[name].numpy()},
        "lists": lambda g: {name: published(g)[name].tolist()},
        "rows as tensors": lambda g: {name: list(published(g)[name])},
        "with rounding": lambda g: {name: published(g)[name] * (1 + 1e-9)},
        "single precision": lambda g: {name: published(g)[name].float()},
        "laid out by columns": lambda g: {name: np.asfortranarray(published(g)[name].numpy())},
    }


def changed(name: Any, change: Any):
    return lambda g: {**published(g), name: change(published(g)[name])}


def matrix_slips(name: Any):
    return {
        "transposed": (changed(name, lambda W: W.T), "TRANSPOSED", {}),
        "twice as large": (changed(name, lambda W: 2 * W), "SCALE", {}),
        "negated": (changed(name, lambda W: -W), "SIGN", {}),
        "zeros": (changed(name, lambda W: 0 * W), "ZERO", {}),
        "one entry off": (changed(name, lambda W: W + 0.1 * torch.eye(len(W))), "VALUE", {"name": name}),
        "rows in another order": (changed(name, lambda W: W.roll(1, 0)), "VALUE", {"name": name}),
        "magnitudes": (changed(name, lambda W: W.abs()), "VALUE", {"name": name}),
        "not a number": (changed(name, lambda W: W * torch.nan), "NONFINITE", {"name": name}),
        "one axis": (changed(name, lambda W: W[0]), "SHAPE", {"name": name}),
        "a text": (changed(name, lambda W: "W"), "NOTNUMBERS", {"name": name}),
    }


def pattern_with(**options: Any):
    return lambda g: {"pattern": pattern(g.W_QK, g.x, g.scale, **options)}


def uniform(A: Any):
    return torch.ones_like(A).tril() / torch.arange(1, len(A) + 1)[:, None]


def exchanged(g: Given):
    part = published(g)
    return {**part, "W_Q": part["W_K"], "W_K": part["W_Q"]}


def head_with(function: Any):
    return lambda g: {"head": lambda W_QK, W_OV, x: function(g, W_QK, W_OV, x)}


def plain(g: Any, W_QK: Any, W_OV: Any, x: Any):
    return pattern(W_QK, x, g.scale) @ x @ W_OV.T


def by_loops(g: Any, W_QK: Any, W_OV: Any, x: Any):
    out = torch.zeros_like(x)
    for i in range(len(x)):
        weights = torch.stack([torch.exp(g.scale * x[i] @ W_QK @ x[j]) for j in range(i + 1)])
        for j in range(i + 1):
            out[i] += weights[j] / weights.sum() * (W_OV @ x[j])
    return out


def with_diagonal(g: Any, M: Any):
    inverse = torch.linalg.inv(M)
    return {"W_Q": inverse.T @ g.W_Q, "W_K": M @ g.W_K, "W_V": M @ g.W_V, "W_O": g.W_O @ inverse}


def spread(g: Any):
    return torch.eye(g.d_head, dtype=torch.float64) + 0.3 * torch.ones(g.d_head, g.d_head, dtype=torch.float64)


def spaces(**changes: Any):
    return lambda g: {**published(g), **{name: change(g, published(g)[name]) for name, change in changes.items()}}


RIGHT = {
    "w1": forms("W_QK"),
    "w2": forms("W_OV"),
    "w3": forms("pattern"),
    "w4": {
        "published": published,
        "scaled": lambda g: with_diagonal(g, 2 * torch.eye(g.d_head, dtype=torch.float64)),
        "mixed": lambda g: with_diagonal(g, spread(g)),
        "negated": lambda g: with_diagonal(g, -torch.eye(g.d_head, dtype=torch.float64)),
        "in another order": lambda g: with_diagonal(g, torch.eye(g.d_head, dtype=torch.float64).roll(1, 0)),
        "numpy": lambda g: {name: array.numpy() for name, array in published(g).items()},
    },
    "w5": {
        "published": published,
        "plain": head_with(plain),
        "by loops": head_with(by_loops),
        "values first": head_with(lambda g, W_QK, W_OV, x: pattern(W_QK, x, g.scale) @ (x @ W_OV.T)),
        "numpy": head_with(lambda g, *parts: plain(g, *parts).numpy()),
        "lists": head_with(lambda g, *parts: plain(g, *parts).tolist()),
    },
    "w6": {
        "published": published,
        "floats": lambda g: {"rank_QK": float(g.d_head), "rank_OV": float(g.d_head)},
        "computed": lambda g: {
            "rank_QK": int(torch.linalg.matrix_rank(g.W_Q.T @ g.W_K)),
            "rank_OV": int(torch.linalg.matrix_rank(g.W_O @ g.W_V)),
        },
        "tensors": lambda g: {"rank_QK": torch.tensor(g.d_head), "rank_OV": torch.linalg.matrix_rank(g.W_O @ g.W_V)},
        "numpy": lambda g: {"rank_QK": np.int64(g.d_head), "rank_OV": np.float32(g.d_head)},
        "lists of one": lambda g: {"rank_QK": [g.d_head], "rank_OV": [[g.d_head]]},
    },
    "w7": {
        "published": published,
        "orthonormal": spaces(read=lambda g, W: torch.linalg.qr(W.T).Q.T, write=lambda g, W: torch.linalg.qr(W).Q),
        "the circuits themselves": spaces(read=lambda g, W: g.W_O2 @ W, write=lambda g, W: W @ g.W_V1),
        "values in another order": spaces(singular_values=lambda g, s: s.flip(0)),
        "with zeros": spaces(singular_values=lambda g, s: torch.cat((s, torch.zeros(3)))),
        "lists": spaces(
            read=lambda g, W: W.tolist(), write=lambda g, W: W.tolist(), singular_values=lambda g, s: s.tolist()
        ),
    },
}

WRONG = {
    "w1": matrix_slips("W_QK"),
    "w2": matrix_slips("W_OV"),
    "w3": {
        "no mask": (pattern_with(masked=False), "UNMASKED", {}),
        "mask after the softmax": (pattern_with(late=True), "MASK_LATE", {}),
        "no scale": (lambda g: {"pattern": pattern(g.W_QK, g.x, 1.0)}, "UNSCALED", {}),
        "transposed": (changed("pattern", lambda A: A.T), "TRANSPOSED", {}),
        "keys ask": (lambda g: {"pattern": pattern(g.W_QK.T, g.x, g.scale)}, "SWAPPED", {}),
        "scores": (lambda g: {"pattern": (g.scale * g.x @ g.W_QK @ g.x.T).tril()}, "NO_SOFTMAX", {}),
        "uniform": (changed("pattern", uniform), "VALUE", {}),
        "zeros": (changed("pattern", lambda A: 0 * A), "VALUE", {}),
        "too short": (changed("pattern", lambda A: A[:-1, :-1]), "SHAPE", {}),
    },
    "w4": {
        "as given": (lambda g: {name: getattr(g, name) for name in ("W_Q", "W_K", "W_V", "W_O")}, "SAME", {}),
        "half as given": (lambda g: {**published(g), "W_V": g.W_V, "W_O": g.W_O}, "SAME", {"names": "W_V, W_O"}),
        "keys not told": (changed("W_K", lambda W: 0.5 * W), "SCALE", {}),
        "queries negated": (changed("W_Q", lambda W: -W), "SIGN", {}),
        "same map on both sides": (
            lambda g: {**published(g), "W_Q": spread(g) @ g.W_Q, "W_K": spread(g) @ g.W_K},
            "VALUE",
            {"name": "W_QK"},
        ),
        "sides exchanged": (exchanged, "TRANSPOSED", {}),
        "output not told": (changed("W_O", lambda W: 3 * W), "SCALE", {}),
        "zeros": (changed("W_V", lambda W: 0 * W), "ZERO", {}),
        "values mixed": (changed("W_V", lambda W: W.roll(1, 0)), "VALUE", {"name": "W_OV"}),
    },
    "w5": {
        "no mask": (
            head_with(lambda g, W_QK, W_OV, x: pattern(W_QK, x, g.scale, masked=False) @ x @ W_OV.T), "UNMASKED", {}),
        "mask after the softmax": (
            head_with(lambda g, W_QK, W_OV, x: pattern(W_QK, x, g.scale, late=True) @ x @ W_OV.T), "MASK_LATE", {}),
        "no scale": (head_with(lambda g, W_QK, W_OV, x: pattern(W_QK, x, 1.0) @ x @ W_OV.T), "UNSCALED", {}),
        "keys ask": (
            head_with(lambda g, W_QK, W_OV, x: pattern(W_QK.T, x, g.scale) @ x @ W_OV.T), "SWAPPED", {"circuit": "W_QK"}),
        "reads what it should write": (
            head_with(lambda g, W_QK, W_OV, x: pattern(W_QK, x, g.scale) @ x @ W_OV), "SWAPPED", {"circuit": "W_OV"}),
        "adds the stream": (head_with(lambda g, *parts: plain(g, *parts) + parts[2]), "ADDED", {}),
        "no pattern": (head_with(lambda g, W_QK, W_OV, x: x @ W_OV.T), "NO_MOVE", {}),
        "no values": (head_with(lambda g, W_QK, W_OV, x: pattern(W_QK, x, g.scale) @ x), "NO_OV", {}),
        "pattern transposed": (
            head_with(lambda g, W_QK, W_OV, x: pattern(W_QK, x, g.scale).T @ x @ W_OV.T), "TRANSPOSED", {}),
        "transposed": (head_with(lambda g, *parts: plain(g, *parts).T), "SHAPE", {"transposed": True}),
        "nothing": (head_with(lambda g, *parts: None), "UNCHANGED", {}),
        "a text": (head_with(lambda g, *parts: "x"), "NOTNUMBERS", {}),
        "not a number": (head_with(lambda g, *parts: plain(g, *parts) * torch.nan), "NONFINITE", {}),
        "something else": (head_with(lambda g, *parts: plain(g, *parts) ** 2), "VALUE", {}),
        "no function": (lambda g: {"head": 3.0}, "NOTNUMBERS", {}),
    },
    "w6": {
        "d_model": (lambda g: {"rank_QK": g.d_model, "rank_OV": g.d_head}, "RANK", {"name": "rank_QK"}),
        "OV of d_model": (lambda g: {"rank_QK": g.d_head, "rank_OV": g.d_model}, "RANK", {"name": "rank_OV"}),
        "one": (lambda g: {"rank_QK": 1, "rank_OV": 1}, "RANK", {"got": "1"}),
        "twice": (lambda g: {"rank_QK": 2 * g.d_head, "rank_OV": 2 * g.d_head}, "RANK", {}),
        "half": (lambda g: {"rank_QK": g.d_head / 2, "rank_OV": g.d_head}, "RANK", {}),
        "zero": (lambda g: {"rank_QK": 0, "rank_OV": 0}, "RANK", {"got": "0"}),
        "a matrix": (lambda g: {"rank_QK": g.W_Q, "rank_OV": g.d_head}, "SHAPE", {}),
        "a text": (lambda g: {"rank_QK": "four", "rank_OV": g.d_head}, "NOTNUMBERS", {}),
        "one missing": (lambda g: {"rank_QK": g.d_head, "rank_OV": None}, "MISSING", {}),
    },
    "w7": {
        "head 1's reads": (spaces(read=lambda g, W: g.W_V1), "WRONG_READ", {"reads": "what head 1 reads"}),
        "head 2's writes": (spaces(write=lambda g, W: g.W_O2), "WRONG_WRITE", {"writes": "what head 2 writes"}),
        "read and write exchanged": (spaces(read=lambda g, W: g.W_O1.T, write=lambda g, W: g.W_V2.T), "WRONG_READ", {}),
        "reads everything": (spaces(read=lambda g, W: torch.eye(g.d_model)), "WRONG_READ", {"reads": "more than that"}),
        "part of what is read": (spaces(read=lambda g, W: W[:2]), "RANK", {"got": "2"}),
        "part of what is written": (spaces(write=lambda g, W: W[:, :1]), "RANK", {"got": "1"}),
        "values of W_V2 W_O1": (
            spaces(singular_values=lambda g, s: torch.linalg.svdvals(g.W_V2 @ g.W_O1)), "HIDDEN_BASIS", {}),
        "values of W_OV2": (
            spaces(singular_values=lambda g, s: torch.linalg.svdvals(g.W_O2 @ g.W_V2)[: g.d_head]), "VALUE", {}),
        "squares": (spaces(singular_values=lambda g, s: s**2), "VALUE", {"name": "singular_values"}),
        "one left out": (spaces(singular_values=lambda g, s: s[:-1]), "VALUE", {}),
    },
}  # fmt: skip
