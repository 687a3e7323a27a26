"""The exercises' questions asked of a head of any model: is it a previous-token head, for every text, and how nearly?

In the first layer the stream is token and position alone, so the exercises' proof over all sequences holds for a trained
head as it does for a written one, on the tokens and positions chosen. Later heads read what earlier ones wrote: they are
observed on random sequences, and proved nothing of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headway.algebra.null import check_seed
from headway.behaviour.repeated import token_pool
from headway.errors import UnknownName, UsageError, did_you_mean
from headway.exercises.proof import Rule, States, prove
from headway.exercises.rules import earlier_copy, offset, same_token
from headway.ids import HeadId
from headway.model.forward import run
from headway.model.positions import rotary_waves, rotate, sinusoids
from headway.model.process import processed
from headway.model.weights import Weights

RULES: dict[str, Callable[[], Rule]] = {
    "2a": same_token,
    "2b": lambda: offset(0),
    "2c": lambda: offset(1),
    "2d": earlier_copy,
}
GRADED = (*RULES, "3")
_SEQUENCES = 64


@dataclass(frozen=True)
class GradedHead:
    """How a head answers an exercise.

    Proved, for heads of the first layer in 2a-2d, else None:
    passed: it holds for every sequence of these tokens and positions. relative_margin: the worst margin over the largest
    range of a row, -1 to 1, negative where some sequence breaks it. works_to: positions up to which every sequence is
    right.

    Observed on random sequences of these tokens, after BOS where the model has one: right: share of queries whose largest
    attention is a target's, 0 to 1; mass: their mean attention on targets, a probability. Queries without a target are
    left out; None where there are no others. n, n_tokens: positions (without BOS) and tokens.
    """

    head: str
    exercise: str
    passed: bool | None
    relative_margin: float | None
    works_to: int | None
    right: float | None
    mass: float | None
    n: int
    n_tokens: int


@torch.no_grad()
def grade_head(
    weights: Weights, head: str | HeadId, exercise: str, *, n: int = 24, n_tokens: int = 24, seed: int = 0
) -> GradedHead:
    """Grade one head by exercise 2a, 2b, 2c, 2d or 3 (its second head), on `n_tokens` random tokens at n positions.

    The proof is exact up to rounding, in float64: biases, norms and positions are those of the model; BOS takes no part
    in it. Raises UnknownName for a head or exercise that does not exist, UsageError for sizes below 1.

    >>> from headway.sources.handmade import previous_token_model
    >>> grade_head(previous_token_model().weights, "L0H0", "2c", n=8, n_tokens=6).passed
    True
    """
    if exercise not in GRADED:
        known = ", ".join(GRADED)
        raise UnknownName(
            f"no head is graded by {exercise!r}", expected=known, next_step=did_you_mean(exercise, GRADED)
        )
    for name, size in (("n", n), ("n_tokens", n_tokens)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"{name} of a graded head", expected="a whole number >= 1", got=repr(size))
    check_seed(seed)
    found = weights.head_id(head)
    lead = 0 if weights.config.bos is None else 1
    n = max(1, min(n, weights.config.n_ctx - lead))
    tokens = _tokens(weights, n_tokens, seed)
    right, mass = _observed(weights, found, exercise, _texts(weights, tokens, n, seed))
    passed = margin = works_to = None
    if not found.layer and exercise in RULES:
        proof = prove(_states(weights, found, tokens, n), RULES[exercise]())
        margin = proof.margin / proof.range if proof.range > 0 else 0.0
        passed, works_to = proof.passed, proof.works_to
    return GradedHead(str(found), exercise, passed, margin, works_to, right, mass, n, len(tokens))


def _tokens(weights: Weights, n_tokens: int, seed: int) -> Tensor:
    pool = token_pool(weights.config).numpy()
    random = np.random.Generator(np.random.PCG64(seed))
    return torch.from_numpy(random.choice(pool, min(n_tokens, len(pool)), replace=False))


def _states(weights: Weights, head: HeadId, tokens: Tensor, n: int) -> States:
    """Query and key vectors of every token at every position, as the first layer's head makes them."""
    seen = processed(weights.to(torch.float64, device="cpu"), "folded")
    c, at = seen.config, seen.head(head)
    recording = run(seen, tokens[:, None].repeat(1, n))
    x = recording.streams[0]
    if recording.norm_scales is not None:
        x = x * recording.norm_scales[0][..., None]
    places = torch.arange(n)
    read = {"Q": x, "K": x}
    extra: dict[str, Tensor | float] = {"Q": 0.0, "K": 0.0}
    if c.positions == "shortformer":
        waves = sinusoids(places, c).double()
        for side, index in (("Q", head.head), ("K", head.head // c.group)):
            own = getattr(seen, f"W_{side}_pos")
            extra[side] = waves @ (getattr(at, f"W_{side}") if own is None else own[0, index]).T
    q, k = (
        read[side] @ getattr(at, f"W_{side}").T + extra[side] + (0.0 if bias is None else bias)
        for side, bias in (("Q", at.b_Q), ("K", at.b_K))
    )
    if c.rotary_dims:
        cos, sin = (w.double() for w in rotary_waves(places, c))
        q, k = (rotate(t, cos, sin, c.rotary_pairs) for t in (q, k))
    return States.of(q.transpose(0, 1), k.transpose(0, 1))


def _texts(weights: Weights, tokens: Tensor, n: int, seed: int) -> Int[Tensor, "row pos"]:
    """Random sequences of these tokens, with replacement, after BOS where there is one."""
    random = np.random.Generator(np.random.PCG64([seed, 1]))
    texts = tokens[torch.from_numpy(random.integers(0, len(tokens), (_SEQUENCES, n)))]
    bos = weights.config.bos
    return texts if bos is None else torch.cat((texts.new_full((_SEQUENCES, 1), bos), texts), dim=1)


def _observed(
    weights: Weights, head: HeadId, exercise: str, texts: Int[Tensor, "row pos"]
) -> tuple[float | None, float | None]:
    """Share of queries whose largest attention is a target's, and mean attention on targets."""
    pattern = run(weights, texts.to(weights.device)).patterns[head.layer][:, head.head].double().cpu()
    hits = targets(exercise, texts)
    if weights.config.bos is not None:
        hits[:, 0] = False  # BOS asks nothing
    queries = hits.any(-1)
    if not bool(queries.any()):
        return None, None
    top = hits.gather(-1, pattern.argmax(-1, keepdim=True))[..., 0]
    mass = (pattern * hits).sum(-1)
    return float(top[queries].double().mean()), float(mass[queries].mean())


def targets(exercise: str, texts: Int[Tensor, "row pos"]) -> Bool[Tensor, "row query_pos key_pos"]:
    """Where each query of a text should look.

    >>> targets("3", torch.tensor([[5, 6, 5]]))[0].nonzero().tolist()
    [[2, 1]]
    """
    count = texts.shape[1]
    same = texts[:, :, None] == texts[:, None, :]
    back = torch.arange(count)[:, None] - torch.arange(count)
    if exercise in {"2b", "2c"}:
        return (back == (exercise == "2c")).expand_as(same).clone()
    if exercise == "3":  # the key after an earlier copy; the query itself counts where its token stands twice
        same = torch.cat((torch.zeros_like(same[:, :, :1]), same[:, :, :-1]), dim=2)
    return same & (back >= (exercise == "2d"))
