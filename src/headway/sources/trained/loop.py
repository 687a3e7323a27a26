"""The training loop: optimises the tensors of a `Weights` through the same `logits` that every analysis uses."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import Interrupted, NotFinite
from headway.model.config import ModelConfig
from headway.model.forward import logits
from headway.model.weights import Weights
from headway.sources.trained.data import Windows
from headway.sources.trained.loss import next_token_loss
from headway.sources.trained.recipes import Recipe


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands: steps done of all, loss (nats, mean of the last steps), tokens a second, seconds left.

    doing: `training`, or what comes before it; then there is no loss, speed or time left yet (NaN).
    """

    step: int
    steps: int
    loss: float
    tokens_per_second: float
    seconds_left: float
    doing: str = "training"


@dataclass(frozen=True, eq=False)
class State:
    """All that the next step depends on: tensors, AdamW's moments, steps done. Data order and rate follow from the step."""

    step: int
    tensors: dict[str, Tensor]
    first_moments: dict[str, Tensor]
    second_moments: dict[str, Tensor]


def initial_state(recipe: Recipe, config: ModelConfig) -> State:
    """Seeded start: W_E ~ N(0, embed_sd^2), W_Q W_K W_V ~ N(0, 1 / d_model), W_O = W_U = 0; norm gains 1."""
    c, random = config, torch.Generator().manual_seed(recipe.seed)

    def normal(sd: float, *shape: int) -> Tensor:
        return sd * torch.randn(*shape, generator=random, device="cpu", dtype=torch.float32)

    # W_E and W_O lie in memory as the forward pass reads them: rows of W_E^T, [d_model, head * d_head].
    tensors = {"W_E": normal(recipe.embed_sd, c.d_vocab, c.d_model).T}
    for name, heads in (("W_Q", c.n_heads), ("W_K", c.n_kv_heads), ("W_V", c.n_kv_heads)):
        tensors[name] = normal(c.d_model**-0.5, c.n_layers, heads, c.d_head, c.d_model)
    tensors["W_O"] = torch.zeros(c.n_layers, c.d_model, c.n_heads, c.d_head).transpose(1, 2)
    tensors["W_U"] = torch.zeros(c.d_vocab, c.d_model)
    if c.positions == "learned":
        tensors["W_pos"] = normal(recipe.embed_sd, c.n_ctx, c.d_model).T
    if c.norm != "none":
        tensors |= {"norm_gain": torch.ones(c.n_layers, c.d_model), "final_gain": torch.ones(c.d_model)}
    return State(0, tensors, *({n: torch.zeros_like(t) for n, t in tensors.items()} for _ in range(2)))


