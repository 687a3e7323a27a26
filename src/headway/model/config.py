"""`ModelConfig`: every number and choice that shapes a model, frozen, and checked when it is made.

`d_head` is never derived from `d_model / n_heads`, and the attention scale is a plain number: hand-written heads use 1.
Features that later forward passes will learn are fields already, and are refused by name until they are built.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.errors import ConfigProblem, NotBuilt, did_you_mean

NORMS = ("none", "layer", "rms")
POSITIONS = ("none", "shortformer", "learned", "rotary")
ROTARY_PAIRS = ("halves", "adjacent")

# Told apart by identity, so that every number, -1 too, can be asked for.
_USUAL_SCALE = float("nan")

# Known features of other transformers: the value that means "absent", and what would be wrong without them.
_NOT_BUILT: dict[str, Any] = {
    "d_mlp": 0,
    "attn_softcap": None,
    "logit_softcap": None,
    "qk_norm": False,
    "window": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and choices of one attention-only decoder.

    n_kv_heads: key/value heads, a divisor of n_heads (default n_heads; query head h uses h // (n_heads / n_kv_heads)).
    attn_scale: multiplies q.k before the softmax (default 1 / sqrt(d_head)).
    norm: on every read of the stream, `none`, `layer` (LayerNorm) or `rms`; norm_eps is inside the square root.
    positions: `none`; `shortformer` (sinusoids added where W_Q and W_K read, never to the stream); `learned` (a table
    added to the stream); `rotary` (the first rotary_dims of each head, in `halves` or `adjacent` pairs).
    position_base: wavelengths run from 2 pi to 2 pi * base, for sinusoids and rotary alike.
    bos: id of the token that starts every text, or None.

    >>> ModelConfig(n_layers=2, n_heads=3, d_model=10, d_head=4, d_vocab=7, n_ctx=8).attn_scale
    0.5
    """

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    d_vocab: int
    n_ctx: int
    n_kv_heads: int = -1
    attn_scale: float = _USUAL_SCALE
    norm: str = "none"
    norm_eps: float = 1e-5
    positions: str = "none"
    position_base: float = 10_000.0
    position_amplitude: float = 1.0
    rotary_dims: int = -1
    rotary_pairs: str = "halves"
    bos: int | None = None
    d_mlp: int = 0
    attn_softcap: float | None = None
    logit_softcap: float | None = None
    qk_norm: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        if self.attn_scale is _USUAL_SCALE and isinstance(self.d_head, int) and self.d_head > 0:
            object.__setattr__(self, "attn_scale", 1 / math.sqrt(self.d_head))
        self._check_numbers()
        if self.n_kv_heads == -1:
            object.__setattr__(self, "n_kv_heads", self.n_heads)
        if self.rotary_dims == -1:
            object.__setattr__(self, "rotary_dims", self.d_head - self.d_head % 2 if self.positions == "rotary" else 0)
        self._check_choices()

    def _check_numbers(self) -> None:
        for name in ("n_layers", "n_heads", "d_model", "d_head", "d_vocab", "n_ctx", "n_kv_heads", "rotary_dims"):
            value = getattr(self, name)
            least = -1 if name in ("n_kv_heads", "rotary_dims") else 0 if name in ("n_layers", "n_heads") else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigProblem(
                    f"config field {name}", expected=f"a whole number >= {max(least, 0)}", got=repr(value)
                )
        for name in ("attn_scale", "norm_eps", "position_base", "position_amplitude"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
                raise ConfigProblem(f"config field {name}", expected="a finite number", got=repr(value))
            object.__setattr__(self, name, float(value))
        if self.norm_eps < 0 or self.position_base <= 1:
            got = f"norm_eps={self.norm_eps}, position_base={self.position_base}"
            raise ConfigProblem("config numbers", expected="norm_eps >= 0 and position_base > 1", got=got)

    def _check_choices(self) -> None:
        for name, allowed in (("norm", NORMS), ("positions", POSITIONS), ("rotary_pairs", ROTARY_PAIRS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigProblem(f"config field {name}", expected=f"one of {', '.join(allowed)}", got=repr(value))
        if self.n_heads % max(self.n_kv_heads, 1) or (self.n_heads and not self.n_kv_heads):
            raise ConfigProblem(
                "n_kv_heads must divide n_heads", expected=f"a divisor of n_heads={self.n_heads}", got=self.n_kv_heads
            )
        if self.rotary_dims % 2 or self.rotary_dims > self.d_head:
            raise ConfigProblem(
                "config field rotary_dims", expected=f"an even number <= d_head={self.d_head}", got=self.rotary_dims
            )
        if self.rotary_dims and self.positions != "rotary":
            raise ConfigProblem("rotary_dims without positions='rotary'", expected=0, got=self.rotary_dims)
        if self.bos is not None and (type(self.bos) is not int or not 0 <= self.bos < self.d_vocab):
            raise ConfigProblem("config field bos", expected=f"an id below d_vocab={self.d_vocab}", got=repr(self.bos))
        for name, absent in _NOT_BUILT.items():
            if getattr(self, name) != absent:
                raise NotBuilt(
                    f"{name}={getattr(self, name)!r} is a feature this version does not compute",
                    expected=f"{name}={absent!r}",
                    next_step="Refused rather than computed wrongly: attention-only models work today",
                )

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.n_heads // self.n_kv_heads if self.n_kv_heads else 1

    def to_dict(self) -> dict[str, Any]:
        """Every field, JSON-ready."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelConfig:
        """Inverse of `to_dict`. Raises ConfigProblem for unknown or missing fields, or what holds no fields."""
        if not isinstance(data, Mapping):
            raise ConfigProblem("a config", expected="named fields", got=type(data).__name__)
        known = [f.name for f in dataclasses.fields(cls)]
        for name in data:
            if name not in known:
                raise ConfigProblem(f"unknown config field {name!r}", next_step=did_you_mean(str(name), known))
        needed = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING]
        missing = [name for name in needed if name not in data]
        if missing:
            raise ConfigProblem("config fields missing", expected=", ".join(needed), got="no " + ", ".join(missing))
        return cls(**data)
