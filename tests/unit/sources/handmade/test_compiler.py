"""The compiler: subspaces by name, clashes refused by name, scales that keep the stated leak, any basis."""

from __future__ import annotations

import math

import pytest
import torch

from headway.errors import UsageError
from headway.model.forward import run
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.copying import Everywhere
from headway.sources.handmade.match import Match
from headway.sources.handmade.offset import Offset
from headway.sources.handmade.parts import Copy, Part
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space

PREVIOUS = Part(Offset(1), Copy("content", "previous"))
INDUCTION = Part(Match("previous"), Copy("content", "out"))


def test_subspaces_and_notes():
    built = compile_model([[PREVIOUS], [INDUCTION]], Plan(d_vocab=9, n_ctx=20, leak=0.02))
    assert built.space.sizes == {"content": 8, "position": 10, "start": 1, "previous": 8, "out": 8}
    assert built.weights.config.d_model == 35 and built.weights.config.positions == "learned"
    assert set(built.notes) == {
        "leak", "logit_scale", "gap L0H0", "sharpness L0H0", "gap L1H0", "sharpness L1H0",
    }  # fmt: skip
    for head in ("L0H0", "L1H0"):
        wanted = math.log(19 * 0.98 / 0.02) / built.notes[f"gap {head}"]
        assert built.notes[f"sharpness {head}"] == pytest.approx(wanted)
    rotary = compile_model([[PREVIOUS], [INDUCTION]], Plan(d_vocab=9, n_ctx=20, positions="rotary"))
    assert rotary.space.sizes == {"content": 8, "one": 1, "start": 1, "previous": 8, "out": 8}
    assert rotary.weights.config.rotary_dims == 10 and rotary.weights.W_pos is None


@pytest.mark.parametrize("leak", [0.2, 0.01, 1e-4])
@pytest.mark.parametrize("n_ctx", [10, 60])
def test_the_stated_leak_is_met_at_the_stated_length(leak: float, n_ctx: int):
    built = compile_model([[PREVIOUS], [INDUCTION]], Plan(d_vocab=40, n_ctx=n_ctx, leak=leak))
    tokens = torch.randint(1, 40, (4, n_ctx), generator=torch.Generator().manual_seed(1))
    tokens[:, 0] = 0
    found = run(built.weights, tokens)
    off = 1 - float(found.patterns[0][:, 0].diagonal(-1, dim1=-2, dim2=-1).min())
    assert 0 < off <= leak
    for row, pattern in zip(tokens.tolist(), found.patterns[1][:, 0], strict=True):
        for i in range(1, n_ctx):
            right = [j for j in range(1, i + 1) if row[j - 1] == row[i]] or [0]
            assert float(pattern[i, right].sum()) >= 1 - leak


def test_leaks_add_up_along_a_chain():
    """Three steps back through three heads: what W_U reads may be wrong by three leaks, and its scale knows."""
    steps = [("content", "one_back"), ("one_back", "two_back"), ("two_back", "out")]
    layers = [[Part(Offset(1), Copy(a, b))] for a, b in steps]
    built = compile_model(layers, Plan(d_vocab=9, n_ctx=20, leak=0.05, bos=False))
    assert built.notes["logit_scale"] == pytest.approx(math.log(8 * 19) / (1 - 2 * 0.15))
    tokens = torch.randint(0, 9, (2, 20), generator=torch.Generator().manual_seed(1))
    said = run(built.weights, tokens).logits.softmax(-1)
    assert float(said[:, 3:].gather(-1, tokens[:, :-3, None]).min()) >= 0.95
    with pytest.raises(UsageError, match="rival scores as high"):
        compile_model(layers, Plan(d_vocab=9, n_ctx=20, leak=0.2))


def test_several_heads_side_by_side():
    layers = [[PREVIOUS, Part(Offset(2), Copy("content", "two_back"))], [INDUCTION, Part(Everywhere(), Copy())]]
    built = compile_model(layers, Plan(d_vocab=9, n_ctx=20))
    assert built.weights.config.n_heads == 2 and "gap L1H1" not in built.notes
    found = run(built.weights, torch.tensor([[0, 3, 4, 5, 3]]))
    assert found.logits.argmax(-1)[0, -1] == 4, "both heads add to `out`"
    assert float(found.patterns[0][0, 1].diagonal(-2).min()) > 0.99


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_stream_in_any_basis_gives_the_same_model(positions: str):
    plan = Plan(d_vocab=7, n_ctx=16, positions=positions)
    straight = compile_model([[PREVIOUS], [INDUCTION]], plan)
    random = torch.Generator().manual_seed(5)
    bases = {k: torch.randn(50, n, generator=random, dtype=torch.float64) for k, n in straight.space.sizes.items()}
    bases["content"] = bases["content"] + 0.5 * bases["out"]
    skewed = compile_model([[PREVIOUS], [INDUCTION]], plan, space=Space(50, bases))
    tokens = torch.tensor([[0, 3, 1, 6, 3, 1, 2, 2, 6, 3]])
    one, two = run(straight.weights, tokens), run(skewed.weights, tokens)
    for a, b in zip(one.patterns, two.patterns, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-7)
    torch.testing.assert_close(one.logits, two.logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        ([[INDUCTION]], "L0H0 reads 'previous', which nothing before it writes"),
        ([[PREVIOUS, INDUCTION]], "L0H1 reads 'previous'"),
        ([[PREVIOUS], [Part(Match("previus"), Copy())]], "Did you mean previous"),
        ([[PREVIOUS, Part(Offset(2), Copy("content", "previous"))]], "L0H1 would write to 'previous', .* belongs to L0H0"),
        ([[Part(Offset(1), Copy("content", "content"))]], "'content', which belongs to tokens and positions"),
        ([[Part(Offset(1), Copy("content", "start"))]], "'start', which belongs to tokens"),
        ([[Part(Offset(1), Copy("position", "out"))]], "contents, 63 dims, which W_U reads, got 14 dims"),
        ([[Part(Offset(1), Copy("contents", "v"))]], "Did you mean content"),
    ],
)  # fmt: skip
def test_clashes_are_refused_by_name(layers: list[list[Part]], says: str):
    with pytest.raises(UsageError, match=says):
        compile_model(layers, Plan())


def test_a_given_space_must_hold_everything():
    plan = Plan(d_vocab=9, n_ctx=20)
    with pytest.raises(UsageError, match="previous 8, out 8"):
        compile_model(
            [[PREVIOUS], [INDUCTION]], plan, space=Space.allocate({"content": 8, "position": 10, "start": 1, "out": 7})
        )


def test_no_layers_are_uniform():
    built = compile_model([], Plan(d_vocab=5))
    assert float(run(built.weights, torch.tensor([[0, 3]])).logits.abs().max()) < 1e-12
