from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from headway.sources.trained.loss import next_token_loss


@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])  # at 300 most probabilities underflow
def test_loss_and_gradient_are_those_of_torch(scale: float):
    random = torch.Generator().manual_seed(3)
    at = scale * torch.randn(3, 5, 7, generator=random, dtype=torch.float64)
    targets = torch.randint(0, 7, (3, 5), generator=random)
    ours, theirs = at.clone().requires_grad_(), at.clone().requires_grad_()
    loss, oracle = next_token_loss(ours, targets), cross_entropy(theirs.flatten(0, 1), targets.flatten())
    (3 * loss).backward()
    (3 * oracle).backward()
    torch.testing.assert_close(loss, oracle, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-15)


def test_any_memory_layout_gives_the_same_gradient():
    at = torch.randn(4, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[0, 1, 2], [3, 3, 0], [1, 2, 2]]).T[:, :2]
    ours, theirs = at.clone().requires_grad_(), at.clone().requires_grad_()
    next_token_loss(ours.permute(2, 1, 0), targets).backward()
    cross_entropy(theirs.permute(2, 1, 0).flatten(0, 1), targets.flatten()).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-15)


def test_a_second_backward_pass_is_refused():
    loss = next_token_loss(torch.randn(1, 2, 3, requires_grad=True), torch.tensor([[0, 2]]))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()
