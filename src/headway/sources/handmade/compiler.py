"""From parts to a model: every head gets the subspaces it needs and the scale that keeps its leak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from headway.errors import UsageError, did_you_mean
from headway.provenance import Provenance
from headway.sources.handmade.built import Built, assemble
from headway.sources.handmade.parts import Part
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.sharpness import sharpness_for
from headway.sources.handmade.subspaces import Space

OUT = "out"  # what W_U reads; the only subspace that several heads may add to


def compile_model(
    layers: Sequence[Sequence[Part]], plan: Plan, *, space: Space | None = None, name: str = "compile_model"
) -> Built:
    """A model of these heads, layer by layer, in which every head keeps the plan's leak.

    Subspaces: tokens write `content` (and `start` for BOS, `one` under rotary positions), W_pos writes `position`, each
    head its target; W_U reads `out`, where a token has its own content again. They are allocated orthonormally, or taken
    from `space`, which may be in any independent basis. Scales: T = log((n_ctx - 1)(1 - leak) / leak) / gap for each head,
    the gap counting what earlier heads leaked; W_U's likewise, so that the token a single head copied has probability at
    least 1 - leak where it attends right.
    Raises UsageError, by name, when a head reads what nothing before it writes, when two heads write to one subspace other
    than `out` or onto what tokens wrote, when a given space lacks a subspace or has one of another size, and when a gap
    is not positive. notes: leak, logit_scale, and `gap L0H0`, `sharpness L0H0` of each head that has a gap.

    >>> from headway.sources.handmade import Copy, Offset
    >>> two = compile_model([[Part(Offset(2), Copy())]], Plan(d_vocab=9, n_ctx=16))
    >>> from headway.model.forward import logits
    >>> import torch
    >>> logits(two.weights, torch.tensor([[0, 4, 7, 2, 8]])).argmax(-1)[0, 3:].tolist()
    [4, 7]
    """
    sizes, leaks = _embedded(plan), dict.fromkeys(_embedded(plan), 0.0)
    owners = dict.fromkeys(sizes, "tokens and positions")
    notes: dict[str, float] = {"leak": plan.leak}
    scales: dict[str, float] = {}
    for i, layer in enumerate(layers):
        found: dict[str, float] = {}
        for j, part in enumerate(layer):
            head = f"L{i}H{j}"
            _check_reads(part, plan, leaks, head)
            _claim(part, head, sizes, owners)
            gap = part.look.gap(plan, leaks)
            scales[head] = 0.0 if gap is None else sharpness_for(plan.leak, gap=gap, rivals=plan.n_ctx - 1)
            if gap is not None:
                notes |= {f"gap {head}": gap, f"sharpness {head}": scales[head]}
            found[part.move.target] = max(
                found.get(part.move.target, 0.0), leaks[part.move.source] + (0.0 if gap is None else plan.leak)
            )
        leaks |= found  # heads of one layer do not read each other
    sizes.setdefault(OUT, sizes["content"])
    space = _placed(sizes, plan) if space is None else _checked(space, sizes)
    notes["logit_scale"] = sharpness_for(plan.leak, gap=1 - 2 * leaks.get(OUT, 0.0), rivals=plan.d_vocab - 1)
    weights = assemble(
        [
            [part.head(space, plan, sharpness=scales[f"L{i}H{j}"]) for j, part in enumerate(layer)]
            for i, layer in enumerate(layers)
        ],
        ends(space, plan, logit_scale=notes["logit_scale"]),
        n_ctx=plan.n_ctx,
        bos=0 if plan.bos else None,
        provenance=Provenance(source=f"handmade {name}", options={"leak": plan.leak}, seed=plan.seed),
    )
    return Built(weights, space, notes)


def ends(space: Space, plan: Plan, *, logit_scale: float) -> dict[str, Float[Tensor, "..."]]:
    """W_E, W_U and, where positions are in the stream, W_pos."""
    embedded = space.write("content") @ plan.contents
    if plan.bos:
        embedded[:, :1] = space.write("start")
    if plan.positions == "rotary":
        embedded[:, int(plan.bare_bos) :] += space.write("one")
    found = {"W_E": embedded, "W_U": logit_scale * plan.contents.T @ space.read(OUT)}
    return found | ({"W_pos": space.write("position") @ plan.waves()} if plan.positions == "learned" else {})


def _embedded(plan: Plan) -> dict[str, int]:
    """What the tokens and positions themselves write, with sizes."""
    sizes = {"content": len(plan.contents)}
    if plan.positions == "learned":
        sizes["position"] = 2 * plan.pairs
    if plan.positions == "rotary":
        sizes["one"] = 1
    return sizes | ({"start": 1} if plan.bos else {})


def _check_reads(part: Part, plan: Plan, known: Mapping[str, float], head: str) -> None:
    for name in dict.fromkeys((*part.look.reads(plan), part.move.source)):
        if name not in known:
            why = f" (positions are {plan.positions})" if name == "position" else ""
            raise UsageError(
                f"{head} reads {name!r}, which nothing before it writes{why}",
                expected=f"one of {', '.join(known)}",
                next_step=did_you_mean(name, known),
            )


def _claim(part: Part, head: str, sizes: dict[str, int], owners: dict[str, str]) -> None:
    """Give the head its target, or say who has it."""
    target, size = part.move.target, part.move.size(sizes)
    if target in owners and target != OUT:
        raise UsageError(
            f"{head} would write to {target!r}, which belongs to {owners[target]}",
            expected=f"a subspace of its own, or {OUT!r}",
            got=target,
            next_step="What two writers add to one subspace cannot be read apart",
        )
    if target == OUT and size != sizes["content"]:
        expected = f"contents, {sizes['content']} dims, which W_U reads"
        raise UsageError(f"{head} would write {part.move.source!r} to {OUT!r}", expected=expected, got=f"{size} dims")
    sizes[target], owners[target] = size, head


def _placed(sizes: Mapping[str, int], plan: Plan) -> Space:
    return Space.allocate(sizes, seed=plan.seed, dtype=plan.dtype)


def _checked(space: Space, sizes: Mapping[str, int]) -> Space:
    """The given space, if it has every subspace at its size."""
    wrong = {name: size for name, size in sizes.items() if space.sizes.get(name) != size}
    if wrong:
        expected = ", ".join(f"{name} {size}" for name, size in wrong.items())
        raise UsageError("the space does not hold what the model needs", expected=expected, got=repr(space))
    return space
