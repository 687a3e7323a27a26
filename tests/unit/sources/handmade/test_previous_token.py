"""The previous-token model does what its docstring says is known."""

from __future__ import annotations

import pytest
import torch

from headway.errors import UsageError
from headway.model.forward import logits, run
from headway.sources.handmade.kernels import kernel_gap, octaves
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.previous_token import previous_token_model
from headway.sources.handmade.sharpness import sharpness_for


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
    """The gap is that of the best weights, above that of equal ones; the scale follows from it."""
    built = previous_token_model(n_ctx=16, leak=0.05)
    plan = Plan(d_vocab=12, n_ctx=16, leak=0.05)
    offsets = range(1, 15)
    weights = plan.weights_for(offsets)
    assert built.notes["gap L0H0"] == pytest.approx(kernel_gap(octaves(16), offsets, weights), abs=1e-12)
    assert built.notes["gap L0H0"] > kernel_gap(octaves(16), offsets) >= 2 / 4
    assert built.notes["sharpness L0H0"] == sharpness_for(0.05, gap=built.notes["gap L0H0"], rivals=15)
    assert built.weights.config.attn_scale == 1.0 and built.weights.provenance.options["leak"] == 0.05


def test_precision_is_chosen():
    low = previous_token_model(dtype=torch.float32).weights
    assert low.dtype == torch.float32
    assert logits(low, torch.tensor([[0, 5, 1]])).argmax(-1)[0, 2] == 5


def test_a_text_needs_two_positions():
    with pytest.raises(UsageError, match="previous token"):
        previous_token_model(n_ctx=1)
