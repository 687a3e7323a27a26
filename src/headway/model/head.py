"""`Head`: one attention head as an algebraic object, wherever its weights come from.

Only two products matter, W_QK = W_Q^T R W_K and W_OV = W_O W_V (with b_Q, b_K, b_V beside them): every invertible change
of basis inside d_head that the model allows leaves them, and so the head, unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.chain import at_least_float32, unit_factors
from headway.algebra.low_rank import LowRank
from headway.errors import NotFinite, ShapeProblem, UsageError
from headway.ids import HeadId
from headway.model.config import ModelConfig
from headway.model.positions import check_offset, rotation


@dataclass(frozen=True, eq=False, kw_only=True)
class Head:
    """Four matrices, three optional biases and the scale: W_Q, W_K, W_V [d_head, d_model], W_O [d_model, d_head].

    turns: the config of a model with rotary positions, whose rotations stand between queries and keys; None elsewhere.
    """

    W_Q: Float[Tensor, "d_head d_model"]
    W_K: Float[Tensor, "d_head d_model"]
    W_V: Float[Tensor, "d_head d_model"]
    W_O: Float[Tensor, "d_model d_head"]
    b_Q: Float[Tensor, " d_head"] | None = None
    b_K: Float[Tensor, " d_head"] | None = None
    b_V: Float[Tensor, " d_head"] | None = None
    attn_scale: float = 1.0
    turns: ModelConfig | None = None
    id: HeadId | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.W_Q, Tensor) or self.W_Q.ndim != 2 or not self.W_Q.is_floating_point():
            raise ShapeProblem("W_Q", expected="a floating-point tensor (d_head, d_model)", got=_kind(self.W_Q))
        scale = self.attn_scale
        if isinstance(scale, bool) or not isinstance(scale, float | int) or not math.isfinite(scale):
            raise UsageError("attn_scale", expected="a finite number", got=repr(scale))
        d_head, d_model = self.W_Q.shape
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
            tensor = getattr(self, name)
            expected = {"W_O": (d_model, d_head)}.get(name, (d_head, d_model) if name[0] == "W" else (d_head,))
            if tensor is not None and (not isinstance(tensor, Tensor) or tensor.dtype != self.W_Q.dtype):
                raise ShapeProblem(name, expected=f"a tensor of {self.W_Q.dtype} as W_Q", got=_kind(tensor))
            if tensor is not None and tuple(tensor.shape) != expected:
                words = f"(d_head={d_head}, d_model={d_model}) as in W_Q" if name[0] == "W" else f"(d_head={d_head},)"
                if name == "W_O":
                    words = f"(d_model={d_model}, d_head={d_head})"
                hint = "Was it stored transposed?" if tuple(tensor.shape) == expected[::-1] else None
                raise ShapeProblem(name, expected=words, got=tuple(tensor.shape), next_step=hint)

    @classmethod
    def from_circuits(cls, W_QK: Tensor, W_OV: Tensor, *, d_head: int, attn_scale: float = 1.0) -> Head:
        """A head from its two circuits, [d_model, d_model] each.

        Raises ShapeProblem when they are not square and of one size or a rank exceeds d_head, NotFinite for NaN.

        >>> eye = torch.eye(3, dtype=torch.float64)
        >>> Head.from_circuits(eye[:, :1] @ eye[1:2], eye, d_head=3).ov.dense().trace().item()
        3.0
        """
        for name, circuit in (("W_QK", W_QK), ("W_OV", W_OV)):
            square = isinstance(circuit, Tensor) and circuit.ndim == 2 and circuit.shape[0] == circuit.shape[1] > 0
            if not square or not circuit.is_floating_point():
                raise ShapeProblem(name, expected="floating-point (d_model, d_model)", got=_kind(circuit))
            if not bool(torch.isfinite(circuit).all()):
                raise NotFinite(f"{name} holds NaN or infinity", expected="finite numbers")
        if isinstance(d_head, bool) or not isinstance(d_head, int) or d_head < 1:
            raise UsageError("d_head", expected="a whole number >= 1", got=repr(d_head))
        W_Q, W_K = (t.T for t in _thin(W_QK, d_head, "W_QK"))
        W_O, V = _thin(W_OV, d_head, "W_OV")
        return cls(W_Q=W_Q, W_K=W_K, W_V=V.T, W_O=W_O, attn_scale=attn_scale)

    def qk(self, offset: int = 0, *, biases: bool = False) -> LowRank:
        """W_QK at an offset D = destination - source >= 0: W_Q^T R_{-D} W_K, [destination d_model, source d_model].

        The same at every offset without rotary. Scale is not in it. biases: [W_Q b_Q]^T R_{-D} [W_K b_K], one row and
        column more, so that attn_scale * x~_i^T qk x~_j is the score exactly (design: Scores, exactly).
        """
        check_offset(offset)
        reads = (self.W_Q, self.b_Q), (self.W_K, self.b_K)
        Q, K = (_with_bias(W, b) if biases else at_least_float32(W) for W, b in reads)
        return LowRank(Q.T, K) if self.turns is None else LowRank(Q.T, rotation(-offset, self.turns).to(Q), K)

    @property
    def ov(self) -> LowRank:
        """W_OV = W_O W_V, [written d_model, read d_model]."""
        return LowRank(self.W_O, self.W_V)

    @property
    def ov_bias(self) -> Float[Tensor, " d_model"]:
        """W_O b_V: what the head writes whatever it reads, times the row sum of its pattern."""
        zero = self.W_O.new_zeros(self.W_O.shape[0])
        return zero if self.b_V is None else self.W_O @ self.b_V

    def canonical(self) -> Head:
        """The same head in a fixed basis of d_head: balanced singular vectors, signs fixed by the largest entry.

        QK without rotary and OV: SVD of the (bias-augmented) product, square roots of the singular values on both sides.
        With rotary each turned pair is one complex row: equal norms on both sides, the key's largest entry real and
        positive; unturned dims as without rotary. Unique where singular values differ; `same_head` needs no such luck.
        """
        b_Q, b_K, b_V = (self._bias(name) for name in ("b_Q", "b_K", "b_V"))
        Q, K = _with_bias(self.W_Q, b_Q), _with_bias(self.W_K, b_K)
        pairs, rest = _turned_pairs(self)
        new_Q, new_K = Q.clone(), K.clone()
        for a, b in pairs:
            new_Q[[a, b]], new_K[[a, b]] = _canonical_pair(Q[[a, b]], K[[a, b]])
        if rest:
            left, right = _balanced(LowRank(Q[rest].T, K[rest]), len(rest))
            new_Q[rest], new_K[rest] = left.T, right.T
        left, right = _balanced(LowRank(self.W_O, _with_bias(self.W_V, b_V)), self.W_V.shape[0])
        split = {"b_Q": new_Q[:, -1], "b_K": new_K[:, -1], "b_V": right.T[:, -1]}
        biases = {n: b for n, b in split.items() if getattr(self, n) is not None}
        changed = {"W_Q": new_Q[:, :-1], "W_K": new_K[:, :-1], "W_V": right.T[:, :-1], "W_O": left, **biases}
        return replace(self, **{name: tensor.to(self.W_Q.dtype) for name, tensor in changed.items()})

    def _bias(self, name: str) -> Tensor:
        bias = getattr(self, name)
        return self.W_Q.new_zeros(self.W_Q.shape[0]) if bias is None else bias


def same_head(a: Head, b: Head, *, rtol: float = 1e-6) -> bool:
    """Whether two heads compute the same: equal scaled QK circuits at every offset, OV circuits and biases.

    Compares products, never matrices, so any change of basis inside d_head that the model allows counts as the same.
    Differences are measured in the Frobenius norm, relative to the larger of the two. Raises UsageError for what is no
    head, ShapeProblem for heads of different d_model or precision.
    """
    check_heads(a, b)
    if isinstance(rtol, bool) or not isinstance(rtol, float | int) or not rtol >= 0:
        raise UsageError("rtol", where="same_head", expected="a number >= 0", got=repr(rtol))
    if a.W_Q.shape[1] != b.W_Q.shape[1]:
        raise ShapeProblem("heads of different streams", expected=f"d_model={a.W_Q.shape[1]}", got=b.W_Q.shape[1])
    return all(_close(x, y, rtol) for x, y in zip(_invariants(a, b), _invariants(b, a), strict=True))


def _invariants(head: Head, other: Head) -> list[LowRank]:
    """Scaled products that decide what a head does, rotary offsets resolved into their Fourier parts.

    W_QK at offset D is const + sum_f (C_f cos(D theta_f) + S_f sin(D theta_f)); heads agree at all offsets if all parts do.
    Only when exactly one head is rotary are finitely many offsets compared instead.
    """
    Q = _with_bias(head.W_Q, head.b_Q) * head.attn_scale
    K = _with_bias(head.W_K, head.b_K)
    out = [LowRank(head.W_O, _with_bias(head.W_V, head.b_V))]
    if head.turns == other.turns or (head.turns and other.turns and _same_turns(head.turns, other.turns)):
        pairs, rest = _turned_pairs(head)
        for a, b in pairs:
            out.append(LowRank(Q[[a, b]].T, K[[a, b]]))
            out.append(LowRank(Q[[a, b]].T, torch.stack((K[b], -K[a]))))
        return [*out, LowRank(Q[rest].T, K[rest])] if rest else out
    offsets = range(2 * max(head.W_Q.shape[0], other.W_Q.shape[0]) + 1)
    return [*out, *(head.qk(d, biases=True) * head.attn_scale for d in offsets)]


def _turned_pairs(head: Head) -> tuple[list[tuple[int, int]], list[int]]:
    """Dims that rotary turns together, and the dims it leaves alone."""
    n, d_head = (head.turns.rotary_dims if head.turns else 0), head.W_Q.shape[0]
    if head.turns is not None and head.turns.rotary_pairs == "adjacent":
        pairs = [(f, f + 1) for f in range(0, n, 2)]
    else:
        pairs = [(f, f + n // 2) for f in range(n // 2)]
    return pairs, list(range(n, d_head))


def check_heads(*heads: object) -> None:
    """Raise UsageError for what is no `Head`: a name, an id, a model."""
    for head in heads:
        if not isinstance(head, Head):
            got = repr(head) if isinstance(head, str | HeadId) else type(head).__name__
            raise UsageError("not a head", expected="a Head", got=got, next_step="weights.head('L1H3') gives it")


def _kind(value: object) -> str:
    return f"{tuple(value.shape)} {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


def _with_bias(W: Tensor, b: Tensor | None) -> Tensor:
    column = W.new_zeros(W.shape[0]) if b is None else b
    return at_least_float32(torch.cat((W, column[:, None]), dim=1))


def _same_turns(a: ModelConfig, b: ModelConfig) -> bool:
    return (a.rotary_dims, a.rotary_pairs, a.position_base, a.d_head) == (
        b.rotary_dims,
        b.rotary_pairs,
        b.position_base,
        b.d_head,
    )


def _close(a: LowRank, b: LowRank, rtol: float) -> bool:
    (x, of_x), (y, of_y) = unit_factors(a.factors), unit_factors(b.factors)
    a, b = LowRank(*x), LowRank(*y)
    if not bool(a.norm()) or not bool(b.norm()):
        return not bool(a.norm()) and not bool(b.norm())
    # Both at the scale of the larger, so that products that overflow are not taken for equal.
    a, b = a * 2.0 ** min(of_x - of_y, 0), b * 2.0 ** min(of_y - of_x, 0)
    return bool((a - b).norm() <= rtol * torch.maximum(a.norm(), b.norm()))


def _thin(M: Tensor, d_head: int, name: str) -> tuple[Tensor, Tensor]:
    """M = L R^T with L, R [d_model, d_head], or ShapeProblem when M's rank is larger."""
    U, S, Vh = torch.linalg.svd(at_least_float32(M), full_matrices=False)
    if len(S) > d_head and float(S[d_head] / S[0].clamp_min(1e-300)) > 1e3 * torch.finfo(S.dtype).eps:
        rank = int((1e3 * torch.finfo(S.dtype).eps * S[0] < S).sum())
        raise ShapeProblem(f"rank of {name}", expected=f"at most d_head={d_head}", got=rank)
    n = min(d_head, len(S))
    half = S[:n].sqrt()
    return _padded(U[:, :n] * half, d_head), _padded(Vh[:n].T * half, d_head)


