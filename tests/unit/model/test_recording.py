from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import ShapeProblem, UnknownName, UsageError
from headway.model.forward import run
from headway.model.recording import Freeze
from support.naive import naive_run
from support.random_models import FEATURES, feature_name, padding, random_tokens, random_weights

WITH_HEADS = [f for f in FEATURES if f.get("n_layers", 2) > 1]
EVERY = pytest.mark.parametrize("features", WITH_HEADS, ids=feature_name)


def assert_close(a: Any, b: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-9, atol=1e-9)


@EVERY
def test_a_run_frozen_to_its_own_recording_is_the_same(features: dict[str, Any]):
    weights = random_weights(**features)
    tokens = random_tokens(weights)
    keep = padding(*tokens.shape, side="both")
    first = run(weights, tokens, keep=keep)
    again = run(weights, tokens, keep=keep, freeze=first)
    # Not to the bit: the live LayerNorm is one fused kernel, the frozen one is written out.
    torch.testing.assert_close(first.logits, again.logits, rtol=1e-12, atol=1e-12)
    for a, b in zip(first.patterns, again.patterns, strict=True):
        assert torch.equal(a, b)


@EVERY
def test_frozen_patterns_and_scales_are_used(features: dict[str, Any]):
    """Patterns and scales of one text, tokens of another, against plain loops."""
    weights = random_weights(**features)
    tokens, other = random_tokens(weights, rows=1, n=6), random_tokens(weights, rows=1, n=6, seed=7)
    donor = run(weights, other)
    found = run(weights, tokens, freeze=donor)
    edit = {
        f"L{layer}H{h}.pattern": pattern[0, h].numpy()
        for layer, pattern in enumerate(donor.patterns)
        for h in range(weights.config.n_heads)
    }
    scales = None if donor.norm_scales is None else [s[0].numpy() for s in donor.norm_scales]
    assert_close(found.logits[0], naive_run(weights, tokens[0].tolist(), edit, scales).logits)
    assert float((found.logits - run(weights, tokens).logits).abs().max()) > 1e-3


def test_either_kind_can_be_frozen_alone():
    weights = random_weights(norm="layer")
    tokens, other = random_tokens(weights, rows=1, n=6), random_tokens(weights, rows=1, n=6, seed=7)
    donor = run(weights, other)
    scales_only = run(weights, tokens, freeze=donor.frozen(patterns=False))
    assert donor.norm_scales is not None and scales_only.norm_scales is not None
    assert torch.equal(scales_only.norm_scales[1], donor.norm_scales[1])
    wanted = naive_run(weights, tokens[0].tolist(), scales=[s[0].numpy() for s in donor.norm_scales])
    assert_close(scales_only.logits[0], wanted.logits)
    patterns_only = run(weights, tokens, freeze=donor.frozen(norms=False))
    assert torch.equal(patterns_only.patterns[0], donor.patterns[0])
    assert patterns_only.norm_scales is not None
    assert not torch.equal(patterns_only.norm_scales[1], donor.norm_scales[1])
    nothing = donor.frozen(patterns=False, norms=False)
    assert (nothing.patterns, nothing.norm_scales) == (None, None)
    assert torch.equal(run(weights, tokens, freeze=Freeze()).logits, run(weights, tokens).logits)


def test_frozen_parts_of_another_text_or_model_are_refused():
    weights = random_weights(norm="rms")
    tokens = random_tokens(weights, rows=2, n=6)
    with pytest.raises(ShapeProblem, match="frozen patterns"):
        run(weights, tokens, freeze=run(weights, tokens[:, :5]))
    with pytest.raises(ShapeProblem, match="frozen norm scales"):
        run(weights, tokens, freeze=run(weights, tokens[:1]).frozen(patterns=False))
    with pytest.raises(ShapeProblem, match="frozen patterns"):
        run(weights, tokens, freeze=run(random_weights(norm="rms", n_layers=1), tokens))
    with pytest.raises(ShapeProblem, match="frozen norm scales"):
        run(random_weights(), tokens, freeze=run(weights, tokens).frozen(patterns=False))


@EVERY
@pytest.mark.parametrize("part", ["pattern", "scores", "result", "Q", "K", "V"])
@pytest.mark.parametrize("head", ["L0H1", "L1H0"])
def test_an_edit_acts_where_it_says(features: dict[str, Any], part: str, head: str):
    weights = random_weights(**features)
    tokens = random_tokens(weights, rows=2, n=5)
    shape = {"pattern": (2, 5, 5), "scores": (2, 5, 5)}.get(part, (2, 5, 10))
    new = torch.randn(shape, dtype=torch.float64)
    site = f"{head}.{part}"
    found = run(weights, tokens, edit={site: new}, results=True)
    plain = run(weights, tokens)
    assert float((found.logits - plain.logits).abs().max()) > 1e-6
    for row in range(2):
        wanted = naive_run(weights, tokens[row].tolist(), {site: new[row].numpy()})
        assert_close(found.logits[row], wanted.logits)
        assert found.results is not None
        for layer in range(weights.config.n_layers):
            assert_close(found.patterns[layer][row], wanted.patterns[layer])
            assert_close(found.results[layer][row], wanted.results[layer])


