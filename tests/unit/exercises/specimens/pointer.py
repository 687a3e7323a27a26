"""Answers to 2e and 2f as data, 2f on the reference's 2e."""

from __future__ import annotations

from typing import Any

import torch

from headway.exercises.givens import Given
from headway.exercises.predicates.attention import pairs, turns
from headway.exercises.proof import States
from headway.exercises.references import reference
from headway.exercises.scoring import Head
from unit.exercises.specimens.attention import UNGRADED, qk, sin_cos_exchanged


def marked_states(given: Any, marks: Any, head: Head):
    """All states (token t, pointer p) of 2f as the general proof wants them; p can stand only from position p on."""
    labels = torch.cartesian_prod(torch.arange(given.n_tokens), torch.arange(given.n))
    at = labels[None, :, 1] <= torch.arange(given.n)[:, None]
    x = given.positions[:, None] + given.tokens[labels[:, 0]] + marks[labels[:, 1]]
    return States(x @ head.W_Q.T, x @ head.W_K.T, labels, at)


def after_pointer():
    """2f as a rule: a query whose second label is p attends to p + 1, whatever keys hold. p = i is no pointer: left out."""

    def rule(states: Any, i: int):
        count = states.at.shape[1]
        pointer = states.labels[:, 1]
        keys = torch.arange(i + 1)
        target = ((pointer[:, None] + 1 == keys) & (pointer[:, None] < i))[:, :, None].expand(-1, -1, count)
        return target, ~target

    return rule


def ov(W_V: Any, W_O: Any):
    return {"W_V": W_V, "W_O": W_O}


def everything(g: Given):
    return pairs(g, 0, 1, 2, 3)


def invertible(seed: int):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(8, 8, generator=random, dtype=torch.float64) + 2 * torch.eye(8, dtype=torch.float64)


def rest(g: Given, count: int):
    return g.space.write("rest")[:, :count]


RIGHT = {
    "2e": {
        "published": lambda g: reference("2e", g),
        "an invertible map": lambda g: ov(invertible(3) @ everything(g), g.v_write),
        "the map on the other side": lambda g: ov(everything(g), g.v_write @ invertible(4)),
        "already turned forward": lambda g: ov(turns(g, 1.0, 0, 1, 2, 3) @ everything(g), g.v_write),
        "pairs in another order": lambda g: ov(pairs(g, 3, 1, 0, 2), g.v_write),
        "ten times as large": lambda g: ov(10 * everything(g), g.v_write),
        "negated": lambda g: ov(-everything(g), g.v_write),
        "reads v as well, which is empty": lambda g: ov(everything(g) + g.v, g.v_write),
    },
    "2f": {
        "published": lambda g: reference("2f", g),
        "rotation on the key": lambda g: qk(g.v[:4], turns(g, -1.0, 0, 1) @ pairs(g, 0, 1)),
        "half on each": lambda g: qk(turns(g, 0.5, 0, 1) @ g.v[:4], turns(g, -0.5, 0, 1) @ pairs(g, 0, 1)),
        "four pairs": lambda g: qk(turns(g, 1.0, 0, 1, 2, 3) @ g.v, everything(g)),
        "one pair": lambda g: qk(turns(g, 1.0, 0) @ g.v[:2], pairs(g, 0)),
        "pairs 0 and 2": lambda g: qk(turns(g, 1.0, 0, 2) @ g.v[[0, 1, 4, 5]], pairs(g, 0, 2)),
        "small": lambda g: qk(1e-3 * turns(g, 1.0, 0, 1) @ g.v[:4], pairs(g, 0, 1)),
        "small content term": lambda g: qk(turns(g, 1.0, 0, 1) @ g.v[:4], pairs(g, 0, 1) + 0.02 * g.u_content),
    },
}


def forward(g: Given, steps: float = 1):
    return turns(g, float(steps), 0, 1) @ g.v[:4]


