"""Answers to 2a-2d as data: right ones, published and unusual, and wrong ones with the reason they must be given."""

from __future__ import annotations

from typing import Any

import torch

from headway.exercises.givens import Given, longer
from headway.exercises.predicates.attention import pairs, turns
from headway.exercises.references import reference

M4 = torch.tensor([[2.0, 1, 0, 0], [0, 1, -1, 0], [1, 0, 1, 3], [0, 0, 1, -1]], dtype=torch.float64)
SINE = torch.tensor([[0.3, 0.0], [0.0, -0.3]], dtype=torch.float64)  # no part of a rotation
WEIGHTS = torch.tensor([1.0, 1.1, 0.9, 1.05], dtype=torch.float64)


def qk(W_Q: Any, W_K: Any):
    return {"W_Q": W_Q, "W_K": W_K}


def constant_row(g: Given):
    """Reads 1 from every token of the long vocabulary: as a key's only other part, a constant of each query's row."""
    read = g.space.read("content")
    contents = (longer(g) or g).tokens @ read.T
    return torch.linalg.lstsq(contents, torch.ones(len(contents), 1, dtype=torch.float64)).solution.T @ read


def turned(g: Given, steps: float, *chosen: int):
    return turns(g, float(steps), *chosen) @ pairs(g, *chosen)


def with_row(rows: Any, row: Any):
    return torch.cat((rows, row.reshape(1, -1)))


def weighted(g: Given, first: Any, second: Any):
    """Square roots of the weights of pairs 0 and 1, as a diagonal."""
    return torch.tensor([first, first, second, second], dtype=torch.float64).sqrt()[:, None]


def penalised(g: Given, beta: Any, *, on_key: Any = False, per_pair: Any = (1.0, 1.0), step: Any = 0.0):
    rows = pairs(g, 0, 1)
    scale = torch.tensor([per_pair[0]] * 2 + [per_pair[1]] * 2, dtype=torch.float64)[:, None] * -beta
    query, key = (rows, scale * rows) if on_key else (scale * rows, rows)
    return qk(torch.cat((g.u_content, turns(g, float(step), 0, 1) @ query)), torch.cat((g.u_content, key)))


def window(g: Given):
    """(1 - rho) / R, the largest penalty of the plain form: rho from the tokens, R over offsets from 1 on."""
    c = g.tokens @ g.u_content.T
    rho = (c @ c.T - 2 * torch.eye(len(c), dtype=torch.float64)).max()
    offsets = torch.arange(1, g.n, dtype=torch.float64)[:, None]
    kernel = (g.amplitude[:2].square() * (offsets * g.alpha[:2]).cos()).sum(1)
    return float((1 - rho) / (kernel.max() - kernel.min()))


def swapped_angles(g: Given):
    rows = pairs(g, 0, 1)
    blocks = turns(g, -1.0, 1, 0)  # pair 0 turned by alpha_1, pair 1 by alpha_0
    return qk(blocks @ rows, rows)


RIGHT = {
    "2a": {
        "published": lambda g: reference("2a", g),
        "another basis": lambda g: qk(M4 @ g.u_content, torch.linalg.inv(M4).T @ g.u_content),
        "positive weights": lambda g: qk(WEIGHTS[:, None] * g.u_content, g.u_content),
        "small position term": lambda g: qk(g.u_content, g.u_content + 0.03 * pairs(g, 0, 1)),
        "large": lambda g: qk(1e3 * g.u_content, g.u_content),
        "both sides negated": lambda g: qk(-g.u_content, -g.u_content),
        "components in another order": lambda g: qk(g.u_content.flip(0), g.u_content.flip(0)),
    },
    "2b": {
        "published": lambda g: reference("2b", g),
        "another basis": lambda g: qk(M4 @ pairs(g, 0, 1), torch.linalg.inv(M4).T @ pairs(g, 0, 1)),
        "one pair without alias": lambda g: qk(pairs(g, 0), pairs(g, 0)),
        "pairs 0 and 2": lambda g: qk(pairs(g, 0, 2), pairs(g, 0, 2)),
        "the slow pairs": lambda g: qk(pairs(g, 2, 3), pairs(g, 2, 3)),
        "re-weighted": lambda g: qk(3 * pairs(g, 0, 1), pairs(g, 0, 1)),
        "a constant added to each row": lambda g: qk(
            with_row(pairs(g, 0), 5 * g.u_content[0]), with_row(pairs(g, 0), constant_row(g))
        ),
        "aimed a little ahead, which the mask hides": lambda g: qk(turned(g, 0.3, 0, 1), pairs(g, 0, 1)),
        "small": lambda g: qk(1e-3 * pairs(g, 0, 1), pairs(g, 0, 1)),
    },
    "2c": {
        "rotation on the query": lambda g: reference("2c", g),
        "rotation on the key": lambda g: qk(pairs(g, 0, 1), turned(g, 1, 0, 1)),
        "half on each": lambda g: qk(turned(g, -0.5, 0, 1), turned(g, 0.5, 0, 1)),
        "one pair": lambda g: qk(turned(g, -1, 0), pairs(g, 0)),
        "pairs 0 and 2": lambda g: qk(turned(g, -1, 0, 2), pairs(g, 0, 2)),
        "weights 3:1": lambda g: qk(weighted(g, 3, 1) * turned(g, -1, 0, 1), weighted(g, 3, 1) * pairs(g, 0, 1)),
        "very small": lambda g: qk(1e-3 * turned(g, -1, 0, 1), pairs(g, 0, 1)),
        "very large": lambda g: qk(1e3 * turned(g, -1, 0, 1), pairs(g, 0, 1)),
        "small content term": lambda g: qk(turned(g, -1, 0, 1), pairs(g, 0, 1) + 0.02 * g.u_content),
    },
    "2d": {
        "published": lambda g: reference("2d", g),
        "penalty on the key": lambda g: penalised(g, 0.5 * window(g), on_key=True),
        "small penalty": lambda g: penalised(g, 0.05 * window(g)),
        "penalty at the window's end": lambda g: penalised(g, 0.99 * window(g)),
        "a penalty of its own for each pair": lambda g: penalised(g, 0.4 * window(g), per_pair=(1.2, 0.7)),
        "penalty on one pair": lambda g: penalised(g, 0.4 * window(g), per_pair=(1.0, 0.0)),
        "penalty turned by a tenth of a step": lambda g: penalised(g, 0.5 * window(g), step=0.1),
        "large": lambda g: {"W_Q": 1e3 * reference("2d", g)["W_Q"], "W_K": reference("2d", g)["W_K"]},
    },
}


