"""Exercise 2f: induction by pointer arithmetic, with hard attention of the first head.

The first head (2d, 2e) has written to v where the query's token stood before: v @ x = coordinates of p. W_Q reads v
turned forward by one step and W_K reads position, so s = sum_f lambda_f^2 cos(alpha_f (j - p - 1)) is largest at
j = p + 1, the token after the copy.

It is proved for every query (token, i, p < i) against every key (token, j) whose own v holds any q <= j: keys have
attended somewhere too, and without a copy their v is junk. Soft attention in the first head moves v by at most its leak:
(1 - leak) G - leak R > 0 keeps 2f right, G its margin and R its range (exercises.md B5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.exercises.blocks import EXACT
from headway.exercises.changes import negated, only, projector
from headway.exercises.givens import Given, as_part
from headway.exercises.kernel import Kernel, of_block, par_fraction
from headway.exercises.pictures_data import kernel_picture
from headway.exercises.predicates.attention import pairs, turns
from headway.exercises.predicates.writing import write_all as reference_2e
from headway.exercises.proof import Proof, Worst, concluded
from headway.exercises.rules import earlier_copy
from headway.exercises.scoring import Head, proof_of, sharpened, sharpness, unit_size
from headway.exercises.verdict import Counterexample, Note, Picture, Verdict, failed, passed
from headway.sources.handmade.sharpness import sharpness_for

Answer = Mapping[str, Tensor]
Earlier = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Setting:
    """A second head and what stands in v for each pointer: `marks[p]` is what the first head writes from position p."""

    given: Given
    marks: Float[Tensor, "n d_model"]

    def prove(self, head: Head) -> Proof:
        """The proof of 2f: target p + 1, rivals all else, over every (token, p) as query and (token, q <= j) as key.

        A key is token + position + mark, and its score the sum of theirs; token and mark are free of each other, so the
        extremes of the sum are sums of extremes. n^2 V (V + n) numbers instead of n^4 V^2.
        """
        given = self.given
        n, vocab = given.n, given.n_tokens
        by_token, by_place, by_mark = (x @ head.W_K.T for x in (given.tokens, given.positions, self.marks))
        found: list[Worst] = []
        by_query: list[float] = []
        spread = largest = 0.0
        for i in range(n):
            labels = torch.cartesian_prod(torch.arange(vocab), torch.arange(i + 1))
            x = given.tokens[labels[:, 0]] + given.positions[i] + self.marks[labels[:, 1]]
            q = x @ head.W_Q.T
            token, place, mark = q @ by_token.T, q @ by_place[: i + 1].T, q @ by_mark[: i + 1].T
            high = token.amax(1, keepdim=True) + place + mark.cummax(1).values  # marks q <= j can stand at j
            low = token.amin(1, keepdim=True) + place + mark.cummin(1).values
            high[:, i] = low[:, i] = ((x @ head.W_K.T) * q).sum(1)  # at i itself only the query's own
            spread = max(spread, float((high.amax(1) - low.amin(1)).max()))
            largest = max(largest, float(torch.maximum(high.abs(), low.abs()).max()))
            worst = _worst_pointer(high, low, labels, i)
            by_query.append(worst.margin if worst else float("inf"))
            found += [worst] if worst else []
        return concluded(found, by_query, spread, largest)

    def kernel(self, head: Head) -> Kernel:
        """Score against D = p - j: from W_Q on the marks' map of position coordinates, and W_K on positions."""
        given = self.given
        write = given.space.write("position") * given.amplitude.repeat_interleave(2)
        own = torch.linalg.lstsq(_waves(given), self.marks).solution.T  # [d_model, two_k]: marks as a map of waves
        return of_block(given, (head.W_Q @ own).T @ (head.W_K @ write))


def _worst_pointer(high: Tensor, low: Tensor, labels: Tensor, i: int) -> Worst | None:
    """The query at i, with pointer p < i, whose target p + 1 stands lowest over the highest other key."""
    pointing = (labels[:, 1] < i).nonzero()[:, 0]
    if not len(pointing):
        return None
    target = labels[pointing, 1] + 1
    rows = torch.arange(len(pointing))
    others = high[pointing]
    others[rows, target] = -torch.inf
    best, rival = others.max(1)
    margins = low[pointing, target] - best
    k = int(margins.argmin())
    p = int(target[k]) - 1
    return Worst(float(margins[k]), (i, p), (p + 1, 0), (int(rival[k]), 0))


