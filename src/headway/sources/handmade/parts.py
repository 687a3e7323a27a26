"""What hand-made heads are put together from: a look (where to attend: QK) and a move (what to write: OV)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import UsageError
from headway.model.config import ModelConfig
from headway.model.head import Head
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Rows of W_Q and W_K, one score term a row, and a query bias.

    score_ij = (Q x_i + bias) . (K x_j). turned: how many of the first rows are dims that rotary positions turn, in
    adjacent pairs; the others must not be turned.
    """

    Q: Float[Tensor, "row d_model"]
    K: Float[Tensor, "row d_model"]
    bias: Float[Tensor, " row"] | None = None
    turned: int = 0

    def and_rows(self, more: Rows) -> Rows:
        """The sum of both scores: rows stacked, not added. Turned rows stay first: `more` has none."""
        bias = None
        if self.bias is not None or more.bias is not None:
            bias = torch.cat([self.Q.new_zeros(len(r.Q)) if r.bias is None else r.bias for r in (self, more)])
        return Rows(Q=torch.cat((self.Q, more.Q)), K=torch.cat((self.K, more.K)), bias=bias, turned=self.turned)


@runtime_checkable
class Look(Protocol):
    """Where a head attends."""

    @abstractmethod
    def reads(self, plan: Plan, /) -> tuple[str, ...]:
        """Subspaces that queries or keys read."""

    @abstractmethod
    def gap(self, plan: Plan, leaks: Mapping[str, float], /) -> float | None:
        """Least score of a target above every rival at sharpness 1; None when all positions are meant alike.

        leaks: how much of each subspace may be something else than it says, of what earlier heads wrote.
        """

    @abstractmethod
    def rows(self, space: Space, plan: Plan, sharpness: float, /) -> Rows:
        """The rows that score like this, `sharpness` times as large."""


# Copy dims (exercises 1a and 2e).  W_OV = target source^+: read the coordinates of `source` where the head attends, write
# the same coordinates to `target` here.  Dual rows vanish on every other subspace, so nothing else is read; the columns
# of `target` belong to nobody else (the compiler refuses two writers), so nothing is added to what is there.  Position i
# receives  sum_j A_ij source_j,  which is source at the targets but for the share of attention that is not there.
# Of `position` this is "write position" (2e): 2k coordinates a head can turn later, to do arithmetic with.
@dataclass(frozen=True)
class Copy:
    """W_OV = target source^+: what stands in `source` there is written to `target` here, coordinate by coordinate."""

    source: str = "content"
    target: str = "out"

    def size(self, sizes: Mapping[str, int]) -> int:
        """Dims it writes: those of its source."""
        return sizes[self.source]

    def columns(self, space: Space, _: Plan) -> tuple[Float[Tensor, "d_model d"], Float[Tensor, "d d_model"]]:
        """W_O and W_V."""
        return space.write(self.target), space.read(self.source)


@dataclass(frozen=True)
class Translate:
    """W_OV = target (sum of c_new c_old^T over the pairs) source^+: where token `old` stands, `new` is written.

    pairs: (old, new) token ids; several news of one old are all written. Both must have content.
    """

    pairs: tuple[tuple[int, int], ...]
    source: str = "content"
    target: str = "out"

    def __post_init__(self) -> None:
        if not self.pairs:
            raise UsageError("pairs of tokens", expected="at least one", got="none")

    def size(self, sizes: Mapping[str, int]) -> int:
        """Dims it writes: those of a content."""
        return sizes["content"]

    def columns(self, space: Space, plan: Plan) -> tuple[Float[Tensor, "d_model d"], Float[Tensor, "d d_model"]]:
        """W_O and W_V: one value dim for each different `old`."""
        olds = sorted({old for old, _ in self.pairs})
        table = plan.contents
        read = content_of(plan, olds).T @ space.read(self.source)
        news = torch.stack(
            [content_of(plan, [new for o, new in self.pairs if o == old]).sum(1) for old in olds], dim=1
        ).to(table)
        return space.write(self.target) @ news, read


