from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from headway.errors import UsageError
from headway.model.forward import logits, run
from headway.provenance import Provenance
from headway.sources.handmade.built import assemble
from headway.sources.handmade.previous_token import (
    kernel_gap,
    octaves,
    position_table,
    previous_token_head,
    previous_token_model,
)
from headway.sources.handmade.sharpness import sharpness_for
from headway.sources.handmade.subspaces import Space


def worst_leak(frequencies: tuple[float, ...], n: int, T: float) -> float:
    """Largest share of attention on wrong positions, over queries 1 .. n-1, from the kernel alone."""
    worst = 0.0
    for i in range(1, n):
        scores = [T * sum(math.cos(a * (i - j - 1)) for a in frequencies) for j in range(i + 1)]
        top = max(scores)
        shares = [math.exp(s - top) for s in scores]
        worst = max(worst, 1 - shares[i - 1] / sum(shares))
    return worst


def truth(frequencies: tuple[float, ...], n: int, leak: float = 0.01) -> float:
    """The least T (times the sum of cosines) with that leak, by bisection."""
    low, high = 0.0, 2000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if worst_leak(frequencies, n, middle) <= leak else (middle, high)
    return high


@pytest.mark.parametrize(
    ("slow", "n", "published"),
    [(0.01, 8, 110), (0.1, 8, 21), (0.316, 8, 10), (0.75, 8, 7.3), (0.1, 32, 21), (0.316, 32, 94)],
)
def test_the_bound_against_sharpness_found_by_bisection(slow: float, n: int, published: float):
    """exercises.md B1: two pairs of amplitude 1 (so T times the mean of two is T / 2 times the sum), 1 % leak."""
    found = truth((1.0, slow), n)
    assert math.isclose(found, published, rel_tol=0.05)
    gap = kernel_gap((1.0, slow), n)
    bound = sharpness_for(0.01, gap=gap, rivals=n - 1) / 2
    necessary = math.log(99) / gap / 2
    assert necessary - 1e-6 <= found <= bound


def test_only_reachable_offsets_count():
    """At n = 64 the alias 63 of (1, .1) cannot be reached: 23 is enough where all offsets would ask for 613."""
    assert truth((1.0, 0.1), 64) < 24 < sharpness_for(0.01, gap=kernel_gap((1.0, 0.1), 65), rivals=63) / 2
    assert kernel_gap((1.0, 0.1), 65) < 0.01 < kernel_gap((1.0, 0.1), 64)


def test_the_gap_by_brute_force():
    frequencies = (0.7, 2.0, 0.05)
    offsets = {i - j - 1 for i in range(1, 20) for j in range(i + 1)} - {0}
    wanted = min(sum(1 - math.cos(a * d) for a in frequencies) / 3 for d in offsets)
    assert math.isclose(kernel_gap(frequencies, 20), wanted)
    assert math.isclose(kernel_gap((1.0,), 2), 1 - math.cos(1)), "two positions: only itself is wrong"


@pytest.mark.parametrize("n", [2, 3, 5, 17, 64, 65, 66, 300])
def test_octaves_keep_their_promise(n: int):
    k = len(octaves(n))
    assert 2**k >= n - 1 and kernel_gap(octaves(n), n) >= 2 / k - 1e-12


def test_a_text_needs_two_positions():
    with pytest.raises(UsageError, match="previous token"):
        octaves(1)


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("seed", [0, 3, None])
def test_the_model_attends_to_the_previous_token_and_says_it(bos: bool, seed: int | None):
    built = previous_token_model(n_ctx=24, leak=0.02, bos=bos, seed=seed)
    weights = built.weights
    tokens = torch.randint(int(bos), 12, (4, 24), generator=torch.Generator().manual_seed(1))
    if bos:
        tokens[:, 0] = 0
    found = run(weights, tokens)
    assert float(found.patterns[0][:, 0].diagonal(-1, dim1=-2, dim2=-1).min()) >= 1 - 0.02
    right = found.logits.softmax(-1)[:, 1:].gather(-1, tokens[:, :-1, None]).squeeze(-1)
    assert float(right[:, 1 if bos else 0 :].min()) >= 1 - 0.02
    assert float((weights.W_U @ weights.W_E).abs().max()) < 1e-12, "the direct path is uniform"
    if bos:
        assert float(found.logits[:, 1].abs().max()) <= built.notes["logit_scale"] * 0.02


