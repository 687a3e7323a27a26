"""Exercises 2a-2d: one head's attention, proved over all sequences of the exercise's tokens and positions.

    2a  same token       s = c_i . c_j                         W_Q = W_K = u_content
    2b  itself           s = kappa(i - j)                      W_Q = W_K = pairs (u_cos, u_sin)
    2c  previous token   s = kappa(i - j - 1)                  W_Q turned back by one step
    2d  earlier copies   s = c_i . c_j - beta kappa(i - j)     both stacked, with 0 < beta < (1 - rho) / R

kappa(D) = sum_f lambda_f^2 cos(alpha_f D); rho the largest cosine of two tokens' contents; R the range of kappa over
offsets D >= 1. 2d: a copy scores 1 - beta kappa(D >= 1) and beats the query itself, 1 - beta kappa(0), since
kappa(D) < kappa(0); it beats every other token, at most rho - beta kappa(D'), as long as beta R < 1 - rho.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headway.exercises.changes import CONTENT_REPAIRS, POSITION_REPAIRS, negated, only, scaled_position, unmixed
from headway.exercises.diagnosis import (
    NEGLIGIBLE,
    Facts,
    Shares,
    colliding_tokens,
    common_facts,
    leak_reason,
    offset_reason,
    repair,
    shares,
)
from headway.exercises.givens import Given
from headway.exercises.kernel import kernel_of, par_fraction
from headway.exercises.pictures_data import example_tokens, kernel_picture, pattern_picture
from headway.exercises.proof import Proof, Rule, prove
from headway.exercises.rules import earlier_copy, offset, same_token
from headway.exercises.scoring import Head, counterexample, proof_of, sharpness, states_of, unit_size
from headway.exercises.verdict import Note, Verdict, failed, passed
from headway.sources.handmade.parts import rotation

_NO_PENALTY = 1e-20  # of the content variance: position terms that are only rounding
Answer = Mapping[str, Tensor]
Earlier = Mapping[str, Mapping[str, Any]]


def same_content(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """2a: every copy of the query's token beats every other token, in every sequence."""
    return _decide(given, _head(answer), same_token())


