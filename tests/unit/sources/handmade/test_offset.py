"""Heads that look a fixed number of positions back: bounds by enumeration, sinusoids and rotary, any basis."""

from __future__ import annotations

import math

import pytest
import torch

from headway.errors import UsageError
from headway.model.forward import logits, run
from headway.provenance import Provenance
from headway.sources.handmade.built import Built, assemble
from headway.sources.handmade.compiler import compile_model, ends
from headway.sources.handmade.kernels import reachable
from headway.sources.handmade.offset import Offset
from headway.sources.handmade.parts import Copy, Part, kernel_rows
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space
from support.pair_scores import embedded, pair_scores


def model(back: int, *, positions: str = "learned", n_ctx: int = 20, leak: float = 0.01) -> Built:
    plan = Plan(d_vocab=7, n_ctx=n_ctx, leak=leak, positions=positions)
    return compile_model([[Part(Offset(back), Copy("content", "out"))]], plan)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("back", [0, 1, 2, 5, 19])
def test_the_margin_is_the_stated_gap_over_every_sequence(back: int, positions: str):
    """The worst margin over all tokens and positions equals sharpness times gap: the bound is exact."""
    built = model(back, positions=positions)
    stream = embedded(built.weights)
    scores = pair_scores(built.weights, "L0H0", stream, stream)
    worst = math.inf
    for i in range(back, 20):
        right = scores[i, :, i - back, :].min(1).values
        wrong = [scores[i, :, j, :].max(1).values for j in range(i + 1) if j != i - back]
        worst = min([worst, *(float((right - rival).min()) for rival in wrong)])
    assert worst == pytest.approx(built.notes["sharpness L0H0"] * built.notes["gap L0H0"], rel=1e-9)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("back", [0, 1, 3])
def test_it_keeps_its_leak_and_says_the_token(back: int, positions: str):
    built = model(back, positions=positions)
    tokens = torch.randint(1, 7, (3, 20), generator=torch.Generator().manual_seed(back))
    tokens[:, 0] = 0
    found = run(built.weights, tokens)
    assert float(found.patterns[0][:, 0].diagonal(-back, dim1=-2, dim2=-1).min()) >= 1 - 0.01
    said = found.logits.softmax(-1)[:, back + 1 :].gather(-1, tokens[:, 1 : 20 - back, None])
    assert float(said.min()) >= 1 - 0.01
    assert (built.weights.W_pos is None) == (positions == "rotary")


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_contents_take_no_part(positions: str):
    weights = model(1, positions=positions).weights
    a, b = (run(weights, t).patterns[0] for t in (torch.arange(7)[None], torch.zeros(1, 7, dtype=torch.int64)))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_the_wrong_sign_looks_elsewhere(positions: str):
    """Turned forwards the query asks for i + 1, which the mask hides (exercises.md C7)."""
    slow = (0.15, 0.05) if positions == "learned" else ()
    plan = Plan(d_vocab=7, n_ctx=20, positions=positions, frequencies=slow)
    right = compile_model([[Part(Offset(1), Copy())]], plan)

    class Ahead(Offset):
        def rows(self, space: Space, plan: Plan, sharpness: float):
            weights = tuple(sharpness * w for w in plan.weights_for(reachable(plan.n_ctx)))
            return kernel_rows(space, plan, weights, back=-1)

    wrong = compile_model([[Part(Ahead(), Copy())]], plan)
    tokens = torch.zeros(1, 20, dtype=torch.int64)
    looks = [run(built.weights, tokens).patterns[0][0, 0].argmax(-1)[1:] for built in (right, wrong)]
    assert torch.equal(looks[0], torch.arange(19)) and not bool((looks[1] == torch.arange(19)).any())
    if positions == "learned":
        assert torch.equal(looks[1], torch.arange(1, 20)), "with slow pairs the nearest visible position is itself"


def test_amplitudes_do_not_matter_and_any_basis_will_do():
    """Decreasing amplitudes, in bases that lean on each other: the pattern is that of equal ones in an orthonormal one."""
    frequencies, n = (2.0, 0.7, 0.25), 5
    random = torch.Generator().manual_seed(0)
    sizes = {"content": n, "position": 6, "out": n}
    bases = {name: torch.randn(24, k, generator=random, dtype=torch.float64) for name, k in sizes.items()}
    bases["position"] = bases["position"] + bases["content"].sum(1, keepdim=True)
    parts = [[Part(Offset(1), Copy())]]
    plain = Plan(d_vocab=n, n_ctx=12, bos=False, frequencies=frequencies)
    decreasing = Plan(d_vocab=n, n_ctx=12, bos=False, frequencies=frequencies, amplitudes=(1.0, 0.8, 0.3))
    one, two = compile_model(parts, plain), compile_model(parts, decreasing, space=Space(24, bases))
    tokens = torch.tensor([[4, 0, 2, 2, 1, 3, 0, 4, 4, 1, 2, 3]])
    first, second = (run(built.weights, tokens) for built in (one, two))
    torch.testing.assert_close(first.patterns[0], second.patterns[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(first.logits, second.logits, rtol=0, atol=1e-8)
    assert logits(two.weights, tokens).argmax(-1)[0, 1:].tolist() == tokens[0, :-1].tolist()


def test_circuits_are_those_of_the_docstring():
    plan = Plan(d_vocab=3, n_ctx=9, bos=False, frequencies=(1.0, 0.3), amplitudes=(0.9, 0.5), seed=1)
    built = compile_model([[Part(Offset(1), Copy("content", "out"))]], plan)
    P, T = built.space.write("position"), built.notes["sharpness L0H0"]
    turn = torch.zeros(4, 4, dtype=torch.float64)
    for f, (a, r, w) in enumerate(zip((1.0, 0.3), (0.9, 0.5), plan.weights_for(reachable(9)), strict=True)):
        block = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64)
        turn[2 * f : 2 * f + 2, 2 * f : 2 * f + 2] = w / r**2 * block
    head = built.weights.head("L0H0")
    torch.testing.assert_close(head.qk().dense(), T * P @ turn @ P.T)
    torch.testing.assert_close(head.ov.dense(), built.space.write("out") @ built.space.write("content").T)


def test_a_model_without_positions_has_no_offsets():
    with pytest.raises(UsageError, match=r"L0H0 reads 'position', which nothing before it writes .positions are none"):
        compile_model([[Part(Offset(1), Copy())]], Plan(positions="none"))
    with pytest.raises(UsageError, match="0 to n_ctx-1 = 3"):
        compile_model([[Part(Offset(4), Copy())]], Plan(n_ctx=4))


def test_aliases_are_refused():
    """A period within reach makes a wrong offset tie: no scale helps."""
    with pytest.raises(UsageError, match="a rival scores as high"):
        compile_model([[Part(Offset(1), Copy())]], Plan(n_ctx=12, frequencies=(2 * math.pi / 8, 2 * math.pi / 4)))


def test_a_head_can_be_made_by_itself():
    plan = Plan(d_vocab=5, n_ctx=8, bos=False)
    space = Space.allocate({"content": 5, "position": 2 * plan.pairs, "out": 5})
    head = Part(Offset(1), Copy()).head(space, plan, sharpness=60.0)
    weights = assemble([[head]], ends(space, plan, logit_scale=9.0), n_ctx=8, bos=None, provenance=Provenance())
    assert float(run(weights, torch.arange(5)[None]).patterns[0][0, 0].diagonal(-1).min()) > 0.99
