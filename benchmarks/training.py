"""(a) A training step of the two-layer recipe, against a plain torch.nn model and transformer-lens' native training.

    .venv-bench/bin/python benchmarks/training.py

Bound of the step: 6 * parameters * tokens + attention flops; the plain model is what a user would write by hand.
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import torch
from peer import native
from timing import interleaved, show
from torch import nn
from torch.nn import functional as F

from headway.model.positions import sinusoids
from headway.sources.trained.data import Windows
from headway.sources.trained.loop import Training, initial_state
from headway.sources.trained.recipes import recipe

RECIPE = recipe("two-layer")
CONFIG = RECIPE.config(bos=0)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        c = CONFIG
        self.q, self.k, self.v = (nn.Linear(c.d_model, c.n_heads * c.d_head, bias=False) for _ in range(3))
        self.o = nn.Linear(c.n_heads * c.d_head, c.d_model, bias=False)

    def forward(self, x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        where = x + p
        q, k, v = (t.view(b, n, CONFIG.n_heads, -1).transpose(1, 2) for t in (self.q(where), self.k(where), self.v(x)))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(z.transpose(1, 2).reshape(b, n, -1))


class Plain(nn.Module):
    """The same model as a user of torch.nn would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(CONFIG.d_vocab, CONFIG.d_model)
        self.layers = nn.ModuleList(Attention() for _ in range(CONFIG.n_layers))
        self.unembed = nn.Linear(CONFIG.d_model, CONFIG.d_vocab, bias=False)
        self.register_buffer("p", sinusoids(torch.arange(CONFIG.n_ctx), CONFIG).float())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x, self.p)
        return self.unembed(x)


def plain_step(windows: Windows):
    model = Plain()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RECIPE.rate, betas=RECIPE.betas)
    at = 0

    def step() -> None:
        nonlocal at
        inputs, targets = windows.batch(at, RECIPE.batch)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        float(loss)
        at += 1

    return step


def lens_step(windows: Windows):
    # The native model has no sinusoids at W_Q and W_K: learned positions and biases, otherwise the same shape. The step
    # is the body of transformer-lens' own `train` loop.
    model = native(dataclasses.replace(CONFIG, positions="learned"))
    optimiser = torch.optim.AdamW(model.parameters(), lr=RECIPE.rate, weight_decay=RECIPE.weight_decay)
    at = 0

    def step() -> None:
        nonlocal at
        inputs, _ = windows.batch(at, RECIPE.batch)
        loss = model(inputs, return_type="loss")
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        loss.item()
        at += 1

    return step


def main() -> int:
    windows = Windows(np.random.default_rng(0).integers(1, CONFIG.d_vocab, 200_000), CONFIG.n_ctx, 0, 0)
    training = Training(RECIPE, CONFIG, initial_state(RECIPE, CONFIG))

    def ours() -> None:
        float(training.advance(*windows.batch(training.step, RECIPE.batch)))

    contestants = {"headway": ours, "plain torch.nn": plain_step(windows), "transformer-lens": lens_step(windows)}
    medians = interleaved(contestants, rounds=200, warmup=10)
    tokens = RECIPE.batch * CONFIG.n_ctx
    held = show(
        f"training step, {tokens} tokens ({tokens / medians['headway']:,.0f} tokens/s here)",
        medians,
        "headway",
        {"plain torch.nn": 1.0, "transformer-lens": 1.5},
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
