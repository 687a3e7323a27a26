from __future__ import annotations

from typing import Any

import torch

from headway.exercises.givens import given
from headway.exercises.predicates.warmup import pattern
from headway.exercises.references import reference


def test_a_pattern_by_hand():
    x = torch.tensor([[1.0, 0], [0, 1]], dtype=torch.float64)
    W = torch.tensor([[0, 9.0], [1, 3]], dtype=torch.float64).log1p()
    e = (0.5 * (W[1, 1] - W[1, 0])).exp()
    torch.testing.assert_close(
        pattern(W, x, 0.5), torch.tensor([[1, 0], [1 / (1 + e), e / (1 + e)]], dtype=torch.float64)
    )


def test_singular_values_between_hidden_bases_change_with_the_basis_and_these_do_not():
    """exercises.md C3: W_V2 W_O1 under a change of basis of both heads' values, and W_OV2 on what head 1 writes."""
    g: Any = given("w7")
    M = torch.diag(torch.tensor([1.0, 2, 4, 8], dtype=torch.float64))
    before = torch.linalg.svdvals(g.W_V2 @ g.W_O1)
    after = torch.linalg.svdvals((M @ g.W_V2) @ (g.W_O1 @ M))
    assert float((before - after).abs().max()) > 1
    free = reference("w7", g)["singular_values"]
    basis = torch.linalg.qr(g.W_O1 @ M).Q
    moved = (g.W_O2 @ torch.linalg.inv(M)) @ (M @ g.W_V2) @ basis
    torch.testing.assert_close(torch.linalg.svdvals(moved)[:4], free)
