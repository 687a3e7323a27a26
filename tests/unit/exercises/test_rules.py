"""Rules as small tables written by hand; test_proof.py holds them against whole sequences."""

from __future__ import annotations

from typing import Any

import torch

from headway.exercises.proof import States
from headway.exercises.rules import earlier_copy, offset, same_token
from unit.exercises.specimens.pointer import after_pointer

STATES = States.of(torch.zeros(3, 2, 1).double(), torch.zeros(3, 2, 1).double())


def keys(mask: Any, query: Any):
    """(position, token) pairs that a mask holds for one query token."""
    return {tuple(pair) for pair in mask[query].nonzero().tolist()}


def test_same_token():
    targets, rivals = same_token()(STATES, 1)
    assert keys(targets, 0) == {(0, 0), (1, 0)}
    assert keys(rivals, 0) == {(0, 1), (1, 1)}


def test_offset():
    targets, rivals = offset(1)(STATES, 2)
    assert keys(targets, 1) == {(1, 0), (1, 1)}
    assert keys(rivals, 1) == {(0, 0), (0, 1), (2, 0), (2, 1)}
    assert not offset(1)(STATES, 0)[0].any()


def test_earlier_copy():
    targets, rivals = earlier_copy()(STATES, 1)
    assert keys(targets, 1) == {(0, 1)}
    assert keys(rivals, 1) == {(0, 0), (1, 0), (1, 1)}


def test_after_pointer():
    labels = torch.tensor([[0, 0], [0, 1], [0, 2]])
    at = torch.ones(3, 3, dtype=torch.bool)
    states = States(torch.zeros(3, 3, 1).double(), torch.zeros(3, 3, 1).double(), labels, at)
    targets, rivals = after_pointer()(states, 2)
    assert {j for j, _ in keys(targets, 0)} == {1}
    assert {j for j, _ in keys(targets, 1)} == {2}  # p + 1 = i: the query's own position
    assert keys(targets, 2) == set()  # p = i is no pointer to an earlier copy
    assert {j for j, _ in keys(rivals, 1)} == {0, 1}
