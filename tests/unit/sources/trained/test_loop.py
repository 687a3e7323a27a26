from __future__ import annotations

import signal
import threading
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


def training(recipe: Recipe) -> Training:
    config = recipe.config(bos=0)
    return Training(recipe, config, initial_state(recipe, config))


def tiny(**changes: Any) -> Recipe:
    merged: dict[str, Any] = {"d_vocab": 30, **changes}
    return small_recipe(**merged)


def windows(recipe: Recipe) -> Windows:
    return Windows(IDS, recipe.n_ctx, 0, recipe.seed)


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
    run = training(recipe)
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
    seen: list[Progress] = []
    kept: list[int] = []
    saved: list[State] = []
    losses = list(
        optimise(
            training(recipe),
            windows(recipe),
            save=saved.append,
            on_snapshot=lambda step, weights: kept.append(step) if weights.check_finite() else None,
            on_progress=seen.append,
        )
    )
    assert len(losses) == STEPS and losses[0] == pytest.approx(np.log(30), rel=1e-4) and losses[-1] < losses[0]
    assert kept == sorted(snapshot_steps(recipe)) == [4, 8, 12]
    assert [p.step for p in seen] == list(range(1, STEPS + 1)) and {p.steps for p in seen} == {STEPS}
    assert seen[-1].seconds_left == 0 and seen[0].seconds_left > 0 and seen[0].tokens_per_second > 0
    assert seen[1].loss == pytest.approx(sum(losses[:2]) / 2)
    assert [s.step for s in saved] == [STEPS], "saved at the end"


def test_it_saves_as_often_as_asked():
    recipe = tiny()
    saved: list[State] = []
    list(optimise(training(recipe), windows(recipe), save=saved.append, save_every=0.0))
    assert [s.step for s in saved] == [*range(1, STEPS + 1), STEPS]


def test_from_a_saved_state_the_steps_are_the_same_to_the_bit():
    recipe = tiny(norm="rms")
    saved: list[State] = []
    straight = list(optimise(training(recipe), windows(recipe), save=saved.append, save_every=0.0))
    middle = saved[4]
    resumed = Training(recipe, recipe.config(bos=0), middle)
    assert list(optimise(resumed, windows(recipe), save=saved.append)) == straight[5:]
    first, second = saved[STEPS], saved[-1]
    for group in ("tensors", "first_moments", "second_moments"):
        for name, tensor in getattr(first, group).items():
            assert torch.equal(tensor, getattr(second, group)[name]), (group, name)


def test_a_state_is_a_copy():
    recipe = tiny()
    run = training(recipe)
    state = run.state()
    run.advance(*windows(recipe).batch(0, 2))
    run.advance(*windows(recipe).batch(1, 2))
    assert state.step == 0 and float(state.tensors["W_U"].abs().max()) == 0
    assert float(state.first_moments["W_U"].abs().max()) == 0


def test_ctrl_c_saves_then_stops_and_gives_the_signal_back():
    recipe = tiny()
    saved: list[State] = []
    before = signal.getsignal(signal.SIGINT)

    def stop(at: Progress) -> None:
        if at.step == 5:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match=f"step 5 of {STEPS}"):
        list(optimise(training(recipe), windows(recipe), save=saved.append, on_progress=stop))
    assert [s.step for s in saved] == [5] and signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_stops_at_once():
    recipe = tiny()

    def stop(at: Progress) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        list(optimise(training(recipe), windows(recipe), save=lambda _: None, on_progress=stop))


def test_outside_the_main_thread_it_just_runs():
    recipe = tiny()
    done: list[float] = []
    thread = threading.Thread(
        target=lambda: done.extend(optimise(training(recipe), windows(recipe), save=lambda _: None))
    )
    thread.start()
    thread.join()
    assert len(done) == STEPS


def test_a_loss_that_is_no_number_stops_before_anything_is_saved():
    recipe = tiny()
    run = training(recipe)
    saved: list[State] = []

    def poison(at: Progress) -> None:
        if at.step == 3:
            run.weights.W_Q.data[0, 0, 0, 0] = torch.nan

    with pytest.raises(NotFinite, match=r"step 4.*a rate below 0.002"):
        list(optimise(run, windows(recipe), save=saved.append, on_progress=poison))
    assert saved == []


def test_weights_that_are_no_numbers_never_replace_a_checkpoint():
    recipe = tiny()
    run = training(recipe)
    saved: list[State] = []

    def poison(at: Progress) -> None:
        if at.step == 3:
            run.weights.W_Q.data[0, 0, 0, 0] = torch.nan

    with pytest.raises(NotFinite, match=r"W_Q\[0, 0, 0, 0\]"):
        list(optimise(run, windows(recipe), save=saved.append, on_progress=poison, save_every=0.0))
    assert [s.step for s in saved] == [1, 2]


def test_denormals_are_numbers_again_afterwards():
    recipe = tiny()
    list(optimise(training(recipe), windows(recipe), save=lambda _: None))
    assert float(torch.tensor(1e-310, dtype=torch.float64) * 1.0) > 0