def _balanced(product: LowRank, rank: int) -> tuple[Tensor, Tensor]:
    """Singular vectors times square roots of singular values, signs fixed; padded with zeros to `rank` columns."""
    factors, exponent = unit_factors(product.factors)
    svd = LowRank(*factors).svd()
    n = min(rank, svd.S.shape[-1])
    left, right = svd.U[:, :n], svd.V[:, :n]
    largest = left.gather(0, left.abs().argmax(0, keepdim=True))
    half = svd.S[:n].sqrt() * 2.0 ** (exponent / 2) * torch.where(largest < 0, -1.0, 1.0)
    return _padded(left * half, rank), _padded(right * half, rank)


def _padded(columns: Tensor, width: int) -> Tensor:
    return torch.cat((columns, columns.new_zeros(columns.shape[0], width - columns.shape[1])), dim=1)


def _canonical_pair(Q: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    """One turned pair as complex rows q, k: what counts is conj(q) k, so q -> c q, k -> k / conj(c) is free."""
    q, k = torch.complex(Q[0], Q[1]), torch.complex(K[0], K[1])
    most_q, most_k = Q.abs().max(), K.abs().max()
    if most_q == 0 or most_k == 0:
        return torch.zeros_like(Q), torch.zeros_like(K)
    norm_q, norm_k = most_q * torch.linalg.vector_norm(q / most_q), most_k * torch.linalg.vector_norm(k / most_k)
    largest = k[k.abs().argmax()]
    phase = largest.conj() / largest.abs()
    size = norm_k.sqrt() / norm_q.sqrt()
    q, k = q * size * phase, k / size * phase
    return torch.stack((q.real, q.imag)), torch.stack((k.real, k.imag))
