"""A head under an exercise's domain: its states, the proof, how sharp it is, and the sequence on which it fails."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headway.exercises.givens import Given
from headway.exercises.proof import Proof, Rule, States, prove
from headway.exercises.verdict import Counterexample, Sharpness
from headway.sources.handmade.sharpness import sharpness_for

LEAK = 0.01  # the sharpness meter's stated leak
SPREAD = 10.0  # nats between the largest and least score of a row that is shown


class Head(NamedTuple):
    """The two factors of W_QK = W_Q^T W_K, each [d_head, d_model]."""

    W_Q: Float[Tensor, "d_head d_model"]
    W_K: Float[Tensor, "d_head d_model"]


def unit_size(head: Head) -> tuple[Head, tuple[float, float]]:
    """The head with the largest entry of each factor 1, and what they were: products can then not overflow or vanish.

    A zero factor stays as it is, with size 1.
    """
    sizes = [float(factor.abs().max()) or 1.0 for factor in head]
    return Head(head.W_Q / sizes[0], head.W_K / sizes[1]), (sizes[0], sizes[1])


def states_of(given: Given, head: Head) -> States:
    """Queries and keys of every token at every position; with rotary positions (`given.theta`) turned there."""
    x = given.streams()
    q, k = x @ head.W_Q.T, x @ head.W_K.T
    if "theta" in given.extra:
        q, k = turned(q, given.theta), turned(k, given.theta)
    return States.of(q, k)


def turned(x: Float[Tensor, "n state two_k"], theta: Float[Tensor, "k"]) -> Float[Tensor, "n state two_k"]:
    """Rotary positions: dims (2f, 2f+1) of what stands at position m turn by m theta_f."""
    angles = torch.arange(x.shape[0], dtype=x.dtype)[:, None, None] * theta
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


def proof_of(given: Given, head: Head, rule: Rule) -> Proof:
    """The proof over all sequences of the exercise's tokens and positions."""
    return prove(states_of(given, head), rule)


def sharpness(proof: Proof, n: int, par_fraction: float | None = None, *, sizes: tuple[float, float]) -> Sharpness:
    """The meter of a head that passed: margin against its own range, and the multiplier for a 1 % leak.

    sizes: what `unit_size` took out of the factors before the proof.
    """
    multiplier = sharpness_for(LEAK, gap=proof.margin, rivals=n - 1) / sizes[0] / sizes[1]
    return Sharpness(multiplier, proof.margin / proof.range, par_fraction)


def counterexample(
    states: States, proof: Proof, rule: Rule, sizes: tuple[float, float] = (1.0, 1.0)
) -> Counterexample | None:
    """The shortest sequence in which a wrong key wins or ties, with the attention row of the query that errs.

    sizes: what `unit_size` took out of the factors of these states.
    Positions that play no part hold the token that scores least there, other than the query's own where possible.
    """
    if proof.first is None:
        return None
    i, query = proof.first.query
    at = {i: query, proof.first.target[0]: proof.first.target[1], proof.first.rival[0]: proof.first.rival[1]}
    scores = torch.einsum("h,jsh->js", states.Q[i, query], states.K[: i + 1])
    others = states.at[: i + 1] & (states.labels[:, 0] != states.labels[query, 0])
    for j in range(i + 1):
        if j not in at:
            allowed = others[j] if bool(others[j].any()) else states.at[j]
            at[j] = int(scores[j].masked_fill(~allowed, torch.inf).argmin())
    chosen = [at[j] for j in range(i + 1)]
    targets = rule(states, i)[0][query]
    row = scores[torch.arange(i + 1), chosen]
    attention, by = sharpened(row)
    return Counterexample(
        tokens=tuple(int(states.labels[s, 0]) for s in chosen),
        query=i,
        target=tuple(j for j in range(i + 1) if bool(targets[j, chosen[j]])),
        attention=tuple(attention.tolist()),
        sharpened_by=by / sizes[0] / sizes[1],
    )


def sharpened(row: Float[Tensor, "key_pos"]) -> tuple[Float[Tensor, "key_pos"], float]:
    """Softmax of a row stretched so that its largest and least score are SPREAD nats apart, and the stretch."""
    width = float(row.max() - row.min())
    by = SPREAD / width if width > 0 else 1.0
    return (row * by).softmax(0), by