def flipped_component(g: Given):
    signs = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    return qk(signs[:, None] * g.u_content, g.u_content)


def rotated_query(g: Given):
    order = torch.tensor([1, 2, 3, 0])
    return qk(g.u_content[order], g.u_content)


def other_content(g: Given):
    """Rows that read content outside the four components, where lengths are not equal."""
    read = g.space.read("content")
    components = g.u_content @ g.space.write("content")
    return torch.linalg.svd(components)[2][4:8] @ read


def sin_cos_exchanged(rows: Any):
    return rows[torch.tensor([1, 0, 3, 2])]


ZEROS = {
    "2a": lambda g: qk(torch.zeros(4, g.d_model), torch.zeros(4, g.d_model)),
    "2d": lambda g: qk(torch.zeros(8, g.d_model), g.u_content[[0] * 8]),
}
UNGRADED = {  # wrong in form, the same for each of these exercises
    "transposed": (lambda g: qk(g.u_content.T, g.u_content), "SHAPE", {"transposed": True}),
    "NaN": (lambda g: qk(g.u_content * torch.nan, g.u_content), "NONFINITE", {"name": "W_Q"}),
    "text": (lambda g: qk("none yet", g.u_content), "NOTNUMBERS", {"name": "W_Q"}),
    "one missing": (lambda g: {"W_Q": g.u_content}, "MISSING", {"names": "W_K"}),
    "unchanged stub": (lambda g: qk(None, None), "UNCHANGED", {}),
}

