from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import Interrupted, NotFinite
from headway.sources.trained.data import Windows
from headway.sources.trained.loop import Progress, State, Training, initial_state, optimise, snapshot_steps
from headway.sources.trained.recipes import Recipe
from support.naive import naive_run
from support.small_runs import STEPS, small_recipe

IDS = np.arange(400) * 5 % 29 + 1  # each token has one successor


def tiny(**changes: Any) -> Recipe:
    merged: dict[str, Any] = {"d_vocab": 30, **changes}
    return small_recipe(**merged)


def windows(recipe: Recipe) -> Windows:
    return Windows(IDS, recipe.n_ctx, 0, recipe.seed)


class Run:
    """A small run: its losses, the states it saved, where its progress went; `hook` is called at each step."""

    def __init__(self, recipe: Recipe, state: State | None = None) -> None:
        config = recipe.config(bos=0)
        self.recipe, self.training = recipe, Training(recipe, config, state or initial_state(recipe, config))
        self.saved: list[State] = []
        self.seen: list[Progress] = []
        self.losses: list[float] = []

    def go(self, hook: Callable[[Progress], None] = lambda _: None, **options: Any) -> Run:
        def tell(at: Progress) -> None:
            self.seen.append(at)
            hook(at)

        steps = optimise(self.training, windows(self.recipe), save=self.saved.append, on_progress=tell, **options)
        self.losses.extend(steps)
        return self

    @property
    def saved_steps(self) -> list[int]:
        return [state.step for state in self.saved]


@pytest.fixture
def run() -> Run:
    return Run(tiny())


def test_the_start_is_seeded_and_silent():
    recipe = tiny(norm="layer", positions="learned")
    config = recipe.config(bos=0)
    one, two = initial_state(recipe, config), initial_state(recipe, config)
    assert all(torch.equal(one.tensors[n], two.tensors[n]) for n in one.tensors)
    assert not torch.equal(one.tensors["W_Q"], initial_state(tiny(seed=1), config).tensors["W_Q"])
    assert float(one.tensors["W_O"].abs().max()) == float(one.tensors["W_U"].abs().max()) == 0
    assert bool((one.tensors["norm_gain"] == 1).all()) and "W_pos" in one.tensors
    wide = initial_state(tiny(d_vocab=3000, d_model=64, embed_sd=0.3), tiny(d_vocab=3000, d_model=64).config(0)).tensors
    assert float(wide["W_E"].std()) == pytest.approx(0.3, rel=0.02)
    assert float(wide["W_K"].std()) == pytest.approx(64**-0.5, rel=0.1)


def test_one_step_by_hand():
    """AdamW's first step from zero moments moves each entry by rate * g / (|g| + eps) after decaying it; the loss is the
    mean over tokens of -log softmax, found again by plain loops.
    """
    recipe = tiny(n_layers=1, rate=0.01, weight_decay=0.1, batch=2)
    run = Run(recipe).training
    run.weights.W_U.data.normal_(generator=torch.Generator().manual_seed(3))
    before = {n: t.detach().clone() for n, t in run.weights.tensors().items()}
    inputs, targets = windows(recipe).batch(0, 2)
    rows = [naive_run(run.weights, row.tolist()).logits for row in inputs]
    log_p = [row - np.log(np.exp(row).sum(-1, keepdims=True)) for row in rows]
    wanted = -np.mean([p[i, t] for p, row in zip(log_p, targets.tolist(), strict=True) for i, t in enumerate(row)])
    assert float(run.advance(inputs, targets)) == pytest.approx(wanted, rel=1e-5)
    for name in ("W_E", "W_U", "W_O"):
        gradient = getattr(run.weights, name).grad
        moved = getattr(run.weights, name).detach()
        expected = before[name] * (1 - 0.01 * 0.1) - 0.01 * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-6)
    assert run.step == 1


@pytest.mark.parametrize("name", ["zero-layer", "one-layer", "two-layer"])
def test_loss_falls_and_hooks_are_called(name: str):
    recipe = tiny(name=name, n_layers={"zero-layer": 0, "one-layer": 1}.get(name, 2), rate=0.02)
    kept: list[int] = []
    run = Run(recipe).go(on_snapshot=lambda step, weights: kept.append(step) if weights.check_finite() else None)
    losses, seen = run.losses, run.seen
    assert len(losses) == STEPS and losses[0] == pytest.approx(np.log(30), rel=1e-4) and losses[-1] < losses[0]
    assert kept == sorted(snapshot_steps(recipe)) == [4, 8, 12]
    assert [p.step for p in seen] == list(range(1, STEPS + 1)) and {p.steps for p in seen} == {STEPS}
    assert seen[-1].seconds_left == 0 and seen[0].seconds_left > 0 and seen[0].tokens_per_second > 0
    assert seen[1].loss == pytest.approx(sum(losses[:2]) / 2)
    assert run.saved_steps == [STEPS], "saved at the end"


def test_it_saves_as_often_as_asked(run: Run):
    assert run.go(save_every=0.0).saved_steps == [*range(1, STEPS + 1), STEPS]


def test_from_a_saved_state_the_steps_are_the_same_to_the_bit():
    straight = Run(tiny(norm="rms")).go(save_every=0.0)
    resumed = Run(straight.recipe, straight.saved[4]).go()
    assert resumed.losses == straight.losses[5:]
    first, second = straight.saved[-1], resumed.saved[-1]
    for group in ("tensors", "first_moments", "second_moments"):
        for name, tensor in getattr(first, group).items():
            assert torch.equal(tensor, getattr(second, group)[name]), (group, name)


def test_a_state_is_a_copy(run: Run):
    state = run.training.state()
    for step in (0, 1):
        run.training.advance(*windows(run.recipe).batch(step, 2))
    assert state.step == 0 and float(state.tensors["W_U"].abs().max()) == 0
    assert float(state.first_moments["W_U"].abs().max()) == 0


def test_ctrl_c_saves_then_stops_and_gives_the_signal_back(run: Run):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match=f"step 5 of {STEPS}"):
        run.go(lambda at: signal.raise_signal(signal.SIGINT) if at.step == 5 else None)
    assert run.saved_steps == [5] and signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_stops_at_once(run: Run):
    def twice(_: Progress) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run.go(twice)
    assert run.saved == []


def test_outside_the_main_thread_it_just_runs(run: Run):
    thread = threading.Thread(target=run.go)
    thread.start()
    thread.join()
    assert len(run.losses) == STEPS


@pytest.mark.parametrize(
    ("save_every", "says", "saved"),
    [
        (60.0, r"step 4.*a rate below 0.002", []),  # the next loss is the first to show it
        (0.0, r"W_Q\[0, 0, 0, 0\]", [1, 2]),  # a save is due before that
    ],
)
def test_nan_stops_the_run_and_never_replaces_a_checkpoint(run: Run, save_every: float, says: str, saved: list[int]):
    def poison(at: Progress) -> None:
        if at.step == 3:
            run.training.weights.W_Q.data[0, 0, 0, 0] = torch.nan

    with pytest.raises(NotFinite, match=says):
        run.go(poison, save_every=save_every)
    assert run.saved_steps == saved


def test_denormals_are_numbers_again_afterwards(run: Run):
    run.go()
    assert float(torch.tensor(1e-310, dtype=torch.float64) * 1.0) > 0
