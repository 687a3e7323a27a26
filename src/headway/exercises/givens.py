"""What an exercise gives the learner to write with: sizes, tokens, positions, reading rows, writing columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import UsageError
from headway.exercises.registry import table
from headway.exercises.worlds import World, world
from headway.sources.handmade.subspaces import Space

# Most rows an answer's W_Q, W_K and W_V may have, and how many scratch directions the exercise names.
_WIDTHS = {"2a": (4, 0), "2b": (4, 0), "2c": (4, 0), "2d": (8, 0), "2e": (8, 8), "2f": (8, 8), "3": (4, 4)}


def _absent() -> Tensor:
    return torch.zeros(0, 0, dtype=torch.float64)


def _no_numbers() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Given:
    """The data of one exercise, float64. Rows called u or v READ: u @ x is the coordinate of x; to write, v_write.

    Token t at position m enters as x = tokens[t] + positions[m], with
        u_content @ x = the token's content, of length 1        u_cos[f] @ x = amplitude[f] cos(alpha[f] m)
        v @ x = 0, until a head writes there with v_write       u_sin[f] @ x = amplitude[f] sin(alpha[f] m)
    and v @ v_write = identity. Warm-ups and exercise 1 have matrices of their own instead, as attributes by name
    (from `extra`).

    d_head: most rows of W_Q, W_K, W_V. n: positions, n_tokens: vocabulary; answers are graded on more of both too.

    >>> g = given("2c")
    >>> bool(torch.allclose(g.u_cos[0] @ (g.tokens[3] + g.positions[2]), g.amplitude[0] * torch.cos(2 * g.alpha[0])))
    True
    """

    id: str
    d_model: int
    d_head: int
    n: int
    n_tokens: int
    hidden: bool = False
    seed: int = 0
    u_content: Float[Tensor, "pc d_model"] = field(default_factory=_absent)
    u_cos: Float[Tensor, "k d_model"] = field(default_factory=_absent)
    u_sin: Float[Tensor, "k d_model"] = field(default_factory=_absent)
    alpha: Float[Tensor, "k"] = field(default_factory=_no_numbers)
    amplitude: Float[Tensor, "k"] = field(default_factory=_no_numbers)
    v: Float[Tensor, "m d_model"] = field(default_factory=_absent)
    v_write: Float[Tensor, "d_model m"] = field(default_factory=_absent)
    tokens: Float[Tensor, "vocab d_model"] = field(default_factory=_absent)
    positions: Float[Tensor, "n d_model"] = field(default_factory=_absent)
    extra: Mapping[str, Any] = field(default_factory=dict)
    subspaces: Space | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("u_content", "u_cos", "u_sin", "v", "tokens", "positions", "v_write"):
            if getattr(self, name).shape == (0, 0):  # absent: no rows, or no columns, of this stream
                shape = (self.d_model, 0) if name == "v_write" else (0, self.d_model)
                object.__setattr__(self, name, torch.zeros(shape, dtype=torch.float64))

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are no field: matrices of warm-ups and exercise 1.
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]
        raise AttributeError(f"exercise {self.__dict__.get('id')} gives no {name!r}; extra: {', '.join(extra)}")

    @property
    def space(self) -> Space:
        """The named subspaces content, position, v and rest. Raises UsageError for exercises whose stream has none."""
        if self.subspaces is None:
            raise UsageError(f"exercise {self.id} has no named subspaces")
        return self.subspaces

    def axis(self, name: str) -> int:
        """Size of a named axis of an answer: d_model, d_head, n, n_tokens, m, k."""
        sizes = {"m": self.v.shape[0], "k": len(self.alpha), "two_k": 2 * len(self.alpha)}
        return sizes[name] if name in sizes else int(getattr(self, name))

    def streams(self) -> Float[Tensor, "n vocab d_model"]:
        """Every x = tokens[t] + positions[m] of the domain, indexed [m, t]."""
        return self.positions[:, None, :] + self.tokens[None, :, :]


def given(id: str, *, hidden: bool = False, seed: int = 0) -> Given:
    """The data of exercise `id`. hidden: another size, rotation, spectrum and vocabulary, on which a function that
    passed on the visible data is graded again. Raises UnknownName for an unknown id, UsageError for a negative seed.

    >>> given("2a").n_tokens, given("2a", hidden=True).n_tokens
    (8, 12)
    """
    if seed < 0:
        raise UsageError("seed", expected="0 or more", got=seed)
    own = table(id, "GIVENS").get(id)
    if own is not None:
        return own(hidden=hidden, seed=seed)
    there = world(hidden=hidden, seed=seed)
    return _view(id, there, n=there.spectrum.n, n_tokens=there.spectrum.n_tokens, hidden=hidden, seed=seed)


def longer(here: Given) -> Given | None:
    """The same bases with more positions and tokens, so that arrays that fit only what was shown do not pass.

    2d keeps its positions: the best penalty depends on how many there are (exercises.md C8). None for exercises
    whose data have no longer form.
    """
    tables = table(here.id, "LONGER"), table(here.id, "GIVENS")
    if here.id in tables[0]:
        return tables[0][here.id](here)
    if here.id in tables[1] or here.hidden:
        return None
    there = world(hidden=here.hidden, seed=here.seed)
    n = there.spectrum.n if here.id == "2d" else there.spectrum.n_longer
    return _view(here.id, there, n=n, n_tokens=there.spectrum.n_tokens_longer, hidden=here.hidden, seed=here.seed)


def as_part(here: Given, id: str) -> Given:
    """The same stream as exercise `id` gives it: an earlier part, decided on the data of the part that builds on it."""
    if id == here.id or id not in _WIDTHS or here.id not in _WIDTHS:
        return here if id == here.id else given(id, hidden=here.hidden, seed=here.seed)
    there = world(hidden=here.hidden, seed=here.seed)
    return _view(id, there, n=here.n, n_tokens=here.n_tokens, hidden=here.hidden, seed=here.seed)


def _view(id: str, there: World, *, n: int, n_tokens: int, hidden: bool, seed: int) -> Given:
    d_head, m = _WIDTHS[id]
    space = there.space
    position = space.read("position")
    return Given(
        id=id,
        d_model=space.d_model,
        d_head=d_head,
        n=n,
        n_tokens=n_tokens,
        hidden=hidden,
        seed=seed,
        u_content=there.components @ space.read("content"),
        u_cos=position[0::2],
        u_sin=position[1::2],
        alpha=torch.tensor(there.spectrum.alpha, dtype=torch.float64),
        amplitude=torch.tensor(there.spectrum.amplitude, dtype=torch.float64),
        v=space.read("v")[:m],
        v_write=space.write("v")[:, :m],
        tokens=there.contents[:n_tokens] @ space.write("content").T,
        positions=there.positions(n) @ space.write("position").T,
        subspaces=space,
    )