@dataclass(frozen=True)
class Part:
    """One head to be: a look and a move."""

    look: Look
    move: Copy | Translate

    def head(self, space: Space, plan: Plan, *, sharpness: float) -> Head:
        """The head, scale 1. Dims that rotary positions turn come first, and are zero in a head that uses none."""
        rows = self.look.rows(space, plan, sharpness)
        W_O, W_V = self.move.columns(space, plan)
        before = 2 * plan.pairs - rows.turned if plan.positions == "rotary" else 0
        d_head = max(before + len(rows.Q), W_V.shape[0])
        after = d_head - before - len(rows.Q)
        turns = _turns(plan, d_head, space.d_model) if plan.positions == "rotary" else None
        pad = torch.nn.functional.pad
        return Head(
            W_Q=pad(rows.Q, (0, 0, before, after)),
            W_K=pad(rows.K, (0, 0, before, after)),
            W_V=pad(W_V, (0, 0, 0, d_head - W_V.shape[0])),
            W_O=pad(W_O, (0, d_head - W_O.shape[1])),
            b_Q=None if rows.bias is None else pad(rows.bias, (before, after)),
            attn_scale=1.0,
            turns=turns,
        )


def kernel_rows(
    space: Space, plan: Plan, weights: tuple[float, ...], *, back: int = 0, query: str = "position"
) -> Rows:
    """Rows whose score is sum_f w_f cos(alpha_f (m - j - back)), m the position that the query holds.

    Sinusoids: the query reads `query` (`position`, or a copy of one), each pair turned back by `back` steps and weighed by
    w_f / amplitude_f^2; the key reads `position`. Rotary: queries and keys read the constant `one`, and the model's
    rotations R_i, R_j stand between them: (R_i R_-back e)^T (R_j e) = cos(theta (i - back - j)).
    """
    steps = -back * torch.tensor(plan.angles, dtype=torch.float64)
    w = torch.tensor(weights, dtype=torch.float64)
    if plan.positions == "rotary":
        cos, sin = steps.cos(), steps.sin()
        one = space.read("one")
        q = torch.stack((w * cos, w * sin), dim=1).flatten()[:, None].to(one)
        k = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(plan.pairs)[:, None].to(one)
        return Rows(Q=q @ one, K=k @ one, turned=2 * plan.pairs)
    w = w / torch.tensor(plan.lengths, dtype=torch.float64) ** 2
    weigh = w.repeat_interleave(2)[:, None].to(space.read(query))
    return Rows(Q=weigh * (rotation(steps).to(weigh) @ space.read(query)), K=space.read("position"))


def rotation(angles: Float[Tensor, "k"]) -> Float[Tensor, "two_k two_k"]:
    """Turns each pair of coordinates by its angle: block-diagonal [[cos, -sin], [sin, cos]].

    >>> rotation(torch.tensor([torch.pi / 2])).round().abs().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    cos, sin = angles.cos(), angles.sin()
    return torch.block_diag(*torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2))


def sink_rows(space: Space, score: float) -> Rows:
    """One row that gives position 0 `score` in every query: a query bias times a key that reads `start`, BOS's own."""
    start = space.read("start")
    return Rows(Q=torch.zeros_like(start), K=start, bias=start.new_full((1,), score))


def content_of(plan: Plan, tokens: list[int]) -> Float[Tensor, "content token"]:
    """Content coordinates of these tokens. Raises UsageError for an id without content."""
    least = int(plan.bos)
    if any(not least <= token < plan.d_vocab for token in tokens):
        expected = f"ids {least} to {plan.d_vocab - 1}" + (", token 0 being BOS" if plan.bos else "")
        raise UsageError("a token without content", expected=expected, got=tokens)
    return plan.contents[:, tokens]


def _turns(plan: Plan, d_head: int, d_model: int) -> ModelConfig:
    return ModelConfig(
        n_layers=1,
        n_heads=1,
        d_model=d_model,
        d_head=d_head,
        d_vocab=plan.d_vocab,
        n_ctx=plan.n_ctx,
        attn_scale=1.0,
        positions="rotary",
        position_base=plan.base,
        rotary_dims=2 * plan.pairs,
        rotary_pairs="adjacent",
    )
