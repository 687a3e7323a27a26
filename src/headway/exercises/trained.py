"""The exercises' questions asked of a head of any model: is it a previous-token head, for every text, and how nearly?

In the first layer the stream is token and position alone, so the exercises' proof over all sequences holds for a trained
head as it does for a written one, on the tokens and positions chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

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
_SEQUENCES = 64


@dataclass(frozen=True)
class GradedHead:
    """How a head answers an exercise.

    passed: it holds for every sequence of these tokens and positions. relative_margin: the worst margin over the largest
    range of a row, -1 to 1, negative where some sequence breaks it. works_to: positions up to which every sequence is
    right. right: share of queries of random sequences whose largest score is a target's; mass: their mean attention on
    targets. n, n_tokens: the domain. (Queries without a target are left out.)
    """

    head: str
    exercise: str
    passed: bool
    relative_margin: float
    works_to: int
    right: float
    mass: float
    n: int
    n_tokens: int


def grade_head(
    weights: Weights, head: str | HeadId, exercise: str, *, n: int = 24, n_tokens: int = 24, seed: int = 0
) -> GradedHead:
    """Grade one head of the first layer by exercise 2a, 2b, 2c or 2d, on `n_tokens` random tokens at n positions.

    Exact up to rounding, in float64: biases, norms and positions are those of the model; BOS takes no part. Raises
    UnknownName for a head or exercise that does not exist, UsageError for a head of a later layer, whose stream is no
    function of token and position.

    >>> from headway.sources.handmade import previous_token_model
    >>> grade_head(previous_token_model().weights, "L0H0", "2c", n=8, n_tokens=6).passed
    True
    """
    if exercise not in RULES:
        known = ", ".join(RULES)
        raise UnknownName(f"no head is graded by {exercise!r}", expected=known, next_step=did_you_mean(exercise, RULES))
    found = weights.head_id(head)
    if found.layer:
        raise UsageError(
            f"{found} reads what earlier heads wrote",
            expected="a head of layer 0, whose stream is token and position",
            next_step="Study it with headway heads or hw.behaviour",
        )
    n = min(n, weights.config.n_ctx)
    tokens = _tokens(weights, n_tokens, seed)
    states = _states(weights, found, tokens, n)
    rule = RULES[exercise]()
    proof = prove(states, rule)
    right, mass = _typical(states, rule, weights.head(found).attn_scale, seed)
    margin = proof.margin / proof.range if proof.range > 0 else 0.0
    return GradedHead(str(found), exercise, proof.passed, margin, proof.works_to, right, mass, n, len(tokens))


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


def _typical(states: States, rule: Rule, scale: float, seed: int) -> tuple[float, float]:
    """Share of queries whose largest score is a target's, and mean attention on targets, over random sequences."""
    n, vocab = states.Q.shape[:2]
    random = np.random.Generator(np.random.PCG64([seed, 1]))
    texts = torch.from_numpy(random.integers(0, vocab, (_SEQUENCES, n)))
    right: list[Float[Tensor, "hit"]] = []
    mass: list[Float[Tensor, "hit"]] = []
    for i in range(n):
        keys = torch.arange(i + 1)
        targets = rule(states, i)[0]
        for text in texts:
            hit = targets[text[i], keys, text[: i + 1]]
            if bool(hit.any()):
                row = scale * states.K[keys, text[: i + 1]] @ states.Q[i, text[i]]
                right.append(hit[row.argmax()].double())
                mass.append(row.softmax(0)[hit].sum())
    return float(torch.stack(right).mean()), float(torch.stack(mass).mean())
