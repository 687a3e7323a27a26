"""Named subspaces of a residual stream: what a hand-written head reads and what it writes, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import ShapeProblem, UnknownName, UsageError, did_you_mean

_INDEPENDENT = 1e-9  # smallest singular value, relative to the largest, that still counts as a direction of its own


@dataclass(frozen=True, eq=False)
class Space:
    """A stream of d_model dims cut into named subspaces, each with a basis [d_model, k].

    `write(name)` are the basis vectors as columns; `read(name)` the dual rows: read(a) write(b) is the identity when
    a = b and zero otherwise, also where the bases are not orthonormal (there a plain transpose would mix neighbours;
    exercises.md C6). Raises ShapeProblem for a basis that does not fit the stream, UsageError for subspaces that clash:
    together their vectors must be independent, since a sum of overlapping writes cannot be read apart.

    >>> space = Space.allocate({"content": 3, "position": 2}, d_model=6, seed=0)
    >>> bool(torch.allclose(space.read("content") @ space.write("content"), torch.eye(3, dtype=torch.float64)))
    True
    >>> float((space.read("content") @ space.write("position")).abs().max()) < 1e-12
    True
    """

    d_model: int
    bases: Mapping[str, Float[Tensor, "d_model k"]]
    _duals: Mapping[str, Float[Tensor, "k d_model"]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, basis in self.bases.items():
            if basis.ndim != 2 or basis.shape[0] != self.d_model or not basis.is_floating_point():
                expected = f"(d_model={self.d_model}, k) floating-point columns"
                raise ShapeProblem(f"basis of {name!r}", expected=expected, got=f"{tuple(basis.shape)} {basis.dtype}")
        object.__setattr__(self, "bases", MappingProxyType(dict(self.bases)))
        _check_room(self.sizes, self.d_model)
        _check_independent(self.bases)
        object.__setattr__(self, "_duals", MappingProxyType(_duals(self.bases)))

    @classmethod
    def allocate(
        cls,
        sizes: Mapping[str, int],
        *,
        d_model: int | None = None,
        seed: int | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Space:
        """Orthonormal subspaces of the given sizes, in order; d_model defaults to their sum.

        seed: rotate everything by a random orthogonal matrix, so that no circuit can depend on the axes; None leaves
        each subspace on axes of its own. Raises UsageError when the sizes are more than d_model.
        """
        total = sum(sizes.values())
        d_model = total if d_model is None else d_model
        for name, size in sizes.items():
            if size < 1:
                raise UsageError(f"size of subspace {name!r}", expected="at least 1", got=size)
        _check_room(sizes, d_model)
        axes = torch.eye(d_model, dtype=torch.float64) if seed is None else orthogonal(d_model, seed)
        columns = axes[:, :total].to(dtype).split(list(sizes.values()), dim=1)
        return cls(d_model, dict(zip(sizes, columns, strict=True)))

    def with_basis(self, name: str, basis: Float[Tensor, "d_model k"]) -> Space:
        """The same stream with one more named subspace. Raises UsageError when the name or the place is taken."""
        if name in self.bases:
            raise UsageError(f"subspace {name!r} exists already", expected="a new name", got=", ".join(self.bases))
        return Space(self.d_model, {**self.bases, name: basis})

    def write(self, name: str) -> Float[Tensor, "d_model k"]:
        """Basis vectors as columns: `write(name) @ coordinates` is what to add to the stream."""
        return self.bases[self._known(name)]

    def read(self, name: str) -> Float[Tensor, "k d_model"]:
        """Dual rows: `read(name) @ x` are the coordinates of x in this subspace, whatever the others hold."""
        return self._duals[self._known(name)]

    @property
    def sizes(self) -> dict[str, int]:
        """Dimension of each subspace."""
        return {name: basis.shape[1] for name, basis in self.bases.items()}

    def __repr__(self) -> str:
        return f"Space({self.d_model}: {', '.join(f'{n} {k}' for n, k in self.sizes.items())})"

    def _known(self, name: str) -> str:
        if name not in self.bases:
            raise UnknownName(f"no subspace {name!r}", next_step=did_you_mean(name, self.bases))
        return name


def orthogonal(n: int, seed: int) -> Float[Tensor, "n n"]:
    """A random orthogonal matrix, uniform (Haar), float64: QR of a Gaussian with the signs of R moved into Q."""
    random = torch.Generator().manual_seed(seed)
    q, r = torch.linalg.qr(torch.randn(n, n, generator=random, dtype=torch.float64))
    return q * torch.where(r.diagonal() < 0, -1.0, 1.0)


def _check_room(sizes: Mapping[str, int], d_model: int) -> None:
    total = sum(sizes.values())
    if total > d_model:
        listed = " + ".join(f"{name} {size}" for name, size in sizes.items())
        raise UsageError("the subspaces do not fit the stream", expected=f"at most d_model={d_model}", got=listed)


def _check_independent(bases: Mapping[str, Tensor]) -> None:
    """Add one subspace after the other; the first that brings no new directions is named with what it clashes with."""
    before: dict[str, Tensor] = {}
    for name, basis in bases.items():
        values = torch.linalg.svdvals(torch.cat([*before.values(), basis], dim=1))
        if float(values[-1]) <= _INDEPENDENT * float(values[0]):
            own = torch.linalg.svdvals(basis)
            if float(own[-1]) <= _INDEPENDENT * float(own[0]):
                raise UsageError(
                    f"the basis of {name!r} is not independent", got=f"singular values down to {own[-1]:.1e}"
                )
            # Two subspaces that share a direction have an angle of cosine 1; three can clash without any such pair.
            pairs = {other: _cosine(basis, b) for other, b in before.items()}
            rival = max(pairs, key=lambda other: pairs[other])
            raise UsageError(
                f"subspaces clash: {name!r} lies within the span of those before it",
                expected="independent directions",
                got=f"nearest to {rival!r} (largest cosine {pairs[rival]:.3f})",
                next_step="Allocate them together with Space.allocate",
            )
        before[name] = basis


def _cosine(a: Tensor, b: Tensor) -> float:
    q_a, q_b = (torch.linalg.qr(basis)[0] for basis in (a, b))
    return float(torch.linalg.svdvals(q_a.T @ q_b)[0])


def _duals(bases: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rows of the pseudo-inverse of all bases side by side, cut back into the named parts."""
    if not bases:
        return {}
    joined = torch.cat(list(bases.values()), dim=1)
    rows = torch.linalg.pinv(joined).split([b.shape[1] for b in bases.values()])
    return dict(zip(bases, rows, strict=True))
