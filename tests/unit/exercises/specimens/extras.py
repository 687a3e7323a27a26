"""Answers to the extras as data: sequences that defeat a solution or do not, and designs of frequencies."""

from __future__ import annotations

import math
from typing import Any

import torch

from headway.exercises.references import reference


def published(g: Any):
    return reference(g.id, g)


def text(*tokens: Any):
    return lambda g: {"tokens": list(tokens)}


def alpha(*angles: Any):
    return lambda g: {"alpha": [*angles, *[1.0] * (g.axis("k") - len(angles))]}


def periods(*lengths: Any):
    return lambda g: {"alpha": [2 * math.pi / length for length in lengths]}


def design(change: Any):
    return lambda g: {"alpha": change(published(g)["alpha"])}


RIGHT = {
    "defeat-3": {
        "published": published,
        "another token": text(3, 1, 3),
        "longer": text(2, 1, 4, 5, 3, 2),
        "as floats": text(0.0, 1.0, 0.0),
        "a tensor": lambda g: {"tokens": torch.tensor([5, 0, 5])},
        "the token twice at the start": text(0, 0),
    },
    "defeat-2d": {
        "published": published,
        "a tensor": lambda g: {"tokens": torch.tensor(published(g)["tokens"])},
        "other fillers": lambda g: {"tokens": [t and 1 for t in published(g)["tokens"]]},
        "another token": lambda g: {"tokens": [(t + 1) % g.n_tokens for t in published(g)["tokens"]]},
        "as floats": lambda g: {"tokens": [float(t) for t in published(g)["tokens"]]},
        "in reverse numbering": lambda g: {"tokens": [g.n_tokens - 1 - t for t in published(g)["tokens"]]},
    },
    "frequencies": {
        "published": published,
        "pairs in another order": design(lambda a: a.flip(0)),
        "turned the other way": design(lambda a: -a),
        "whole turns added": design(lambda a: a + 2 * math.pi),
        "lists": design(lambda a: a.tolist()),
        "numpy": design(lambda a: a.numpy()),
    },
}

WRONG = {
    "defeat-3": {
        "a token that is not the first": (text(0, 1, 2, 1), "NOT_DEFEATED", {}),
        "three times": (text(0, 1, 0, 2, 0), "NOT_DEFEATED", {}),
        "no earlier copy": (text(0, 1, 2), "NO_TARGET", {}),
        "one token": (text(3), "NO_TARGET", {}),
        "outside the vocabulary": (text(0, 1, 99), "TOKENS", {}),
        "negative": (text(-1, 1, -1), "TOKENS", {}),
        "halves": (text(0.5, 1, 0.5), "TOKENS", {}),
        "too long": (text(*[0] * 60), "TOKENS", {}),
        "a text": (lambda g: {"tokens": "aba"}, "NOTNUMBERS", {}),
    },
    "defeat-2d": {
        "one copy": (text(0, 1, 0), "NOT_DEFEATED", {}),
        "one copy later": (text(1, 2, 0, 3, 0), "NOT_DEFEATED", {}),
        "copies side by side": (text(1, 0, 0, 2, 0), "NOT_DEFEATED", {}),
        "no copy": (text(0, 1, 2), "NO_TARGET", {}),
        "one token": (text(0), "NO_TARGET", {}),
        "outside the vocabulary": (text(0, 99, 0), "TOKENS", {}),
        "too long": (text(*[0] * 60), "TOKENS", {}),
        "not a number": (text(float("nan"), 0), "NONFINITE", {}),
    },
    "frequencies": {
        "as published for exercise 2": (alpha(1.0, 0.316), "ALIAS", {}),
        "both slow": (lambda g: {"alpha": [0.01 / (f + 1) for f in range(g.axis("k"))]}, "ALIAS", {"slow": 1}),
        "one pair used twice": (lambda g: {"alpha": [2 * math.pi / g.n] * g.axis("k")}, "ALIAS", {}),
        "standing still": (lambda g: {"alpha": [0.0] * g.axis("k")}, "TIE", {}),
        "whole turns": (lambda g: {"alpha": [2 * math.pi] * g.axis("k")}, "TIE", {}),
        "the same short period": (lambda g: {"alpha": [math.pi / 2] * g.axis("k")}, "TIE", {"offset": 4}),
        "periods with a common factor": (lambda g: {"alpha": [1.5 * math.pi] * g.axis("k")}, "TIE", {"offset": 4}),
        "one too few": (lambda g: {"alpha": [1.0] * (g.axis("k") - 1)}, "SHAPE", {}),
        "one too many": (lambda g: {"alpha": [1.0] * (g.axis("k") + 1)}, "SHAPE", {}),
    },
}  # fmt: skip
