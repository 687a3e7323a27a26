"""Exercise 3, and its twin under rotary positions: induction by K-composition, with hard attention of the first head.

Head 1 attends to the previous token and writes that token's content to v; head 2 asks with its own content and finds, at
the keys' v, the tokens that came after an earlier copy:  s = c(t_i) . v(j) = c(t_i) . c(t_{j-1}).  Equal tokens score 1,
others at most rho. Soft attention in head 1 mixes other contents into v: (1 - leak) G - leak R > 0 keeps head 2 right, G
its margin and R its range (exercises.md B5); for orthonormal contents that is leak < 1/2.
Position 0 attends to itself, so its v is its own content: a query equal to token 0 is left out there (C4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headway.exercises.after_head import AfterPrevious
from headway.exercises.blocks import EXACT, overflow
from headway.exercises.changes import projector
from headway.exercises.givens import Given, as_part
from headway.exercises.pictures_data import attention_picture, example_tokens
from headway.exercises.predicates import attention, rotary
from headway.exercises.proof import Proof
from headway.exercises.rules import offset
from headway.exercises.scoring import Head, proof_of, sharpness, unit_size
from headway.exercises.verdict import Note, Picture, Verdict, failed, passed
from headway.sources.handmade.sharpness import sharpness_for
from headway.sources.handmade.subspaces import Space

Answer = Mapping[str, Tensor]
Earlier = Mapping[str, Mapping[str, Any]]
# Two pairs that tell position, two that hardly turn within the text; by whether the data are hidden.
_THETA = {False: (1.0, 0.4, 0.01, 0.003), True: (0.9, 0.36, 0.009, 0.0027)}


def induction(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """3: head 1 is a previous-token head, and behind it head 2 attends to what came after earlier copies."""
    first = _first_head(given, answer)
    if not first.passed:
        return failed(given.id, first.reason, {**first.facts, "head": 1}, counterexample=first.counterexample)
    head, sizes = unit_size(Head(answer["W_Q2"], answer["W_K2"]))
    W_OV1 = answer["W_O1"] @ answer["W_V1"]
    beyond = overflow("W_OV of head 1", W_OV1)
    if beyond is not None:
        return failed(given.id, *beyond)
    own = AfterPrevious(given, W_OV1)
    proof = own.prove(head)
    picture = _picture(given, own, head)
    notes = (Note("EXCLUDED", {"queries": "tokens without an earlier copy"}), Note("POSITION_0"))
    if proof.passed:
        budget = _budget(given, proof, answer)
        return passed(
            given.id, notes=(*notes, budget), sharpness=sharpness(proof, given.n, sizes=sizes), picture=picture
        )
    if proof.zero:
        return failed(given.id, "ZERO", {"margin": 0.0, "head": 2}, notes=notes, picture=picture)
    reason, facts = _reason(given, answer, own, head, proof)
    example = own.counterexample(head, proof, sizes)
    facts |= {"margin": proof.margin / proof.range, "works_to": proof.works_to, "head": 2}
    return failed(given.id, reason, facts, notes=notes, counterexample=example, picture=picture)


def _first_head(given: Given, answer: Answer) -> Verdict:
    """Head 1's attention, decided as exercise 2c (or its rotary twin) decides it, on this stream."""
    part = {"W_Q": answer["W_Q1"], "W_K": answer["W_K1"]}
    if given.id == "3":
        return attention.previous(as_part(given, "2c"), part, {})
    return rotary.by_offset(_as_2c_rotary(given), part, {})


def _reason(given: Given, answer: Answer, own: AfterPrevious, head: Head, proof: Proof) -> tuple[str, dict[str, Any]]:
    """In order: one change of head 2's sides; what else head 2 reads; what else head 1 reads or writes; the rest."""
    if own.prove(Head(head.W_K, head.W_Q)).passed:
        return "WRONG_READ", {
            "reads": "v where it should read content, and content where it should read v",
            "repair": "SWAP",
        }
    if own.prove(Head(-head.W_Q, head.W_K)).passed:
        return "SIGN", {"repair": "NEGATE"}
    return _leak(given.space, own, head, proof) or _first_ov(given, given.space, answer, own, head)


def _leak(space: Space, own: AfterPrevious, head: Head, proof: Proof) -> tuple[str, dict[str, Any]] | None:
    """What head 2 reads besides v in its keys and content in its query, or instead of them."""
    key, query = projector(space, "v"), projector(space, "content")
    pure = own.prove(Head(head.W_Q @ query, head.W_K @ key))
    if pure.nothing_of(proof):
        reads = max(space.bases, key=lambda name: float((head.W_K @ projector(space, name)).abs().max()))
        if reads == "v":
            reads = "no content in its query"
        return "WRONG_READ", {"reads": f"{reads} of the keys themselves" if reads == "content" else reads, "repair": ""}
    if not pure.passed:
        return None
    eye = torch.eye(own.given.d_model, dtype=torch.float64)
    for side in ("key", "query"):
        for name in ("content", "position", "v", "rest"):
            if name not in space.bases or name == {"key": "v", "query": "content"}[side]:
                continue
            keep = eye - projector(space, name)
            less = Head(head.W_Q @ keep, head.W_K) if side == "query" else Head(head.W_Q, head.W_K @ keep)
            if own.prove(less).passed:
                reason = {"content": "CONTENT_LEAK", "position": "POSITION_LEAK"}.get(name, "EXTRA_READ")
                repair = f"DROP_{name.upper()}" if name != "rest" else ""
                return reason, {"reads": name, "side": side, "repair": repair}
    return "CROSS_TERMS", {"reads": "several things at once", "repair": ""}


