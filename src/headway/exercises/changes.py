"""Single changes to a head: what it is without one of its parts, and the slips that are one change away from right."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from headway.exercises.givens import Given
from headway.exercises.scoring import Head
from headway.sources.handmade.parts import rotation
from headway.sources.handmade.subspaces import Space

Change = Callable[[Given, Head], Head]


def projector(space: Space, *names: str) -> Float[Tensor, "d_model d_model"]:
    """What keeps these subspaces of a stream and removes the others, along the (oblique) bases."""
    return torch.stack([space.write(name) @ space.read(name) for name in names]).sum(0)


def only(given: Given, head: Head, *names: str) -> Head:
    """The head when both sides read only these subspaces, terms between them included."""
    keep = projector(given.space, *names)
    return Head(head.W_Q @ keep, head.W_K @ keep)


def unmixed(given: Given, head: Head, penalty: float = 1.0) -> Head:
    """The head without terms content x position, its position term multiplied by `penalty` (d_head doubles)."""
    content, position = only(given, head, "content"), only(given, head, "position")
    return Head(torch.cat((content.W_Q, penalty * position.W_Q)), torch.cat((content.W_K, position.W_K)))


def scaled_position(given: Given, head: Head, factor: float) -> Head:
    """The head with its position x position term multiplied by `factor`, all other terms as they are."""
    position = only(given, head, "position")
    W_Q = torch.cat((head.W_Q, (factor - 1) * position.W_Q))
    return Head(W_Q, torch.cat((head.W_K, position.W_K)))


def negated(_: Given, head: Head) -> Head:
    """W_QK with the other sign."""
    return Head(-head.W_Q, head.W_K)


def swapped(_: Given, head: Head) -> Head:
    """W_Q and W_K exchanged: W_QK transposed."""
    return Head(head.W_K, head.W_Q)


def turned_by(given: Given, head: Head, steps: float) -> Head:
    """The head whose query reads positions `steps` later (negative: earlier) than it does."""
    space = given.space
    read, write = space.read("position"), space.write("position")
    turn = rotation(steps * given.alpha)
    moved = torch.eye(given.d_model, dtype=read.dtype) + write @ (turn - torch.eye(len(turn), dtype=read.dtype)) @ read
    return Head(head.W_Q @ moved, head.W_K)


def sin_cos_swapped(given: Given, head: Head) -> Head:
    """The head whose query reads the cosine of each pair where it read the sine, and the other way round."""
    space = given.space
    read, write = space.read("position"), space.write("position")
    order = torch.arange(len(read)).view(-1, 2).flip(1).flatten()
    exchange = write @ (read[order] - read)
    return Head(head.W_Q + head.W_Q @ exchange, head.W_K)


# Named slips, each undone by its change, tried in this order; the names are facts that sentences refer to, without
# what follows a full stop.
POSITION_REPAIRS: dict[str, Change] = {
    "NEGATE": negated,
    "TURN_BACK": lambda given, head: turned_by(given, head, -1.0),
    "TURN_FORWARD": lambda given, head: turned_by(given, head, 1.0),
    "SWAP": swapped,
    "SWAP_SIN_COS": sin_cos_swapped,
    "SWAP_SIN_COS.KEY": lambda given, head: swapped(given, sin_cos_swapped(given, swapped(given, head))),
    "DROP_CONTENT": lambda given, head: only(given, head, "position"),
}
CONTENT_REPAIRS: dict[str, Change] = {"SAME_ROWS": lambda _, head: Head(head.W_K, head.W_K)}
