"""Recipes: everything that decides a training run besides the text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.errors import ConfigProblem, UnknownName, did_you_mean
from headway.model.config import ModelConfig

_LEAST = {"n_layers": 0, "snapshots": 0, "seed": 0} | dict.fromkeys(
    ("n_heads", "d_model", "d_head", "d_vocab", "n_ctx", "tokens", "batch"), 1
)
_RANGES = {"rate": (0, math.inf), "embed_sd": (0, math.inf), "weight_decay": (0, math.inf), "decay": (0, 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One way to train one model.

    tokens: how many training tokens to see; batch: windows of n_ctx tokens a step; rate: peak AdamW step size, constant
    and then falling linearly to zero over the last `decay` of the run. embed_sd: of the initial W_E (W_O and W_U start
    at zero, the rest at 1 / sqrt(d_model)). snapshots: how many weights are kept on the way, evenly spaced.
    Raises ConfigProblem for a field of another kind or outside its range.
    """

    name: str
    n_layers: int
    n_heads: int = 8
    d_model: int = 128
    d_head: int = 32
    d_vocab: int = 1024
    n_ctx: int = 256
    norm: str = "none"
    positions: str = "shortformer"
    position_amplitude: float = 1.5
    embed_sd: float = 0.3
    tokens: int = 60_000_000
    batch: int = 4
    rate: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    decay: float = 0.3
    snapshots: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value < 2**63:
                raise ConfigProblem(f"recipe {name}", expected=f"a whole number >= {least}", got=repr(value))
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if type(value) not in (int, float) or not low <= value <= high or math.isinf(value):
                raise ConfigProblem(f"recipe {name}", expected=f"a number, {low} .. {high}", got=repr(value))
        betas: Any = self.betas
        if not (isinstance(betas, tuple) and len(betas) == 2 and all(type(b) is float and 0 <= b < 1 for b in betas)):
            raise ConfigProblem("recipe betas", expected="two numbers >= 0 and < 1", got=repr(betas))

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole run."""
        return max(1, round(self.tokens / (self.batch * self.n_ctx)))

    def rate_at(self, step: int) -> float:
        """Step size of one step: constant, then linear to zero."""
        left = (self.steps - step) / (self.decay * self.steps) if self.decay else 1.0
        return self.rate * min(1.0, left)

    def config(self, bos: int) -> ModelConfig:
        """The model this recipe trains."""
        shared = {f.name for f in dataclasses.fields(ModelConfig)} & {f.name for f in dataclasses.fields(self)}
        return ModelConfig(**{name: getattr(self, name) for name in shared}, bos=bos)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` reads it back."""
        return {**dataclasses.asdict(self), "betas": list(self.betas)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """Inverse of `to_dict`. Raises ConfigProblem for unknown fields, as the recipe itself for odd ones."""
        if not isinstance(data, Mapping):
            raise ConfigProblem("a recipe", expected="named fields", got=type(data).__name__)
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := set(data) - known:
            raise ConfigProblem("unknown recipe fields", got=", ".join(sorted(unknown)))
        fields: dict[str, Any] = {n: tuple(v) if n == "betas" and isinstance(v, list) else v for n, v in data.items()}
        return cls(**fields)


RECIPES = {
    r.name: r
    for r in (
        Recipe(name="zero-layer", n_layers=0, tokens=30_000_000, batch=16),
        Recipe(name="one-layer", n_layers=1, tokens=30_000_000),
        Recipe(name="two-layer", n_layers=2, tokens=45_000_000),
    )
}


def recipe(name: str, **changes: Any) -> Recipe:
    """A named recipe, with fields changed. Raises UnknownName with near names, ConfigProblem for odd fields.

    >>> recipe("two-layer", tokens=1024 * 50).steps
    50
    """
    if name not in RECIPES:
        raise UnknownName(f"no recipe {name!r}", next_step=did_you_mean(str(name), RECIPES))
    return Recipe.from_dict({**RECIPES[name].to_dict(), **changes})
