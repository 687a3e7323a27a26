"""Warm-ups w1-w7: the parts of a head as matrices, and what of them has a meaning.

    w1  W_QK = W_Q^T W_K        w4  other factors of the same circuits        w6  ranks: at most d_head
    w2  W_OV = W_O W_V          w5  h(x) = A x W_OV^T from W_QK and W_OV      w7  what one head hands to the next
    w3  A = softmax over j <= i of scale x_i^T W_QK x_j

Answers are compared with what the definition gives, to a relative 1e-6. A near miss is recognised by making it: each
usual slip is computed, and an answer that equals one is told which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.exercises.answer import kind_of, tensor_of
from headway.exercises.blocks import EXACT, close, overflow, rank
from headway.exercises.givens import Given
from headway.exercises.raised import guarded
from headway.exercises.verdict import Note, Picture, Verdict, failed, passed

Answer = Mapping[str, Any]
Earlier = Mapping[str, Mapping[str, Any]]
Facts = dict[str, Any]
_RETURNED = "what head returns"
_TRIALS = ((7, 5), (1, 6), (11, 9))  # (positions, d_model) of the streams that w5's function is tried on


def pattern(W_QK: Tensor, x: Tensor, scale: float, *, masked: bool = True, late: bool = False) -> Tensor:
    """Causal attention [n, n]; unmasked, or masked after the softmax, for recognising those slips."""
    scores = scale * x @ W_QK @ x.T
    allowed = torch.ones(len(x), len(x), dtype=torch.bool).tril()
    if masked and not late:
        scores = scores.masked_fill(~allowed, -torch.inf)
    found = scores.softmax(-1)
    return found * allowed if late else found


def qk(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """w1: W_QK = W_Q^T W_K."""
    return _product(given, "W_QK", answer["W_QK"], given.W_Q.T @ given.W_K)


def ov(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """w2: W_OV = W_O W_V."""
    return _product(given, "W_OV", answer["W_OV"], given.W_O @ given.W_V)


def attention(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """w3: the pattern of a QK circuit on a stream."""
    yours, x, W_QK, scale = answer["pattern"], given.x, given.W_QK, given.scale
    wanted = pattern(W_QK, x, scale)
    picture = _picture(yours, wanted)
    if close(yours, wanted):
        return passed(given.id, picture=picture)
    slips: dict[str, tuple[Tensor, Facts]] = {
        "UNMASKED": (pattern(W_QK, x, scale, masked=False), {"query": 0}),
        "MASK_LATE": (pattern(W_QK, x, scale, late=True), {"query": 0, "total": float(yours[0].sum())}),
        "UNSCALED": (pattern(W_QK, x, 1.0), {}),
        "TRANSPOSED": (wanted.T, {}),
        "SWAPPED": (pattern(W_QK.T, x, scale), {"circuit": "W_QK"}),
        "NO_SOFTMAX": ((scale * x @ W_QK @ x.T).tril(), {}),
    }
    reason, facts = _slip(yours, slips) or ("VALUE", {"name": "pattern", "error": float((yours - wanted).abs().max())})
    return failed(given.id, reason, facts, picture=picture)


def other_matrices(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """w4: four other matrices, the same two circuits."""
    names = ("W_Q", "W_K", "W_V", "W_O")
    same = [n for n in names if answer[n].shape == getattr(given, n).shape and close(answer[n], getattr(given, n))]
    if same:
        return failed(given.id, "SAME", {"names": ", ".join(same)})
    for name, yours, wanted in (
        ("W_QK", answer["W_Q"].T @ answer["W_K"], given.W_Q.T @ given.W_K),
        ("W_OV", answer["W_O"] @ answer["W_V"], given.W_O @ given.W_V),
    ):
        verdict = _product(given, name, yours, wanted)
        if not verdict.passed:
            return verdict
    return passed(given.id, notes=(Note("BASIS"),))


def head_function(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """w5: head(W_QK, W_OV, x) on random circuits and streams of several sizes."""
    for trial, (n, d_model) in enumerate(_TRIALS):
        random = torch.Generator().manual_seed(100 * given.seed + trial)
        W_QK, W_OV, x = (
            torch.randn(*shape, generator=random, dtype=torch.float64)
            for shape in ((d_model, d_model), (d_model, d_model), (n, d_model))
        )
        yours = guarded(answer["head"])(W_QK.clone(), W_OV.clone(), x.clone())
        problem = _head_problem(given, yours, W_QK, W_OV, x)
        if problem is not None:
            return problem
    return passed(given.id)


def _head_problem(given: Given, yours: Any, W_QK: Tensor, W_OV: Tensor, x: Tensor) -> Verdict | None:
    scale, moved = given.scale, x @ W_OV.T
    A = pattern(W_QK, x, scale)
    wanted = A @ moved
    described = f"({x.shape[0]}, {x.shape[1]}) for x of this size"
    output = tensor_of(yours)
    if output is None:
        facts = {"name": _RETURNED, "wanted": "an array of real numbers", "got": kind_of(yours)}
        return failed(given.id, "UNCHANGED") if yours is None else failed(given.id, "NOTNUMBERS", facts)
    if output.shape != wanted.shape:
        facts = {"name": _RETURNED, "got": str(tuple(output.shape)), "wanted": described}
        facts |= {"transposed": output.shape == wanted.T.shape}
        if output.ndim != wanted.ndim:
            return failed(given.id, "SHAPE", facts | {"has": output.ndim, "needs": wanted.ndim})
        return failed(given.id, "SHAPE", facts | {"axis": "n" if len(output) != len(wanted) else "d_model"})
    if not bool(output.isfinite().all()):
        facts = {"name": _RETURNED, "count": int((~output.isfinite()).sum())}
        return failed(given.id, "NONFINITE", facts)
    if close(output, wanted):
        return None
    slips: dict[str, tuple[Tensor, Facts]] = {
        "UNMASKED": (pattern(W_QK, x, scale, masked=False) @ moved, {"query": 0}),
        "MASK_LATE": (pattern(W_QK, x, scale, late=True) @ moved, {"query": 0}),
        "UNSCALED": (pattern(W_QK, x, 1.0) @ moved, {}),
        "SWAPPED": (pattern(W_QK.T, x, scale) @ moved, {"circuit": "W_QK"}),
        "SWAPPED.OV": (A @ x @ W_OV, {"circuit": "W_OV"}),
        "ADDED": (wanted + x, {}),
        "NO_MOVE": (moved, {}),
        "NO_OV": (A @ x, {}),
        "TRANSPOSED": (A.T @ moved, {}),
    }
    error = float((output - wanted).abs().max())
    reason, facts = _slip(output, slips) or ("VALUE", {"name": _RETURNED, "error": error})
    return failed(given.id, reason, facts, picture=_picture(output, wanted))


def ranks(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """w6: both circuits have rank d_head."""
    for name in ("rank_QK", "rank_OV"):
        if answer[name] != given.d_head:
            return failed(given.id, "RANK", {"name": name, "got": f"{answer[name]:g}"})
    return passed(given.id)


def hand_over(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """w7: head 2's read space, head 1's write space, and what of the one passes the other, free of hidden bases."""
    read, write = answer["read"], answer["write"]
    spaces = {"reads": given.W_V2.T, "writes": given.W_O1}
    others = {"reads": given.W_V1.T, "writes": given.W_O2}
    for what, yours, reason in (("reads", read.T, "WRONG_READ"), ("writes", write, "WRONG_WRITE")):
        found, wanted = rank(yours), rank(spaces[what])
        if not _within(yours, spaces[what]):
            other = _within(yours, others[what])
            named = {"reads": "what head 1 reads", "writes": "what head 2 writes"}[what] if other else "more than that"
            return failed(given.id, reason, {what: named, "repair": ""})
        if found < wanted:
            return failed(given.id, "RANK", {"name": what[:-1], "got": f"{found}", "wanted": f"{wanted}"})
    yours, wanted = answer["singular_values"].sort(descending=True).values, _handed(given)
    padded = torch.zeros(max(len(yours), len(wanted)), dtype=torch.float64)
    padded[: len(yours)] = yours
    padded[: len(wanted)] -= wanted
    if float(padded.abs().max()) <= EXACT * float(wanted.max()):
        return passed(given.id, notes=(Note("BASIS"),))
    hidden = torch.linalg.svdvals(given.W_V2 @ given.W_O1)
    if len(yours) == len(hidden) and close(yours, hidden):
        return failed(given.id, "HIDDEN_BASIS")
    return failed(given.id, "VALUE", {"name": "singular_values", "error": float(padded.abs().max())})


def _handed(given: Given) -> Float[Tensor, "d_head"]:
    """Singular values of W_OV2 on an orthonormal basis of what head 1 writes (exercises.md C3)."""
    return torch.linalg.svdvals(given.W_O2 @ given.W_V2 @ torch.linalg.qr(given.W_O1).Q)


def _within(columns: Tensor, space: Tensor) -> bool:
    """Whether every column lies in the span of `space`."""
    basis = torch.linalg.qr(space).Q
    size = float(columns.abs().max())
    return float((columns - basis @ (basis.T @ columns)).abs().max()) <= EXACT * size


def _product(given: Given, name: str, yours: Tensor, wanted: Tensor) -> Verdict:
    beyond = overflow(name, yours)
    if beyond is not None:
        return failed(given.id, *beyond)
    picture = _picture(yours, wanted)
    if close(yours, wanted):
        return passed(given.id, picture=picture)
    if float(yours.abs().max()) == 0:
        return failed(given.id, "ZERO", picture=picture)
    if close(yours, wanted.T):
        return failed(given.id, "TRANSPOSED", picture=picture)
    factor = float((yours * wanted).sum() / wanted.square().sum())
    if abs(factor) > 0 and close(yours, factor * wanted):
        return failed(given.id, "SIGN" if factor < 0 else "SCALE", {"factor": factor}, picture=picture)
    facts = {"name": name, "error": float((yours - wanted).abs().max())}
    return failed(given.id, "VALUE", facts, picture=picture)


def _slip(yours: Tensor, slips: Mapping[str, tuple[Tensor, Facts]]) -> tuple[str, Facts] | None:
    """The named slip that gives exactly this answer; what follows a full stop tells slips of one name apart."""
    for name, (result, facts) in slips.items():
        if close(yours, result):
            return name.split(".")[0], facts
    return None


def _picture(yours: Tensor, wanted: Tensor) -> Picture:
    rows, columns = (tuple(str(i) for i in range(size)) for size in wanted.shape)
    return Picture("matrix", yours.numpy(), wanted.numpy(), (yours - wanted).numpy(), rows, columns)


def warmup_given(id: str, *, hidden: bool, seed: int) -> Given:
    """Two random heads, a stream, and the scale: W_Q .. W_O and the same with 1 and 2, W_QK, x [n, d_model], scale."""
    d_model, d_head, n = (17, 5, 9) if hidden else (12, 4, 6)
    random = torch.Generator().manual_seed(1000 * seed + 500 * hidden + 7)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64) / math.sqrt(shape[-1])

    extra: Facts = {"scale": 1 / math.sqrt(d_head), "x": math.sqrt(d_model) * drawn(n, d_model)}
    for suffix in ("1", "2"):
        extra |= {f"W_{name}{suffix}": drawn(d_head, d_model) for name in "QKV"}
        extra[f"W_O{suffix}"] = drawn(d_model, d_head)
    extra |= {f"W_{name}": extra[f"W_{name}1"] for name in "QKVO"}
    extra["W_QK"] = math.sqrt(d_head) * extra["W_Q"].T @ extra["W_K"]
    return Given(id=id, d_model=d_model, d_head=d_head, n=n, n_tokens=0, hidden=hidden, seed=seed, extra=extra)


def _others(given: Given) -> dict[str, Tensor]:
    M = torch.diag(torch.arange(2.0, 2.0 + given.d_head, dtype=torch.float64))
    M[0, -1] = 1.0
    inverse = torch.linalg.inv(M)
    return {"W_Q": inverse.T @ given.W_Q, "W_K": M @ given.W_K, "W_V": M @ given.W_V, "W_O": given.W_O @ inverse}


def _head(given: Given) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda W_QK, W_OV, x: pattern(W_QK, x, given.scale) @ x @ W_OV.T


PREDICATES = {
    "w1": qk,
    "w2": ov,
    "w3": attention,
    "w4": other_matrices,
    "w5": head_function,
    "w6": ranks,
    "w7": hand_over,
}
REFERENCES: dict[str, Callable[[Given], dict[str, Any]]] = {
    "w1": lambda given: {"W_QK": given.W_Q.T @ given.W_K},
    "w2": lambda given: {"W_OV": given.W_O @ given.W_V},
    "w3": lambda given: {"pattern": pattern(given.W_QK, given.x, given.scale)},
    "w4": _others,
    "w5": lambda given: {"head": _head(given)},
    "w6": lambda given: {"rank_QK": given.d_head, "rank_OV": given.d_head},
    "w7": lambda given: {"read": given.W_V2, "write": given.W_O1, "singular_values": _handed(given)},
}
GIVENS = {id: partial(warmup_given, id) for id in PREDICATES}