def attend_after_pointer(given: Given, answer: Answer, earlier: Earlier) -> Verdict:
    """2f: for every pointer p < i the key at p + 1 beats every other, whatever stands in the keys' v."""
    head, sizes = unit_size(Head(answer["W_Q"], answer["W_K"]))
    own = _setting(given, earlier["2e"])
    proof = own.prove(head)
    notes = (Note("EXCLUDED", {"queries": "tokens without an earlier copy"}), Note("COPIES"))
    kernel, reference = own.kernel(head), _reference_kernel(given)
    picture = _pointer_picture(kernel, reference, given.n)
    if proof.passed:
        within = range(1 - given.n, given.n - 1)  # p - j, p < i and j <= i
        share = par_fraction(kernel, proof.margin, within, -1, head.W_Q.shape[0] // 2)
        return passed(
            given.id,
            notes=(*notes, _budget(given, proof, earlier["2d"])),
            sharpness=sharpness(proof, given.n, share, sizes=sizes),
            picture=picture,
        )
    if proof.zero:
        return failed(given.id, "ZERO", {"margin": 0.0}, picture=picture)
    reason, facts = _pointer_reason(given, own, head, proof)
    facts |= {"margin": proof.margin / proof.range, "works_to": proof.works_to}
    return failed(
        given.id, reason, facts, notes=notes, counterexample=_sequence(own, head, proof, sizes), picture=picture
    )


def _setting(given: Given, part: Mapping[str, Any]) -> Setting:
    return Setting(given, given.positions @ (part["W_O"] @ part["W_V"]).T)


def _waves(given: Given) -> Float[Tensor, "n two_k"]:
    """(cos alpha_f m, sin alpha_f m) of every position, pair after pair."""
    angles = torch.arange(given.n, dtype=torch.float64)[:, None] * given.alpha
    return torch.stack((angles.cos(), angles.sin()), dim=-1).flatten(1)


def _reference_kernel(given: Given) -> Kernel:
    reference = REFERENCES["2f"](given)
    return _setting(given, reference_2e(given)).kernel(Head(reference["W_Q"], reference["W_K"]))


def _budget(given: Given, proof: Proof, part: Mapping[str, Any]) -> Note:
    """How soft the first head may be: its largest leak, and the multiplier of its scores that keeps to it."""
    allowed = proof.margin / (proof.margin + proof.range)
    head, sizes = unit_size(Head(part["W_Q"], part["W_K"]))
    first = proof_of(as_part(given, "2d"), head, earlier_copy())
    multiplier = sharpness_for(min(allowed, 0.499), gap=first.margin, rivals=given.n - 1) / sizes[0] / sizes[1]
    return Note("BUDGET", {"leak_allowed": allowed, "T": multiplier})


def _pointer_reason(given: Given, own: Setting, head: Head, proof: Proof) -> tuple[str, dict[str, Any]]:
    """In order: right for the reference's 2e; right but for what else it reads; reads no pointer; sign; offset; alias."""
    plain = _setting(given, reference_2e(given))
    if plain.prove(head).passed:
        return "DOWNSTREAM", {"part": "2e", "repair": ""}
    space = given.space
    pointer = Head(head.W_Q @ projector(space, "v"), only(given, head, "position").W_K)
    alone = own.prove(pointer)
    if alone.passed:
        return _what_leaks(given, own, head)
    if alone.nothing_of(proof):
        position = float((head.W_Q @ space.write("position")).abs().max())
        own_position = position > EXACT * float((head.W_Q @ space.write("content")).abs().max())
        reads = "its own position" if own_position else "no pointer"
        return "WRONG_READ", {"reads": reads, "repair": ""}
    kernel = own.kernel(pointer)
    steps = {"TURN_FORWARD": 1.0, "TURN_BACK": -1.0, "TURN_FORWARD_TWICE": 2.0}
    mended = "NEGATE" if own.prove(negated(given, head)).passed else ""
    turned = (name for name, by in steps.items() if own.prove(Head(_turned_pointer(own, head, by), head.W_K)).passed)
    mended = mended or next(turned, "")
    offsets = range(-(given.n - 1), given.n)
    ahead = -list(offsets)[int(kernel.at(list(offsets)).argmax())]  # j - p where the kernel is highest
    facts: dict[str, Any] = {"offset": ahead, "wanted_offset": 1, "repair": mended}
    if mended == "NEGATE":
        return "SIGN", facts
    if ahead == -1:
        return "SIGN", facts | {"behind": 1}
    if kernel.share < 0.5:
        return "WRONG_READ", facts | {"reads": "where a pair stands, not how far apart it is"}
    if kernel.stands_out(-1, offsets):
        return "WRONG_READ", facts | {"reads": "where a pair stands besides how far apart it is"}
    if kernel.peaks(-1) and proof.first is not None:
        return "ALIAS", facts | {"offset": proof.first.rival[0] - proof.first.query[1]}
    return "OFFSET", facts


def _what_leaks(given: Given, own: Setting, head: Head) -> tuple[str, dict[str, Any]]:
    """Which extra read breaks a head that would be right: taken out one at a time, the first that mends it is named."""
    space = given.space
    eye = torch.eye(given.d_model, dtype=torch.float64)
    for reason, side, name in (
        ("CONTENT_LEAK", "query", "content"),
        ("CONTENT_LEAK", "key", "content"),
        ("POSITION_LEAK", "query", "position"),
        ("EXTRA_READ", "key", "v"),
    ):
        keep = eye - projector(space, name)
        changed = Head(head.W_Q @ keep, head.W_K) if side == "query" else Head(head.W_Q, head.W_K @ keep)
        if own.prove(changed).passed:
            return reason, {"side": side, "reads": name, "repair": f"DROP_{name.upper()}"}
    return "CROSS_TERMS", {"reads": "several things at once", "repair": ""}


def _turned_pointer(own: Setting, head: Head, steps: float) -> Tensor:
    """W_Q that reads, of each mark, the mark `steps` later."""
    given = own.given
    waves = torch.linalg.lstsq(_waves(given), own.marks).solution.T  # [d_model, two_k]
    turn = turns(given, steps, *range(len(given.alpha)))
    moved = waves @ (turn - torch.eye(len(turn), dtype=turn.dtype)) @ torch.linalg.pinv(waves)
    return head.W_Q + head.W_Q @ moved


def _sequence(own: Setting, head: Head, proof: Proof, sizes: tuple[float, float]) -> Counterexample | None:
    """The shortest real sequence that fails: one copy of the query's token at p, all other tokens different from it, and
    keys without a copy marked with their own position. None when only keys' marks that such sequences lack break it.
    """
    given = own.given
    start = proof.first.query[0] if proof.first else 1
    for i in range(max(start, 1), given.n):
        for p in range(i):
            tokens = [1 + m % (given.n_tokens - 1) for m in range(i + 1)]
            tokens[p] = tokens[i] = 0
            last: dict[int, int] = {}
            pointers: list[int] = []
            for m, t in enumerate(tokens):
                pointers.append(last.get(t, m))
                last[t] = m
            x = given.tokens[tokens] + given.positions[: i + 1] + own.marks[pointers]
            row = (x @ head.W_K.T) @ (head.W_Q @ x[i])
            others = row.clone()
            others[p + 1] = -torch.inf
            if bool(row[p + 1] <= others.max() + 1e-6 * proof.range):
                attention, by = sharpened(row)
                shown = by / sizes[0] / sizes[1]
                return Counterexample(tuple(tokens), i, (p + 1,), tuple(attention.tolist()), shown)
    return None


def _pointer_picture(yours: Kernel, wanted: Kernel, n: int) -> Picture:
    """Score against j - p, which the kernel knows as D = p - j."""
    mine, theirs = (Kernel(k.alpha, k.cosine, -k.sine, k.share) for k in (yours, wanted))
    return kernel_picture(mine, theirs, 1, n)


def _after(given: Given) -> dict[str, Tensor]:
    return {"W_Q": turns(given, 1.0, 0, 1) @ given.v[:4], "W_K": pairs(given, 0, 1)}


PREDICATES = {"2f": attend_after_pointer}
REFERENCES = {"2f": _after}
