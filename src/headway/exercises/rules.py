"""Which keys a head must attend to, as rules for `proof.prove`: targets and rivals of every query."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.exercises.proof import Rule, States


def same_token() -> Rule:
    """2a: every copy of the query's token, itself included, beats every other token."""

    def rule(states: States, i: int) -> tuple[Tensor, Tensor]:
        same = _same(states)[:, None, :].expand(-1, i + 1, -1)
        return same, ~same

    return rule


def offset(back: int) -> Rule:
    """2b, 2c: the key `back` positions before beats every other, whatever the tokens. Queries before that are left out."""

    def rule(states: States, i: int) -> tuple[Tensor, Tensor]:
        count = states.at.shape[1]
        target = torch.zeros(count, i + 1, count, dtype=torch.bool)
        if i >= back:
            target[:, i - back, :] = True
        return target, ~target

    return rule


def earlier_copy() -> Rule:
    """2d: every earlier copy beats the query itself and every other token. Queries without a copy are left out."""

    def rule(states: States, i: int) -> tuple[Tensor, Tensor]:
        target = _same(states)[:, None, :].expand(-1, i + 1, -1).clone()
        target[:, i, :] = False
        return target, ~target

    return rule


def _same(states: States) -> Tensor:
    return states.labels[:, None, 0] == states.labels[None, :, 0]