def test_editing_what_the_final_norm_reads():
    weights = random_weights(norm="layer")
    tokens = random_tokens(weights, rows=1, n=5)
    new = torch.randn(1, 5, 10, dtype=torch.float64)
    found = run(weights, tokens, edit={"logits": new})
    assert_close(found.logits[0], naive_run(weights, tokens[0].tolist(), {"logits": new[0].numpy()}).logits)


def test_several_edits_at_once_and_functions():
    weights = random_weights()
    tokens = random_tokens(weights, rows=1, n=5)
    new = torch.randn(1, 5, 10, dtype=torch.float64)
    seen: list[torch.Tensor] = []

    def zero(current: torch.Tensor) -> torch.Tensor:
        seen.append(current.clone())
        return current.zero_()  # writing into what it was given must not reach the recording

    found = run(weights, tokens, edit={"L0H0.result": zero, "L0H2.V": new, "L1H3.pattern": lambda a: a * 0.5})
    base = naive_run(weights, tokens[0].tolist(), {"L0H2.V": new[0].numpy()})
    assert_close(seen[0][0], base.results[0][0])
    zeros = {"L0H0.result": np.zeros((5, 10)), "L0H2.V": new[0].numpy()}
    half = naive_run(weights, tokens[0].tolist(), zeros).patterns[1][3] * 0.5
    assert_close(found.logits[0], naive_run(weights, tokens[0].tolist(), {**zeros, "L1H3.pattern": half}).logits)


def test_an_edit_leaves_the_other_heads_and_the_given_recording_alone():
    weights = random_weights(n_kv_heads=1)
    tokens = random_tokens(weights, rows=1, n=5)
    plain = run(weights, tokens)
    before = plain.patterns[0].clone()
    found = run(weights, tokens, freeze=plain, edit={"L0H1.pattern": torch.zeros(1, 5, 5, dtype=torch.float64)})
    assert torch.equal(plain.patterns[0], before)
    assert torch.equal(found.patterns[0][:, [0, 2, 3]], before[:, [0, 2, 3]])
    keys = run(weights, tokens, edit={"L0H1.K": lambda x: x * 0})
    assert torch.equal(keys.patterns[0][:, [0, 2, 3]], before[:, [0, 2, 3]]), "its group's other heads keep their keys"
    assert not torch.equal(keys.patterns[0][:, 1], before[:, 1])


def test_edited_scores_cannot_look_ahead_and_may_empty_a_row():
    weights = random_weights()
    tokens = random_tokens(weights, rows=1, n=4)
    found = run(weights, tokens, edit={"L0H0.scores": lambda s: torch.full_like(s, 5.0)})
    torch.testing.assert_close(
        found.patterns[0][0, 0], torch.ones(4, 4, dtype=torch.float64).tril() / torch.arange(1, 5)[:, None]
    )
    empty = run(weights, tokens, edit={"L0H0.scores": lambda s: torch.full_like(s, -torch.inf)})
    assert bool((empty.patterns[0][0, 0] == 0).all()) and bool(empty.logits.isfinite().all())


@pytest.mark.parametrize("site", ["L0H0", "L0H0.z", "L0H0.pattern.x", "pattern", "L0.pattern", "embed", "L0H0.q"])
def test_unknown_sites_are_refused(site: str):
    weights = random_weights()
    with pytest.raises(UnknownName, match=r"pattern \| scores"):
        run(weights, random_tokens(weights), edit={site: torch.zeros(1)})


def test_sites_of_heads_that_do_not_exist_are_refused():
    weights = random_weights()
    with pytest.raises(UnknownName, match="no head L5H0"):
        run(weights, random_tokens(weights), edit={"L5H0.pattern": torch.zeros(1)})


@pytest.mark.parametrize("change", [torch.zeros(3, 9), lambda _: torch.zeros(3, 9, 8), lambda _: None])
def test_an_edit_keeps_the_shape(change: Any):
    weights = random_weights()
    with pytest.raises(ShapeProblem, match=r"edit of L1H1.pattern; expected a tensor \(3, 9, 9\)"):
        run(weights, random_tokens(weights), edit={"L1H1.pattern": change})


def test_a_recording_says_what_was_allowed_and_finds_a_heads_pattern():
    weights = random_weights()
    tokens = random_tokens(weights, rows=2, n=6)
    keep = padding(2, 6, "left")
    found = run(weights, tokens, keep=keep)
    for row in range(2):
        for i in range(6):
            for j in range(6):
                assert bool(found.allowed[row, i, j]) == (j <= i and bool(keep[row, i]) and bool(keep[row, j]))
    assert torch.equal(found.scores[0].isneginf(), ~found.allowed[:, None].expand_as(found.scores[0]))
    assert torch.equal(found.pattern("L1H2"), found.patterns[1][:, 2])
    assert found.results is None and found.norm_scales is None and run(weights, tokens).allowed.shape == (1, 6, 6)


def test_edited_scores_under_frozen_patterns_are_refused():
    weights = random_weights()
    tokens = random_tokens(weights)
    first = run(weights, tokens)
    with pytest.raises(UsageError, match="change nothing"):
        run(weights, tokens, freeze=first, edit={"L0H0.scores": torch.zeros_like})
    live = run(weights, tokens, freeze=first.frozen(patterns=False), edit={"L0H0.scores": torch.zeros_like})
    assert not torch.equal(live.patterns[0], first.patterns[0])