def _first_ov(given: Given, space: Space, answer: Answer, own: AfterPrevious, head: Head) -> tuple[str, dict[str, Any]]:
    """What is wrong with what head 1 moves: it reads too much, writes beside v, or writes what head 2 does not read."""
    W_OV = own.W_OV1
    content, v = projector(space, "content"), projector(space, "v")
    size = float(W_OV.abs().max())
    if float((W_OV @ content).abs().max()) <= EXACT * size or size == 0:
        return "WRONG_READ", {"reads": "no content (head 1's W_V)", "repair": ""}
    if AfterPrevious(given, W_OV @ content).prove(head).passed:
        others = [
            n for n in space.bases if n != "content" and float((W_OV @ projector(space, n)).abs().max()) > EXACT * size
        ]
        return "EXTRA_READ", {"reads": ", ".join(others) + " (head 1's W_V)", "repair": ""}
    outside = {n: float((space.read(n) @ W_OV @ content).abs().max()) for n in space.bases if n != "v"}
    place = max(outside, key=lambda name: outside[name])
    if outside[place] > EXACT * size:
        facts = {"with": place, "cosine": _cosine(space, answer["W_O1"]), "repair": ""}
        inside = AfterPrevious(given, v @ W_OV @ content).prove(head).passed
        wrote = float((v @ W_OV @ content).abs().max()) > EXACT * size
        return (
            ("OVERLAP", facts)
            if inside or place != "rest" or wrote
            else ("WRONG_WRITE", {"writes": place, "repair": ""})
        )
    reference = REFERENCES[given.id](given)
    if AfterPrevious(given, reference["W_O1"] @ reference["W_V1"]).prove(head).passed:
        return "DOWNSTREAM", {"part": "head 1", "repair": ""}
    return "WRONG_READ", {"reads": "other combinations of content than head 1 wrote", "repair": ""}


def _cosine(space: Space, W_O: Tensor) -> float:
    """Largest cosine between what head 1 writes and what tokens and positions occupy."""
    taken = torch.cat([space.write(n) for n in ("content", "position") if n in space.bases], dim=1)
    written, occupied = (torch.linalg.qr(m).Q for m in (W_O, taken))
    return float(torch.linalg.svdvals(written.T @ occupied)[0])


def _budget(given: Given, proof: Proof, answer: Answer) -> Note:
    """How soft head 1 may be, and the multiplier of its scores that keeps to it."""
    allowed = min(proof.margin / (proof.margin + proof.range), 0.499)
    head, sizes = unit_size(Head(answer["W_Q1"], answer["W_K1"]))
    here = as_part(given, "2c") if given.id == "3" else _as_2c_rotary(given)
    gap = proof_of(here, head, offset(1)).margin
    return Note(
        "BUDGET",
        {"leak_allowed": allowed, "T": sharpness_for(allowed, gap=gap, rivals=given.n - 1) / sizes[0] / sizes[1]},
    )


def _picture(given: Given, own: AfterPrevious, head: Head) -> Picture:
    """Attention of head 2 on a short text with copies."""
    tokens = example_tokens(given.n, given.n_tokens)

    def row(i: int) -> tuple[Tensor, Tensor]:
        hits = [j > 0 and tokens[j - 1] == tokens[i] for j in range(i + 1)]
        return own.scores(head, tokens[: i + 1]), torch.tensor(hits)

    return attention_picture(tokens, row)


def _as_2c_rotary(given: Given) -> Given:
    """The stream of 3-rotary as its first head's exercise."""
    return replace(given, id="2c-rotary")


def turning_given(id: str, *, hidden: bool, seed: int, more: bool = False) -> Given:
    """Tokens with content and a constant (`one` reads it), scratch `v`, and two fast and two slow pairs (`theta`)."""
    return rotary.rotary_given(id, hidden=hidden, seed=seed, theta=_THETA[hidden], v=4, more=more)


def _published(given: Given) -> dict[str, Tensor]:
    head1 = attention.REFERENCES["2c"](as_part(given, "2c"))
    return {
        "W_Q1": head1["W_Q"],
        "W_K1": head1["W_K"],
        "W_V1": given.u_content,
        "W_O1": given.v_write,
        "W_Q2": given.u_content,
        "W_K2": given.v,
    }


def _turning(given: Given) -> dict[str, Tensor]:
    """Head 1 with a constant query and key in all pairs; head 2 with contents in the two slow pairs."""
    head1 = rotary.REFERENCES["2c-rotary"](_as_2c_rotary(given))
    idle = torch.zeros(given.d_head - 4, given.d_model, dtype=torch.float64)
    return {
        "W_Q1": head1["W_Q"],
        "W_K1": head1["W_K"],
        "W_V1": given.u_content,
        "W_O1": given.v_write,
        "W_Q2": torch.cat((idle, given.u_content)),
        "W_K2": torch.cat((idle, given.v)),
    }


PREDICATES = {"3": induction, "3-rotary": induction}
REFERENCES: dict[str, Callable[[Given], dict[str, Tensor]]] = {"3": _published, "3-rotary": _turning}
GIVENS = {"3-rotary": partial(turning_given, "3-rotary")}
LONGER = {"3-rotary": partial(rotary.rotary_longer, make=turning_given)}
