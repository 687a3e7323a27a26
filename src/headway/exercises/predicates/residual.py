"""Exercises 1a-1d: heads that move dims of the stream, and a virtual head that reaches two tokens back.

Head 1 copies dims 0-3 of the previous token to dims 8-11; head 2 reads one of those, so that W_OV2 W_OV1 copies one dim
from two tokens back, and three dims that head 1 never touches. Only W_OV1 and W_OV2 count, so any basis inside a head
passes. In (1 + A W2)(1 + A W1) = 1 + A (W1 + W2) + A^2 W2 W1 the middle matrix has rank 8, not 7, where all copies land on
dims of their own: the row that relays also copies what the previous token had in that dim to begin with (exercises.md C1).
A head 2 that writes onto dims 8-11 lets copies of the two heads coincide: every coincidence takes one from the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headway.exercises.blocks import EXACT, Problem, close, copy_problem, copying, dims_text, overflow, rank, used
from headway.exercises.givens import Given
from headway.exercises.verdict import Note, Picture, Verdict, failed, passed

Answer = Mapping[str, Any]
Earlier = Mapping[str, Mapping[str, Any]]
D_MODEL, D_HEAD = 16, 4
COPY = {0: 8, 1: 9, 2: 10, 3: 11}  # head 1: dim read -> dim written
_FREE = (4, 5, 6, 7, 12, 13, 14, 15)  # dims that head 1 neither reads nor writes


def copy_dims(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """1a: dims 0-3 to dims 8-11, at scale 1, and nothing else."""
    W_OV = answer["W_O"] @ answer["W_V"]
    picture = _picture(W_OV, copying(COPY, D_MODEL))
    problem = copy_problem(W_OV, COPY)
    if problem is not None:
        return failed(given.id, *problem, picture=picture)
    return passed(given.id, notes=_basis(answer["W_V"]), picture=picture)


def two_back(given: Given, answer: Answer, earlier: Earlier) -> Verdict:
    """1b: one dim of 0-3 through head 1 and head 2, and three further dims of the previous token."""
    W1, W2 = _product(earlier["1a"]), answer["W_O"] @ answer["W_V"]
    picture = _picture(W2, _reference_2())
    problem = overflow("W_OV", W2) or _second_head(W2)
    if problem is not None:
        return failed(given.id, *problem, picture=picture)
    notes = _basis(answer["W_V"])
    ones = [(int(w), int(r)) for w, r in (W2.abs() > EXACT).nonzero()]
    if not close(W2[W2.abs() > EXACT], torch.ones(D_HEAD, dtype=torch.float64)) or len(ones) != D_HEAD:
        notes += (Note("MIXED"),)
    if any(written == read or written in COPY.values() for written, read in ones):
        notes += (Note("OVERLAP"),)
    notes += (Note("RANK", {"name": "W_OV2 W_OV1", "rank": rank(W2 @ W1)}),)
    return passed(given.id, notes=notes, picture=picture)


def _second_head(W2: Tensor) -> Problem | None:
    """Why W2 is no second head: what it reads of each kind of dim, then whether it keeps four things apart, then sizes."""
    size = float(W2.abs().max())
    if size == 0:
        return "ZERO", {}
    read = used(W2, 0, size)
    again, relayed = [d for d in read if d in COPY], [d for d in read if d in COPY.values()]
    fresh = [d for d in read if d in _FREE]
    if again:
        return "EXTRA_READ", {"reads": f"{dims_text(again)}, which head 1 copies already", "size": 1.0, "repair": ""}
    if not relayed:
        return "WRONG_READ", {"reads": "none of dims 8 to 11: there is no virtual head", "repair": ""}
    if len(relayed) > 1:
        facts = {"reads": f"{dims_text(relayed)}: {len(relayed)} of 8 copies would reach two tokens back", "size": 1.0}
        return "EXTRA_READ", facts | {"repair": ""}
    if len(fresh) != 3:
        facts = {
            "reads": f"{len(fresh)} dims that head 1 leaves alone ({dims_text(fresh)})" if fresh else "no fresh dims"
        }
        return "WRONG_READ", facts | {"repair": ""}
    if rank(W2) < D_HEAD:
        return "RANK", {"got": str(rank(W2)), "wanted": str(D_HEAD)}
    return _sizes(W2, relayed[0], size)


def _sizes(W2: Tensor, relayed: int, size: float) -> Problem | None:
    """Single copies must be at scale 1; an invertible mixture of the three fresh dims has no scale to compare."""
    for read in used(W2, 0, size):
        column = W2[:, read]
        places = used(column[:, None], 1, size)
        if len(places) > 1 and read == relayed:
            return "WRONG_WRITE", {
                "writes": f"{dims_text(places)} at once for the dim of two tokens back",
                "repair": "",
            }
        row = W2[places[0]]
        single = len(places) == 1 and len(used(row[None], 0, size)) == 1
        if single and abs(float(column[places[0]]) - 1) > EXACT:
            factor = float(column[places[0]])
            return "SIGN" if factor < 0 else "SCALE", {"factor": factor, "repair": ""}
        if not single and read == relayed:
            return "WRONG_WRITE", {"writes": f"{dims_text(places)}, where another copy lands too", "repair": ""}
    return None


def products(given: Given, answer: Answer, earlier: Earlier) -> Verdict:
    """1c: W_OV of both heads."""
    wanted = {"W_OV1": _product(earlier["1a"]), "W_OV2": _product(earlier["1b"])}
    if close(answer["W_OV1"], wanted["W_OV2"]) and close(answer["W_OV2"], wanted["W_OV1"]):
        return failed(given.id, "ORDER", {"got": "head 2, head 1", "wanted": "head 1, head 2"})
    return _entries(given, answer, wanted) or passed(given.id)


def terms(given: Given, answer: Answer, earlier: Earlier) -> Verdict:
    """1d: W2 W1 and W1 + W2, and their ranks; that of W1 + W2 also as it acts on streams whose dims 8-11 start empty."""
    W1, W2 = _product(earlier["1a"]), _product(earlier["1b"])
    wanted = {"two_token": W2 @ W1, "one_token": W1 + W2}
    if not close(answer["two_token"], wanted["two_token"]) and close(answer["two_token"], W1 @ W2):
        return failed(given.id, "ORDER", {"got": "W_OV1 W_OV2", "wanted": "W_OV2 W_OV1"})
    problem = _entries(given, answer, wanted)
    if problem is not None:
        return problem
    others = [dim for dim in range(D_MODEL) if dim not in COPY.values()]
    whole, empty = rank(wanted["one_token"]), rank(wanted["one_token"][:, others])
    for name, right in (("rank_two_token", {rank(wanted["two_token"])}), ("rank_one_token", {whole, empty})):
        if answer[name] not in right:
            return failed(given.id, "RANK", {"name": name, "got": f"{answer[name]:g}"})
    facts = {"rank": whole, "empty": empty} if empty != whole else {"rank": whole}
    return passed(given.id, notes=(Note("ONE_TOKEN", facts),))


def _entries(given: Given, answer: Answer, wanted: Mapping[str, Tensor]) -> Verdict | None:
    for name, matrix in wanted.items():
        yours = answer[name]
        if close(yours, matrix):
            continue
        picture = _picture(yours, matrix)
        if close(yours, matrix.T):
            return failed(given.id, "TRANSPOSED", picture=picture)
        if float(yours.abs().max()) == 0:
            return failed(given.id, "ZERO", picture=picture)
        facts = {"name": name, "error": float((yours - matrix).abs().max())}
        return failed(given.id, "VALUE", facts, picture=picture)
    return None


def _product(part: Mapping[str, Any]) -> Tensor:
    return part["W_O"] @ part["W_V"]


def _basis(W_V: Tensor) -> tuple[Note, ...]:
    """A note when the inside of the head is not on axes: it does not matter."""
    on_axes = bool(((W_V.abs() > EXACT).sum(1) <= 1).all())
    return () if on_axes else (Note("BASIS"),)


def _picture(yours: Tensor, wanted: Tensor) -> Picture:
    names = tuple(str(i) for i in range(len(wanted)))
    return Picture("matrix", yours.numpy(), wanted.numpy(), (yours - wanted).numpy(), names, names)


def _factors(pairs: Mapping[int, int]) -> dict[str, Tensor]:
    W_V, W_O = torch.zeros(D_HEAD, D_MODEL, dtype=torch.float64), torch.zeros(D_MODEL, D_HEAD, dtype=torch.float64)
    for f, (read, written) in enumerate(pairs.items()):
        W_V[f, read] = W_O[written, f] = 1.0
    return {"W_V": W_V, "W_O": W_O}


_SECOND = {4: 12, 5: 13, 6: 14, 8: 15}


def _reference_2() -> Tensor:
    return copying(_SECOND, D_MODEL)


def residual_given(id: str, *, hidden: bool, seed: int) -> Given:
    """16 plain dims and heads of 4; from 1b on W_V1, W_O1 (the published 1a), for 1c and 1d W_V2, W_O2 (1b) too."""
    extra: dict[str, Any] = {}
    if id != "1a":
        extra |= {f"{name}1": matrix for name, matrix in _factors(COPY).items()}
    if id in {"1c", "1d"}:
        extra |= {f"{name}2": matrix for name, matrix in _factors(_SECOND).items()}
    return Given(id=id, d_model=D_MODEL, d_head=D_HEAD, n=0, n_tokens=0, hidden=hidden, seed=seed, extra=extra)


def _both(_: Given) -> dict[str, Tensor]:
    return {"W_OV1": copying(COPY, D_MODEL), "W_OV2": _reference_2()}


def _terms(_: Given) -> dict[str, Any]:
    W1, W2 = copying(COPY, D_MODEL), _reference_2()
    return {"two_token": W2 @ W1, "one_token": W1 + W2, "rank_two_token": 1, "rank_one_token": 8}


PREDICATES = {"1a": copy_dims, "1b": two_back, "1c": products, "1d": terms}
REFERENCES: dict[str, Callable[[Given], dict[str, Any]]] = {
    "1a": lambda _: _factors(COPY),
    "1b": lambda _: _factors(_SECOND),
    "1c": _both,
    "1d": _terms,
}
GIVENS = {id: partial(residual_given, id) for id in PREDICATES}