class Training:
    """A run in memory: leaf tensors, AdamW, and the step function; on torch's default device, in its default dtype."""

    def __init__(self, recipe: Recipe, config: ModelConfig, state: State) -> None:
        self.recipe, self.step = recipe, state.step

        def placed(tensor: Tensor) -> Tensor:
            there = tensor.to(device=torch.get_default_device(), dtype=torch.get_default_dtype())
            return there.clone(memory_format=torch.preserve_format)

        leaves: dict[str, Any] = {n: placed(t).requires_grad_() for n, t in state.tensors.items()}
        self.weights = Weights(config=config, **leaves)
        self._leaves = {n: t for n, t in leaves.items() if t.numel()}
        self._optimiser = torch.optim.AdamW(
            list(self._leaves.values()),
            lr=recipe.rate,
            betas=recipe.betas,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        for name, leaf in self._leaves.items():
            self._optimiser.state[leaf] = {
                "step": torch.tensor(float(state.step), dtype=torch.float32),
                "exp_avg": placed(state.first_moments[name]),
                "exp_avg_sq": placed(state.second_moments[name]),
            }

    def advance(self, inputs: Tensor, targets: Tensor) -> Float[Tensor, ""]:
        """One optimiser step; returns the loss before it, nats a token."""
        for group in self._optimiser.param_groups:
            group["lr"] = self.recipe.rate_at(self.step)
        inputs, targets = inputs.to(self.weights.device), targets.to(self.weights.device)
        loss = next_token_loss(logits(self.weights, inputs), targets)
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self._optimiser.step()
        self.step += 1
        return loss.detach()

    def state(self) -> State:
        """A copy of everything the next step depends on."""
        moments = [self._optimiser.state[leaf] for leaf in self._leaves.values()]
        return State(
            self.step,
            {n: t.detach().clone() for n, t in self.weights.tensors().items()},
            {n: m["exp_avg"].clone() for n, m in zip(self._leaves, moments, strict=True)},
            {n: m["exp_avg_sq"].clone() for n, m in zip(self._leaves, moments, strict=True)},
        )

    def snapshot(self) -> Weights:
        """The weights as they stand, detached from the run."""
        copies: dict[str, Any] = {n: t.detach().clone() for n, t in self.weights.tensors().items()}
        return self.weights.replace(**copies)


def optimise(
    training: Training,
    windows: Windows,
    *,
    save: Callable[[State], None],
    on_snapshot: Callable[[int, Weights], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    save_every: float = 60.0,
) -> Iterator[float]:
    """Run to the recipe's end, yielding the loss of each step; saves every `save_every` seconds, at the end, and on Ctrl-C.

    Raises Interrupted after a clean save when the user stops it, NotFinite (the last good checkpoint stays) when the
    loss is no number any more.
    """
    recipe, pace, saved = training.recipe, _Pace(), time.monotonic()
    marks = snapshot_steps(recipe)
    with _interruptions() as stopped, _flushed_denormals():
        while training.step < recipe.steps:
            loss = float(training.advance(*windows.batch(training.step, recipe.batch)))
            if math.isnan(loss):
                raise NotFinite(
                    "the loss is NaN",
                    where=f"step {training.step}",
                    next_step=f"Start a new run with a rate below {recipe.rate:g}; what was saved before stays as it is",
                )
            if on_progress is not None:
                on_progress(pace.progress(training.step, recipe, loss))
            yield loss
            if on_snapshot is not None and training.step in marks:
                on_snapshot(training.step, training.snapshot())
            if stopped.is_set() or time.monotonic() - saved > save_every:
                save(_good(training))
                saved = time.monotonic()
            if stopped.is_set():
                raise Interrupted("stopped; everything is saved", where=f"step {training.step} of {recipe.steps}")
    save(_good(training))


def _good(training: Training) -> State:
    """The state to save: never one with NaN in it, which would replace the last good checkpoint."""
    training.weights.check_finite()
    return training.state()


def snapshot_steps(recipe: Recipe) -> set[int]:
    """Steps after which weights are kept: evenly spaced, the last step included."""
    return {round(recipe.steps * i / recipe.snapshots) for i in range(1, recipe.snapshots + 1)}


class _Pace:
    """Speed over the last hundred steps, so that a pause does not spoil the estimate for long."""

    def __init__(self) -> None:
        self._times: deque[float] = deque([time.monotonic()], maxlen=100)
        self._losses: deque[float] = deque(maxlen=100)

    def progress(self, step: int, recipe: Recipe, loss: float) -> Progress:
        self._times.append(time.monotonic())
        self._losses.append(loss)
        seconds = (self._times[-1] - self._times[0]) / max(len(self._times) - 1, 1)
        speed = recipe.batch * recipe.n_ctx / max(seconds, 1e-9)
        mean = sum(self._losses) / len(self._losses)
        return Progress(step, recipe.steps, mean, speed, (recipe.steps - step) * seconds)


@contextmanager
def _flushed_denormals() -> Generator[None]:
    """Moments of rare tokens decay into denormal numbers, which cost half the speed and mean nothing: zero instead."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def _interruptions() -> Generator[threading.Event]:
    """An event that the first Ctrl-C sets; the second stops at once. Only the main thread can listen."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def once(number: int, _: object) -> None:
        stopped.set()
        signal.signal(number, signal.default_int_handler)  # even where a shell started us with Ctrl-C ignored

    before = signal.signal(signal.SIGINT, once)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
