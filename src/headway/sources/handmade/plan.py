"""`Plan`: the numbers a hand-made model is written for, before any subspace has its place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import UsageError
from headway.sources.handmade.built import contents
from headway.sources.handmade.kernels import best_weights, octaves, rotary_angles, rotary_base

POSITIONS = ("learned", "rotary", "none")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes of a model, the leak its heads may have, and how it knows positions.

    leak: largest share of attention that each head may leave off its targets, anywhere in n_ctx positions.
    positions: `learned`, sinusoids in the stream, from W_pos; `rotary`, turned dims inside heads, and a constant direction
    `one` in every token for them to turn; `none`. frequencies: angles a position of the sinusoids (octaves without;
    rotary has its own). amplitudes: lengths of the pairs in the stream (equal, of squares summing to 1, without).
    bos: token 0 is BOS: no content, `start` instead. bos_position: whether BOS has a position (or `one`) too; without,
    heads that find nothing can rest there. seed: of contents and of the stream's rotation; None leaves subspaces on
    the axes.
    """

    d_vocab: int = 64
    n_ctx: int = 128
    leak: float = 1e-3
    bos: bool = True
    bos_position: bool = True
    positions: str = "learned"
    frequencies: tuple[float, ...] = ()
    amplitudes: tuple[float, ...] = ()
    seed: int | None = 0
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        if self.positions not in POSITIONS:
            raise UsageError("positions of a plan", expected=f"one of {', '.join(POSITIONS)}", got=self.positions)
        if self.n_ctx < 2:
            raise UsageError("n_ctx", expected="at least 2, so that there is a previous token", got=self.n_ctx)
        if not 0 < self.leak < 0.5:
            raise UsageError("leak", expected="a share above 0 and below 1/2", got=self.leak)
        if self.positions != "learned" and (self.frequencies or self.amplitudes):
            raise UsageError("frequencies and amplitudes", expected="positions='learned'", got=self.positions)
        if self.amplitudes and len(self.amplitudes) != len(self.angles):
            raise UsageError("amplitudes", expected=f"one for each of {len(self.angles)} pairs", got=self.amplitudes)
        if any(not a > 0 for a in self.amplitudes):
            raise UsageError("amplitudes", expected="above 0", got=self.amplitudes)

    @cached_property
    def base(self) -> float:
        """position_base of a rotary plan: of ceil(log2 n_ctx) pairs the best (`rotary_base`)."""
        return rotary_base(self.n_ctx, max(1, math.ceil(math.log2(self.n_ctx))))

    @cached_property
    def angles(self) -> tuple[float, ...]:
        """Angles a position, one a pair; empty without positions."""
        if self.positions == "rotary":
            return rotary_angles(self.base, max(1, math.ceil(math.log2(self.n_ctx))))
        return (self.frequencies or octaves(self.n_ctx)) if self.positions == "learned" else ()

    @cached_property
    def lengths(self) -> tuple[float, ...]:
        """Length of each pair in the stream; 1 under rotary positions, where the key is a head's own."""
        equal = 1.0 if self.positions == "rotary" else 1 / math.sqrt(max(len(self.angles), 1))
        return self.amplitudes or (equal,) * len(self.angles)

    @cached_property
    def contents(self) -> Float[Tensor, "content vocab"]:
        """Content coordinates of every token: orthonormal; none for BOS."""
        return contents(self.d_vocab, bos=self.bos, seed=self.seed or 0, dtype=self.dtype)

    @property
    def bare_bos(self) -> bool:
        """Whether there is a BOS that has no position."""
        return self.bos and not self.bos_position

    @property
    def place(self) -> str:
        """The subspace a head reads to attend by offset."""
        return "one" if self.positions == "rotary" else "position"

    @property
    def pairs(self) -> int:
        """How many pairs of sinusoids or turned dims."""
        return len(self.angles)

    def weights_for(self, offsets: range) -> tuple[float, ...]:
        """The weights over pairs with the largest gap at these wrong offsets. Raises UsageError without positions."""
        if not self.angles:
            raise UsageError(
                "a head that attends by offset in a model without positions", next_step="Plan positions='learned'"
            )
        return best_weights(self.angles, offsets.stop, offsets)[0]

    def waves(self) -> Float[Tensor, "two_k n_ctx"]:
        """Coordinates of every position: amplitude_f (cos alpha_f m, sin alpha_f m); zeros for a BOS without one."""
        m = torch.arange(self.n_ctx, dtype=torch.float64)
        angles = torch.tensor(self.angles, dtype=torch.float64)[:, None] * m
        lengths = torch.tensor(self.lengths, dtype=torch.float64)[:, None, None]
        table = (lengths * torch.stack((angles.cos(), angles.sin()), dim=1)).flatten(0, 1)
        if self.bare_bos:
            table[:, 0] = 0
        return table.to(self.dtype)