WRONG = {
    "2a": {
        "one component negated": (flipped_component, "SIGN", {"pc": 1, "repair": "FLIP_PC"}),
        "negated": (lambda g: qk(-g.u_content, g.u_content), "SIGN", {"repair": "NEGATE"}),
        "query rotated alone": (rotated_query, "WRONG_READ", {"repair": "SAME_ROWS"}),
        "two components": (lambda g: qk(g.u_content[:2], g.u_content[:2]), "NORM", {"dims": 2}),
        "rank one": (lambda g: qk(g.u_content[:1], g.u_content[:1]), "NORM", {"dims": 1}),
        "one component far too heavy": (
            lambda g: qk(torch.tensor([[30.0], [1], [1], [1]]).double() * g.u_content, g.u_content),
            "NORM",
            {},
        ),
        "a position head": (lambda g: qk(pairs(g, 0, 1), pairs(g, 0, 1)), "WRONG_READ", {"reads": "position"}),
        "the key reads position too": (
            lambda g: qk(g.u_content, g.u_content + pairs(g, 0, 1)),
            "POSITION_LEAK",
            {"repair": "DROP_POSITION"},
        ),
        "position in the same rows": (
            lambda g: qk(g.u_content + pairs(g, 0, 1), g.u_content + pairs(g, 0, 1)),
            "CROSS_TERMS",
            {},
        ),
        "directions of content that are no components": (
            lambda g: qk(other_content(g), other_content(g)),
            "WRONG_READ",
            {"reads": "directions of content other than u_content"},
        ),
        "zeros": (ZEROS["2a"], "ZERO", {}),
    },
    "2b": {
        "previous token": (
            lambda g: qk(turned(g, -1, 0, 1), pairs(g, 0, 1)),
            "OFFSET",
            {"offset": 1, "repair": "TURN_FORWARD"},
        ),
        "two back": (lambda g: qk(turned(g, -2, 0, 1), pairs(g, 0, 1)), "OFFSET", {"offset": 2}),
        "a content head": (lambda g: qk(g.u_content, g.u_content), "WRONG_READ", {"reads": "content"}),
        "content in the same rows": (
            lambda g: qk(g.u_content + pairs(g, 0, 1), g.u_content + pairs(g, 0, 1)),
            "CROSS_TERMS",
            {},
        ),
        "sine and cosine exchanged on one side": (
            lambda g: qk(sin_cos_exchanged(pairs(g, 0, 1)), pairs(g, 0, 1)),
            "WRONG_READ",
            {"repair": "SWAP_SIN_COS"},
        ),
        "negated": (lambda g: qk(-pairs(g, 0, 1), pairs(g, 0, 1)), "SIGN", {"repair": "NEGATE"}),
        "a pair with an alias": (lambda g: qk(pairs(g, 1), pairs(g, 1)), "ALIAS", {"offset": 16, "works_to": 16}),
        "content in rows of its own": (
            lambda g: qk(torch.cat((pairs(g, 0), g.u_content[:2])), torch.cat((pairs(g, 0), g.u_content[:2]))),
            "CONTENT_LEAK",
            {"repair": "DROP_CONTENT"},
        ),
        "zeros": (ZEROS["2a"], "ZERO", {}),
    },
    "2c": {
        "not rotated": (lambda g: qk(pairs(g, 0, 1), pairs(g, 0, 1)), "OFFSET", {"offset": 0, "repair": "TURN_BACK"}),
        "rotated forward": (lambda g: qk(turned(g, 1, 0, 1), pairs(g, 0, 1)), "SIGN", {"offset": 0, "repair": "SWAP"}),
        "rotated twice": (lambda g: qk(turned(g, -2, 0, 1), pairs(g, 0, 1)), "OFFSET", {"offset": 2}),
        "angles exchanged between pairs": (swapped_angles, "ALIAS", {"offset": 19}),
        "negated": (lambda g: qk(-turned(g, -1, 0, 1), pairs(g, 0, 1)), "SIGN", {"repair": "NEGATE"}),
        "key reads content": (
            lambda g: qk(turned(g, -1, 0, 1), pairs(g, 0, 1) + g.u_content),
            "CONTENT_LEAK",
            {"repair": "DROP_CONTENT"},
        ),
        "a pair with an alias": (lambda g: qk(turned(g, -1, 1), pairs(g, 1)), "ALIAS", {"offset": 17}),
        "a sine added to one side": (
            lambda g: qk(torch.cat((turned(g, -1, 0), pairs(g, 0))), torch.cat((pairs(g, 0), SINE @ pairs(g, 0)))),
            "WRONG_READ",
            {"reads": "where a pair stands besides how far apart it is"},
        ),
        "sine and cosine exchanged before turning": (
            lambda g: qk(turns(g, -1.0, 0, 1) @ sin_cos_exchanged(pairs(g, 0, 1)), pairs(g, 0, 1)),
            "WRONG_READ",
            {"repair": "SWAP_SIN_COS"},
        ),
        "sine and cosine exchanged after turning": (
            lambda g: qk(sin_cos_exchanged(turned(g, -1, 0, 1)), pairs(g, 0, 1)),
            "WRONG_READ",
            {"repair": "SWAP_SIN_COS"},
        ),
        "a content head": (lambda g: qk(g.u_content, g.u_content), "WRONG_READ", {"reads": "content"}),
        "zeros": (ZEROS["2a"], "ZERO", {}),
    },
    "2d": {
        "no penalty": (lambda g: penalised(g, 0.0), "TIE", {}),
        "penalty of 1": (lambda g: penalised(g, 1.0), "BETA_HIGH", {}),
        "penalty just above the window": (lambda g: penalised(g, 1.02 * window(g)), "BETA_HIGH", {}),
        "penalty too small to count": (lambda g: penalised(g, 1e-8), "BETA_LOW", {}),
        "penalty added": (lambda g: penalised(g, -0.5 * window(g)), "SIGN", {"repair": "NEGATE_PENALTY"}),
        "added in the same rows": (
            lambda g: qk(g.u_content - 0.5 * window(g) * pairs(g, 0, 1), g.u_content + pairs(g, 0, 1)),
            "CROSS_TERMS",
            {},
        ),
        "position alone": (lambda g: qk(-pairs(g, 0, 1), pairs(g, 0, 1)), "WRONG_READ", {"reads": "position"}),
        "negated": (
            lambda g: {"W_Q": -reference("2d", g)["W_Q"], "W_K": reference("2d", g)["W_K"]},
            "SIGN",
            {"repair": "NEGATE"},
        ),
        "zeros": (ZEROS["2d"], "ZERO", {}),
    },
}
for _id in WRONG:
    WRONG[_id] |= UNGRADED