def test_the_notes_hold():
    """Scores are sharpness times the mean cosine; the leak at the last query comes near the stated one at most."""
    built = previous_token_model(n_ctx=16, leak=0.05)
    scores = run(built.weights, torch.arange(16)[None] % 12).scores[0][0, 0]
    frequencies = octaves(16)
    for i, j in ((9, 3), (15, 15), (4, 3)):
        cosines = sum(math.cos(a * (i - j - 1)) for a in frequencies) / len(frequencies)
        assert math.isclose(float(scores[i, j]), built.notes["sharpness"] * cosines, abs_tol=1e-9)
    assert built.weights.config.attn_scale == 1.0 and built.notes["gap"] == kernel_gap(frequencies, 16)


def test_contents_take_no_part_in_attention():
    weights = previous_token_model().weights
    a, b = (run(weights, t).patterns[0] for t in (torch.arange(12)[None], torch.zeros(1, 12, dtype=torch.int64)))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_the_wrong_sign_looks_at_itself():
    """Turned forwards the query asks for i + 1; with slow pairs the nearest visible position, i, is the next best."""
    frequencies = (0.5, 0.1)
    space = Space.allocate({"content": 5, "position": 4, "previous": 5})
    head = previous_token_head(space, [-a for a in frequencies], sharpness=100.0)
    ends = {
        "W_E": space.write("content"),
        "W_U": space.read("previous"),
        "W_pos": position_table(space, frequencies, 12),
    }
    weights = assemble([[head]], ends, n_ctx=12, bos=None, provenance=Provenance())
    pattern = run(weights, torch.zeros(1, 12, dtype=torch.int64)).patterns[0][0, 0]
    assert pattern.argmax(-1).tolist() == list(range(12))


def test_subspaces_that_lean_on_each_other():
    """Dual rows keep contents out of the scores and positions out of the copy, in a basis where transposes would not."""
    random = torch.Generator().manual_seed(0)
    frequencies, n = octaves(12), 5
    sizes = {"content": n, "position": 2 * len(frequencies), "previous": n}
    bases = {name: torch.randn(24, k, generator=random, dtype=torch.float64) for name, k in sizes.items()}
    bases["position"] = bases["position"] + bases["content"].sum(1, keepdim=True)
    space = Space(24, bases)
    head = previous_token_head(space, frequencies, sharpness=80.0)
    ends = {
        "W_E": space.write("content"),
        "W_U": space.read("previous"),
        "W_pos": position_table(space, frequencies, 12),
    }
    weights = assemble([[head]], ends, n_ctx=12, bos=None, provenance=Provenance())
    tokens = torch.tensor([[4, 0, 2, 2, 1, 3, 0, 4, 4, 1, 2, 3]])
    assert float(run(weights, tokens).patterns[0][0, 0].diagonal(-1).min()) > 0.99
    assert logits(weights, tokens).argmax(-1)[0, 1:].tolist() == tokens[0, :-1].tolist()


def test_circuits_are_those_of_the_docstring():
    frequencies = (1.0, 0.3)
    space = Space.allocate({"content": 3, "position": 4, "previous": 3}, seed=1)
    head = previous_token_head(space, frequencies, sharpness=7.0)
    P = space.write("position")
    turn = torch.zeros(4, 4, dtype=torch.float64)
    for f, a in enumerate(frequencies):
        turn[2 * f : 2 * f + 2, 2 * f : 2 * f + 2] = torch.tensor(
            [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64
        )
    torch.testing.assert_close(head.qk().dense(), 7.0 * P @ turn @ P.T)
    torch.testing.assert_close(head.ov.dense(), space.write("previous") @ space.write("content").T)


def test_subspaces_of_the_wrong_size_are_refused():
    space = Space.allocate({"content": 3, "position": 4, "previous": 2})
    with pytest.raises(UsageError, match=r"position 6 .two a frequency., previous 3"):
        previous_token_head(space, (1.0, 2.0, 3.0), sharpness=1.0)
    with pytest.raises(UsageError, match="previous 3"):
        previous_token_head(space, (1.0, 2.0), sharpness=1.0)


def test_precision_is_chosen():
    low = previous_token_model(dtype=torch.float32).weights
    assert low.dtype == torch.float32
    assert logits(low, torch.tensor([[0, 5, 1]])).argmax(-1)[0, 2] == 5
    assert replace(low.provenance).seed == 0 and low.provenance.options["leak"] == 1e-3
