"""Exercises 2b and 2c under rotary positions: nothing positional in the stream, rotations inside the head instead.

    score  s_ij = (R_i W_Q x_i) . (R_j W_K x_j) = (W_Q x_i)^T R_{j-i} (W_K x_j),   R_m turns dims (2f, 2f+1) by m theta_f

A head that is to look by offset alone needs a query and a key that every token shares: each token holds one unit of a
constant direction, read by `given.one`. With k = c (1, 0, 1, 0, ...) and q = k the score is a sum of cos theta_f D, which
peaks at the query itself; with q = R_{-1} k it peaks one step back. No causal mask helps and none is needed; position 0
has no previous token (exercises.md B4). Only changes of basis that commute with the rotations leave a head the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headway.exercises.diagnosis import common_facts, offset_reason
from headway.exercises.givens import Given
from headway.exercises.kernel import kernel_of, par_fraction
from headway.exercises.pictures_data import kernel_picture
from headway.exercises.proof import Proof, prove
from headway.exercises.rules import offset
from headway.exercises.scoring import Head, counterexample, proof_of, sharpness, states_of, unit_size
from headway.exercises.verdict import Note, Verdict, failed, passed
from headway.exercises.worlds import world
from headway.sources.handmade.parts import rotation

Answer = Mapping[str, Tensor]
Earlier = Mapping[str, Mapping[str, Any]]
_BACK = {"2b-rotary": 0, "2c-rotary": 1}


def by_offset(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """The key `back` positions before beats every other, whatever the tokens."""
    head, sizes = unit_size(Head(answer["W_Q"], answer["W_K"]))
    back = _BACK[given.id]
    rule = offset(back)
    states = states_of(given, head)
    proof = prove(states, rule)
    notes = (Note("EXCLUDED", {"queries": "position 0"}),) if back else ()
    kernel = kernel_of(given, head)
    reference = REFERENCES[given.id](given)
    wanted = kernel_of(given, Head(reference["W_Q"], reference["W_K"]))
    picture = kernel_picture(kernel, wanted, back, given.n)
    if proof.passed:
        share = par_fraction(kernel, proof.margin, range(given.n), back, len(given.theta))
        return passed(given.id, notes=notes, sharpness=sharpness(proof, given.n, share, sizes=sizes), picture=picture)
    if proof.zero:
        return failed(given.id, "ZERO", {"margin": 0.0}, notes=notes, picture=picture)
    reason, facts = _reason(given, head, proof, back)
    example = counterexample(states, proof, rule, sizes)
    every = common_facts(proof) | facts
    return failed(given.id, reason, every, notes=notes, counterexample=example, picture=picture)


def _reason(given: Given, head: Head, whole: Proof, back: int) -> tuple[str, dict[str, Any]]:
    """In order: right but for content; reads nothing constant; then what the kernel of the constant part says."""
    rule = offset(back)
    constant = torch.outer(given.one_write, given.one)
    alone = Head(head.W_Q @ constant, head.W_K @ constant)
    proof = proof_of(given, alone, rule)
    if proof.passed:
        return "CONTENT_LEAK", {"repair": "DROP_CONTENT"}
    if proof.nothing_of(whole):
        return "WRONG_READ", {"reads": "content", "repair": ""}
    steps = {
        "NEGATE": Head(-head.W_Q, head.W_K),
        "TURN_BACK": Head(_stepped(given, head.W_Q, -1.0), head.W_K),
        "TURN_FORWARD": Head(_stepped(given, head.W_Q, 1.0), head.W_K),
        "SWAP": Head(head.W_K, head.W_Q),
    }
    mended = next((name for name, other in steps.items() if proof_of(given, other, rule).passed), "")
    return offset_reason(kernel_of(given, alone), proof, back, given.n, mended)


def _stepped(given: Given, W: Tensor, steps: float) -> Tensor:
    """W with each pair of its rows turned by `steps` positions."""
    return rotation(steps * given.theta) @ W


def rotary_given(
    id: str, *, hidden: bool, seed: int, theta: Sequence[float] = (), v: int = 0, more: bool = False
) -> Given:
    """Tokens that hold content and one unit of a constant direction; positions are zeros. Attributes: one (reads the
    constant), one_write, theta (angle a position of each pair of head dims, as `alpha` elsewhere).

    theta: the angles, by default those of the world's positions. v: scratch dims to name. more: the same bases with more
    positions and tokens.
    """
    there = world(hidden=hidden, seed=seed)
    spectrum, space = there.spectrum, there.space
    n, n_tokens = (spectrum.n_longer, spectrum.n_tokens_longer) if more else (spectrum.n, spectrum.n_tokens)
    one, write = space.read("rest")[0], space.write("rest")[:, 0]
    angles = torch.tensor(tuple(theta) or spectrum.alpha, dtype=torch.float64)
    return Given(
        id=id,
        d_model=space.d_model,
        d_head=2 * len(angles),
        n=n,
        n_tokens=n_tokens,
        hidden=hidden,
        seed=seed,
        u_content=there.components @ space.read("content"),
        v=space.read("v")[:v],
        v_write=space.write("v")[:, :v],
        tokens=there.contents[:n_tokens] @ space.write("content").T + write,
        positions=torch.zeros(n, space.d_model, dtype=torch.float64),
        extra={"one": one, "one_write": write, "theta": angles},
        subspaces=space,
    )


def rotary_longer(here: Given, make: Callable[..., Given] = rotary_given) -> Given | None:
    """The same bases with more positions and tokens; None on the hidden data."""
    return None if here.hidden else make(here.id, hidden=False, seed=here.seed, more=True)


def constant_rows(given: Given) -> Tensor:
    """Rows that read the constant into the first dim of each pair: k = (1, 0, 1, 0, ...) for every token."""
    first = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(len(given.theta))
    return torch.outer(first, given.one)


def _self(given: Given) -> dict[str, Tensor]:
    rows = constant_rows(given)
    return {"W_Q": rows, "W_K": rows}


def _previous(given: Given) -> dict[str, Tensor]:
    rows = constant_rows(given)
    return {"W_Q": _stepped(given, rows, -1.0), "W_K": rows}


PREDICATES = dict.fromkeys(_BACK, by_offset)
REFERENCES = {"2b-rotary": _self, "2c-rotary": _previous}
GIVENS = {id: partial(rotary_given, id) for id in _BACK}
LONGER = dict.fromkeys(_BACK, rotary_longer)