def itself(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """2b: the query's own position beats every other, whatever the tokens."""
    return _decide(given, _head(answer), offset(0), back=0)


def previous(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """2c: position i - 1 beats every other for every i >= 1, whatever the tokens."""
    return _decide(given, _head(answer), offset(1), back=1)


def earlier_copies(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """2d: every earlier copy of the query's token beats the query itself and every other token."""
    return _decide(given, _head(answer), earlier_copy())


def _head(answer: Answer) -> Head:
    return Head(answer["W_Q"], answer["W_K"])


def _decide(given: Given, head: Head, rule: Rule, back: int | None = None) -> Verdict:
    head, sizes = unit_size(head)
    states = states_of(given, head)
    proof = prove(states, rule)
    if proof.passed:
        share = None
        if back is not None:
            kernel, pairs_of_rows = kernel_of(given, head), head.W_Q.shape[0] // 2
            share = par_fraction(kernel, proof.margin, range(given.n), back, pairs_of_rows)
        return passed(
            given.id,
            notes=_notes(given.id),
            sharpness=sharpness(proof, given.n, share, sizes=sizes),
            picture=_picture(given, head, rule, back, example_tokens(given.n, given.n_tokens)),
        )
    if proof.zero:
        return failed(given.id, "ZERO", {"margin": 0.0})
    reason, facts = _REASONS[given.id](given, head, proof, rule)
    example = counterexample(states, proof, rule, sizes)
    shown = example.tokens if example else example_tokens(given.n, given.n_tokens)
    return failed(
        given.id,
        reason,
        common_facts(proof) | facts,
        notes=_notes(given.id),
        counterexample=example,
        picture=_picture(given, head, rule, back, shown),
    )


def _picture(given: Given, head: Head, rule: Rule, back: int | None, tokens: tuple[int, ...]) -> Any:
    if back is None:
        return pattern_picture(states_of(given, head), rule, tokens)
    reference = REFERENCES[given.id](given)
    return kernel_picture(kernel_of(given, head), kernel_of(given, _head(reference)), back, given.n)


def _notes(id: str) -> tuple[Note, ...]:
    """What every verdict of an exercise leaves out, and what else is true of even a right answer."""
    if id == "2c":
        return (Note("EXCLUDED", {"queries": "position 0"}),)
    if id == "2d":
        return (Note("EXCLUDED", {"queries": "tokens without an earlier copy"}), Note("COPIES"))
    return ()


def _content_reason(given: Given, head: Head, _: Proof, rule: Rule) -> tuple[str, Facts]:
    """2a, in order: right but for a leak; reads something else; wrong sign, of all or of one component; two sides that
    read contents differently; lengths that differ in what is read.
    """
    found = shares(given, head)
    if proof_of(given, only(given, head, "content"), rule).passed:
        return leak_reason(found, "POSITION"), {"share": 1 - found.content, "repair": "DROP_POSITION"}
    if found.content < NEGLIGIBLE:
        return "WRONG_READ", {"reads": _reads(found), "repair": ""}
    for pc, row in enumerate(given.u_content):
        flip = torch.eye(given.d_model, dtype=row.dtype) - 2 * torch.outer(_writer(given, pc), row)
        if proof_of(given, Head(head.W_Q @ flip, head.W_K), rule).passed:
            return "SIGN", {"pc": pc, "repair": "FLIP_PC"}
    if proof_of(given, negated(given, head), rule).passed:
        return "SIGN", {"pc": "all", "repair": "NEGATE"}
    writers = torch.stack([_writer(given, pc) for pc in range(len(given.u_content))], dim=1)
    block = (head.W_Q @ writers).T @ (head.W_K @ writers)
    values = torch.linalg.svdvals(block)
    if float(values.max()) <= 1e-9 * float(head.W_Q.norm() * head.W_K.norm()):
        return "WRONG_READ", {"reads": "directions of content other than u_content", "repair": ""}
    if float((block - block.T).abs().max()) > 1e-6 * float(values.max()):
        mended = repair(given, head, rule, CONTENT_REPAIRS)
        return "WRONG_READ", {"reads": "different combinations of the contents on the two sides", "repair": mended}
    # Both sides read the same combinations; equal tokens still lose when lengths differ in what is read (C5).
    contents = given.tokens @ given.u_content.T
    dims = int((values > 1e-6 * values.max()).sum())
    facts: Facts = {"tokens": colliding_tokens(contents, block), "repair": ""}
    if dims < len(values):
        return "NORM", facts | {"dims": dims}
    return "NORM", facts | {"uneven": float(values.max() / values.min())}


def _writer(given: Given, pc: int) -> Tensor:
    """The direction that writes one principal component of content and no other."""
    write = given.space.write("content")
    return write @ (given.u_content[pc] @ write)


def _position_reason(back: int) -> Any:
    def reason(given: Given, head: Head, _: Proof, rule: Rule) -> tuple[str, Facts]:
        """2b, 2c, in order: right but for content; reads no position; then what the kernel of its positions says."""
        found = shares(given, head)
        position = only(given, head, "position")
        alone = proof_of(given, position, rule)
        if alone.passed:
            return leak_reason(found, "CONTENT"), {"share": 1 - found.position, "repair": "DROP_CONTENT"}
        if found.position < NEGLIGIBLE or alone.zero:
            return "WRONG_READ", {"reads": _reads(found), "repair": ""}
        kernel = kernel_of(given, position)
        mended = repair(given, head, rule, POSITION_REPAIRS)
        return offset_reason(kernel, alone, back, given.n, mended)

    return reason


def _penalty_reason(given: Given, head: Head, proof: Proof, rule: Rule) -> tuple[str, Facts]:
    """2d, in order: no content; no position; all of it negated; then the factor on the penalty that would mend it, with
    cross terms taken out first where there are any.
    """
    found = shares(given, head)
    if proof_of(given, unmixed(given, head), rule).passed:
        return "CROSS_TERMS", {"share": found.mixed, "repair": ""}
    if found.content == 0 or found.content < NEGLIGIBLE**2 * found.position:
        return "WRONG_READ", {"reads": _reads(found), "repair": ""}
    if found.position < _NO_PENALTY * found.content:
        return "TIE", {"repair": ""}
    if proof_of(given, negated(given, head), rule).passed:
        return "SIGN", {"repair": "NEGATE"}
    mixes = found.mixed > NEGLIGIBLE
    pure = unmixed(given, head) if mixes else head
    factor = _mending_factor(given, pure, rule)
    if factor is None:
        return "WRONG_READ", {"reads": _reads(found), "repair": ""}
    if mixes:
        return "CROSS_TERMS", {"share": found.mixed, "repair": ""}
    if factor < 0:
        return "SIGN", {"repair": "NEGATE_PENALTY", "factor": abs(factor)}
    facts: Facts = {"repair": "SCALE_PENALTY", "factor": _edge(given, pure, rule, factor)}
    if proof.worst is not None:
        facts["offset"] = proof.worst.query[0] - proof.worst.rival[0]
    return ("BETA_HIGH" if factor < 1 else "BETA_LOW"), facts


def _mending_factor(given: Given, head: Head, rule: Rule) -> float | None:
    """The power of two nearest to 1 (or to -1, when only the other sign helps) by which the penalty is right."""
    for sign in (1.0, -1.0):
        for k in range(24):
            for factor in (sign * 2.0**-k, sign * 2.0**k):
                if _penalty_passes(given, head, factor, rule):
                    return factor
    return None


def _penalty_passes(given: Given, head: Head, factor: float, rule: Rule) -> bool:
    return proof_of(given, scaled_position(given, head, factor), rule).passed


def _edge(given: Given, head: Head, rule: Rule, good: float) -> float:
    """Where passing ends on the way from a factor that mends towards the learner's own, 1."""
    bad = 2 * good if good < 1 else good / 2
    for _ in range(12):
        middle = (good + bad) / 2
        if _penalty_passes(given, head, middle, rule):
            good = middle
        else:
            bad = middle
    return good


def _reads(found: Shares) -> str:
    """The largest part of what a head's scores depend on, in words."""
    parts = {
        "content": found.content,
        "position": found.position,
        "content against position": found.mixed,
        "directions that hold neither content nor position": found.rest,
    }
    return max(parts, key=lambda name: parts[name])


_REASONS: dict[str, Any] = {
    "2a": _content_reason,
    "2b": _position_reason(0),
    "2c": _position_reason(1),
    "2d": _penalty_reason,
}


def pairs(given: Given, *chosen: int) -> Tensor:
    """Reading rows u_cos, u_sin of the chosen frequency pairs, one after the other."""
    return torch.stack([row for f in chosen for row in (given.u_cos[f], given.u_sin[f])])


def turns(given: Given, steps: float, *chosen: int) -> Tensor:
    """Block-diagonal rotation R(steps alpha_f) of the chosen pairs."""
    return rotation(steps * given.alpha[list(chosen)])


def _match(given: Given) -> dict[str, Tensor]:
    return {"W_Q": given.u_content, "W_K": given.u_content}


def _self(given: Given) -> dict[str, Tensor]:
    rows = pairs(given, 0, 1)
    return {"W_Q": rows, "W_K": rows}


def _previous(given: Given) -> dict[str, Tensor]:
    rows = pairs(given, 0, 1)
    return {"W_Q": turns(given, -1.0, 0, 1) @ rows, "W_K": rows}


def _not_itself(given: Given) -> dict[str, Tensor]:
    """beta of largest margin, (1 - rho) / (kappa(0) - min kappa), rho from the tokens, kappa from the amplitudes."""
    contents = given.tokens @ given.u_content.T
    rho = float((contents @ contents.T - 2 * torch.eye(given.n_tokens, dtype=torch.float64)).max())
    offsets = torch.arange(given.n, dtype=torch.float64)[:, None]
    kernel = (given.amplitude[:2].square() * (offsets * given.alpha[:2]).cos()).sum(1)
    beta = (1 - rho) / float(kernel[0] - kernel.min())
    rows = pairs(given, 0, 1)
    return {"W_Q": torch.cat((given.u_content, -beta * rows)), "W_K": torch.cat((given.u_content, rows))}


PREDICATES = {"2a": same_content, "2b": itself, "2c": previous, "2d": earlier_copies}
REFERENCES = {"2a": _match, "2b": _self, "2c": _previous, "2d": _not_itself}
