"""Break the published solutions: sequences on which they fail, with their heads as hard as can be.

3     position 0 attends to itself, so its v is its own content, and a query equal to token 0 shares its attention between
      position 0 and what came after its copies (exercises.md C4)
2d-f  attention shared among several copies writes the average of their positions, and the pointer may come to stand
      on the token after none of them (C9)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.exercises.after_head import AfterPrevious
from headway.exercises.givens import Given, as_part, given
from headway.exercises.predicates import attention, induction, pointer, writing
from headway.exercises.scoring import Head, sharpened
from headway.exercises.verdict import Counterexample, Verdict, failed, passed

Answer = Mapping[str, Tensor]
Earlier = Mapping[str, Mapping[str, Any]]
_EVEN = 1e-9  # of the largest score: scores so near the largest share its attention
_BASE = {"defeat-3": "3", "defeat-2d": "2f"}


def defeat(here: Given, answer: Answer, _: Earlier) -> Verdict:
    """The last position of the sequence puts at most half of its attention where it should."""
    tokens, problem = _sequence(here, answer["tokens"])
    if problem is not None:
        return problem
    target, row = (_after_copies if here.id == "defeat-3" else _after_average)(here, tokens)
    if not target:
        return failed(here.id, "NO_TARGET", {"token": tokens[-1]})
    top = (row >= row.max() - _EVEN * float(row.abs().max())).double()
    share = float(top[list(target)].sum() / top.sum())
    weights, by = sharpened(row)
    shown = Counterexample(tuple(tokens), len(tokens) - 1, target, tuple(weights.tolist()), by)
    if share > 0.5:
        return failed(here.id, "NOT_DEFEATED", {"share": share}, counterexample=shown)
    return passed(here.id, counterexample=shown)


def _sequence(here: Given, tokens: Tensor) -> tuple[list[int], Verdict | None]:
    ids = [int(t) for t in tokens.tolist()]
    whole = bool((tokens == tokens.round()).all())
    if not whole or len(ids) > here.n or min(ids) < 0 or max(ids) >= here.n_tokens:
        listed = ", ".join(f"{t:g}" for t in tokens[:8].tolist()) + (
            f", ... ({len(ids)} of them)" if len(ids) > 8 else ""
        )
        facts = {"last": here.n_tokens - 1, "most": here.n, "got": listed}
        return [], failed(here.id, "TOKENS", facts)
    return ids, None


def _after_copies(here: Given, tokens: list[int]) -> tuple[tuple[int, ...], Float[Tensor, "key_pos"]]:
    """Targets and scores of exercise 3's second head at the last position."""
    part, base = here.solution, given("3", hidden=here.hidden, seed=here.seed)
    own = AfterPrevious(base, part["W_O1"] @ part["W_V1"])
    target = tuple(j for j in range(1, len(tokens)) if tokens[j - 1] == tokens[-1])
    return target, own.scores(Head(part["W_Q2"], part["W_K2"]), tokens)


def _after_average(here: Given, tokens: list[int]) -> tuple[tuple[int, ...], Float[Tensor, "key_pos"]]:
    """Targets and scores of 2f's head where 2d's attention is shared equally among all earlier copies."""
    part, i = here.solution, len(tokens) - 1
    copies = [p for p in range(i) if tokens[p] == tokens[i]]
    if not copies:
        return (), torch.zeros(i + 1, dtype=torch.float64)
    W_OV = part["W_O"] @ part["W_V"]
    query = here.tokens[tokens[i]] + here.positions[i] + (here.positions[copies] @ W_OV.T).mean(0)
    keys = here.tokens[tokens] + here.positions[: i + 1]
    return tuple(p + 1 for p in copies), (keys @ part["W_K2"].T) @ (part["W_Q2"] @ query)


def defeat_given(id: str, *, hidden: bool, seed: int) -> Given:
    """The data of exercise 3 or 2f, with the published matrices in `solution`."""
    base = given(_BASE[id], hidden=hidden, seed=seed)
    if id == "defeat-3":
        solution = induction.REFERENCES["3"](base)
    else:
        match = attention.REFERENCES["2d"](as_part(base, "2d"))
        after = {f"{name}2": matrix for name, matrix in pointer.REFERENCES["2f"](base).items()}
        solution = match | writing.REFERENCES["2e"](as_part(base, "2e")) | after
    return replace(base, id=id, extra={"solution": solution})


def _copy_at_zero(_: Given) -> dict[str, list[int]]:
    return {"tokens": [0, 1, 0]}


def _two_copies(here: Given) -> dict[str, list[int]]:
    """The first two copies, by position, between which the pointer lands on neither."""
    for i in range(3, here.n):
        for p in range(i):
            for r in range(p + 1, i):
                tokens = [1 + m % (here.n_tokens - 1) for m in range(i + 1)]
                tokens[p] = tokens[r] = tokens[i] = 0
                target, row = _after_average(here, tokens)
                if int(row.argmax()) not in target:
                    return {"tokens": tokens}
    return {"tokens": [0]}


PREDICATES = dict.fromkeys(_BASE, defeat)
REFERENCES: dict[str, Callable[[Given], dict[str, list[int]]]] = {"defeat-3": _copy_at_zero, "defeat-2d": _two_copies}
GIVENS = {id: partial(defeat_given, id) for id in _BASE}