WRONG = {
    "2e": {
        "reads content too": (
            lambda g: ov(everything(g) + torch.cat((g.u_content, g.u_content)), g.v_write),
            "EXTRA_READ",
            {"reads": "content"},
        ),
        "four of eight": (lambda g: ov(pairs(g, 0, 1), g.v_write[:, :4]), "WRONG_READ", {"rank": 4, "wanted": 8}),
        "one pair twice": (lambda g: ov(pairs(g, 0, 1, 2, 0), g.v_write), "WRONG_READ", {"rank": 6}),
        "onto position": (
            lambda g: ov(everything(g), g.space.write("position")),
            "OVERLAP",
            {"with": "position"},
        ),
        "onto content": (lambda g: ov(everything(g), g.space.write("content")[:, :8]), "OVERLAP", {"with": "content"}),
        "outside v": (
            lambda g: ov(everything(g), g.v_write + torch.cat((rest(g, 4), rest(g, 4)), dim=1)),
            "WRONG_WRITE",
            {},
        ),
        "written with reading rows": (lambda g: ov(everything(g), g.v.T), "WRONG_WRITE", {"repair": "V_WRITE"}),
        "reads content alone": (
            lambda g: ov(torch.cat((g.u_content, g.u_content)), g.v_write),
            "WRONG_READ",
            {"reads": "content"},
        ),
        "reads v, writes position": (lambda g: ov(g.v, g.space.write("position")), "WRONG_READ", {"reads": "v"}),
        "zeros": (lambda g: ov(torch.zeros(8, g.d_model), torch.zeros(g.d_model, 8)), "ZERO", {}),
        "transposed": (lambda g: ov(everything(g).T, g.v_write), "SHAPE", {"transposed": True}),
        "infinite": (lambda g: ov(everything(g) / 0, g.v_write), "NONFINITE", {"name": "W_V"}),
        "unchanged stub": (lambda g: ov(None, None), "UNCHANGED", {}),
    },
    "2f": {
        "not rotated": (lambda g: qk(forward(g, 0), pairs(g, 0, 1)), "OFFSET", {"offset": 0, "repair": "TURN_FORWARD"}),
        "rotated back": (lambda g: qk(forward(g, -1), pairs(g, 0, 1)), "SIGN", {"offset": -1}),
        "rotated twice": (lambda g: qk(forward(g, 2), pairs(g, 0, 1)), "OFFSET", {"offset": 2, "repair": "TURN_BACK"}),
        "reads its own position": (
            lambda g: qk(turns(g, 1.0, 0, 1) @ pairs(g, 0, 1), pairs(g, 0, 1)),
            "WRONG_READ",
            {"reads": "its own position"},
        ),
        "negated": (lambda g: qk(-forward(g), pairs(g, 0, 1)), "SIGN", {"repair": "NEGATE"}),
        "a content head": (lambda g: qk(g.u_content, g.u_content), "WRONG_READ", {"reads": "no pointer"}),
        "key reads content": (lambda g: qk(forward(g), pairs(g, 0, 1) + g.u_content), "CONTENT_LEAK", {"side": "key"}),
        "key reads v": (lambda g: qk(forward(g), pairs(g, 0, 1) + g.v[:4]), "EXTRA_READ", {"reads": "v"}),
        "query reads position": (
            lambda g: qk(forward(g) + pairs(g, 0, 1), pairs(g, 0, 1)),
            "POSITION_LEAK",
            {"side": "query"},
        ),
        "a pair with an alias": (lambda g: qk(turns(g, 1.0, 1) @ g.v[2:4], pairs(g, 1)), "ALIAS", {}),
        "sine and cosine exchanged": (
            lambda g: qk(sin_cos_exchanged(forward(g)), pairs(g, 0, 1)),
            "WRONG_READ",
            {"reads": "where a pair stands, not how far apart it is"},
        ),
        "zeros": (lambda g: qk(torch.zeros(4, g.d_model), torch.zeros(4, g.d_model)), "ZERO", {}),
    }
    | UNGRADED,
}
