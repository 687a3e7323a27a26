"""Answers to the rotary twins of 2b and 2c as data."""

from __future__ import annotations

from typing import Any

import torch

from headway.exercises.givens import Given
from headway.exercises.predicates.rotary import constant_rows
from headway.exercises.references import reference
from unit.exercises.specimens.attention import UNGRADED, qk


def stepped(g: Given, steps: float, weights: Any = (1.0, 1.0, 1.0, 1.0)):
    """Rows that give every token the query of a constant key turned by `steps`, each pair with its weight."""
    vector = torch.stack(((steps * g.theta).cos(), (steps * g.theta).sin()), dim=1)
    return torch.outer((torch.tensor(weights, dtype=torch.float64)[:, None] * vector).flatten(), g.one)


def other_vector(g: Given):
    return torch.outer(torch.arange(1.0, 9.0, dtype=torch.float64), g.one)


def turned_rows(g: Given, W: Any, steps: float):
    cos, sin = (steps * g.theta).cos()[:, None], (steps * g.theta).sin()[:, None]
    return torch.stack((W[0::2] * cos - W[1::2] * sin, W[0::2] * sin + W[1::2] * cos), dim=1).flatten(0, 1)


def eight(g: Given, rows: Any):
    """Content rows, repeated to fill the head."""
    return torch.cat((rows, rows))


def _right(back: int):
    return {
        "published": lambda g: reference(f"2{'bc'[back]}-rotary", g),
        "turned on the key": lambda g: qk(constant_rows(g), stepped(g, back)),
        "half on each": lambda g: qk(stepped(g, -back / 2), stepped(g, back / 2)),
        "another constant vector": lambda g: qk(turned_rows(g, other_vector(g), -back), other_vector(g)),
        "the fast pairs alone": lambda g: qk(stepped(g, -back, (1, 1, 0, 0)), constant_rows(g)),
        "one pair without alias": lambda g: qk(stepped(g, -back, (1, 0, 0, 0)), constant_rows(g)),
        "weights of its own": lambda g: qk(stepped(g, -back, (1, 2, 0.5, 0.5)), constant_rows(g)),
        "small content term": lambda g: qk(stepped(g, -back), constant_rows(g) + 0.02 * eight(g, g.u_content)),
        "large": lambda g: qk(1e3 * stepped(g, -back), constant_rows(g)),
    }


def _wrong(back: int):
    return {
        "two back": (lambda g: qk(stepped(g, -2), constant_rows(g)), "OFFSET", {"offset": 2}),
        "negated": (lambda g: qk(-stepped(g, -back), constant_rows(g)), "SIGN", {"repair": "NEGATE"}),
        "a pair with an alias": (
            lambda g: qk(stepped(g, -back, (0, 1, 0, 0)), constant_rows(g)),
            "ALIAS",
            {"offset": 16 + back},
        ),
        "reads content too": (
            lambda g: qk(stepped(g, -back), constant_rows(g) + 4 * eight(g, g.u_content)),
            "CONTENT_LEAK",
            {},
        ),
        "zeros": (lambda g: qk(torch.zeros(8, g.d_model), torch.zeros(8, g.d_model)), "ZERO", {}),
        "NaN": (lambda g: qk(constant_rows(g) * torch.nan, constant_rows(g)), "NONFINITE", {"name": "W_Q"}),
        "too narrow": (lambda g: qk(stepped(g, -back)[:4], constant_rows(g)[:4]), "SHAPE", {"axis": "d_head"}),
    } | {name: case for name, case in UNGRADED.items() if name not in {"transposed", "NaN"}}


RIGHT = {"2b-rotary": _right(0), "2c-rotary": _right(1)}
WRONG = {"2b-rotary": _wrong(0), "2c-rotary": _wrong(1)}
WRONG["2b-rotary"]["previous token"] = (
    lambda g: qk(stepped(g, -1), constant_rows(g)),
    "OFFSET",
    {"offset": 1, "repair": "TURN_FORWARD"},
)
WRONG["2c-rotary"]["not turned"] = (
    lambda g: qk(constant_rows(g), constant_rows(g)),
    "OFFSET",
    {"offset": 0, "repair": "TURN_BACK"},
)
WRONG["2c-rotary"]["turned forward"] = (
    lambda g: qk(stepped(g, 1), constant_rows(g)),
    "SIGN",
    {"offset": 0, "repair": "SWAP"},
)
WRONG["2c-rotary"]["a content head"] = (
    lambda g: qk(eight(g, g.u_content), eight(g, g.u_content)),
    "WRONG_READ",
    {"reads": "content"},
)
# Contents have one length, so q_i . R_D k_j is largest where k_j turned is q_i itself: at offset 0, by Cauchy-Schwarz.
RIGHT["2b-rotary"]["contents of one length"] = lambda g: qk(eight(g, g.u_content), eight(g, g.u_content))
