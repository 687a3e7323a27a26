"""The loss that training minimises, with a gradient that needs one buffer the size of the logits instead of three."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable


class _MeanCrossEntropy(torch.autograd.Function):
    """torch's own keeps the log-probabilities, then fills a zero tensor and a gradient of the same size beside them."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        log_p = logits.log_softmax(-1)
        ctx.save_for_backward(log_p, targets)
        return -log_p.gather(-1, targets[..., None]).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # d loss / d logits = (softmax - one-hot of the target) / tokens
        log_p, targets = ctx.saved_tensors
        share = grads[0] / targets.numel()
        slope = log_p.exp_().mul_(share)
        slope.scatter_add_(-1, targets[..., None], (-share).expand(*targets.shape, 1))
        return slope, None


def next_token_loss(logits: Float[Tensor, "batch pos vocab"], targets: Int[Tensor, "batch pos"]) -> Float[Tensor, ""]:
    """Mean cross-entropy of the targets, nats a token; differentiable once.

    -mean log softmax(logits)[target], exactly what torch's cross_entropy gives. Its backward pass overwrites what the
    forward pass kept, so it can run once (torch says so if asked again).

    >>> float(next_token_loss(torch.zeros(1, 2, 4), torch.tensor([[1, 3]]))) - torch.tensor(4.0).log().item()
    0.0
    """
    loss: Tensor = _MeanCrossEntropy.apply(logits, targets)  # pyright: ignore[reportUnknownMemberType]
    return loss
