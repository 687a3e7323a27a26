"""The residual streams that exercises 2a-3 speak of: generic contents and positions in oblique, rotated subspaces.

Four kinds of feature, each in a subspace of its own (`Space`), the four together spanning the stream:

    content    embeddings with more directions than any head here can read; `u_content` are the first four principal
               components, after projection on which every token has length 1 (exercises.md C5)
    position   k pairs  lambda_f (cos alpha_f m, sin alpha_f m)  with falling amplitudes lambda_f
    v          scratch, empty in the stream as it comes
    rest       directions nobody uses

The bases are not orthogonal, so a direction that writes is not the one that reads (C6): rows called u or v read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

from headway.sources.handmade.subspaces import Space, orthogonal
from headway.sources.zoo.packaged import zoo_path

PCS = 4  # principal components that exercise 2 reads
OBLIQUE = 0.15  # size of the random part added to an orthogonal basis


@dataclass(frozen=True)
class Spectrum:
    """What distinguishes the visible world from the hidden one."""

    d_model: int
    content: int
    alpha: tuple[float, ...]
    amplitude: tuple[float, ...]
    n: int
    n_longer: int
    n_tokens: int
    n_tokens_longer: int
    trained: bool  # contents from the packaged two-layer model's W_E instead of random embeddings


# One visible pair turns once in exactly 16 positions: alone it is right up to there and ties beyond (ALIAS).
VISIBLE = Spectrum(32, 12, (1.0, 2 * math.pi / 16, 0.15, 0.06), (1.0, 0.8, 0.6, 0.45), 12, 20, 8, 12, trained=False)
HIDDEN = Spectrum(40, 16, (0.8, 0.3, 0.12, 0.05), (1.0, 0.7, 0.5, 0.35), 24, 24, 12, 12, trained=True)


@dataclass(frozen=True, eq=False)
class World:
    """A stream: its subspaces, the coordinates of every token and position, and the content directions that count."""

    spectrum: Spectrum
    space: Space
    components: Float[Tensor, "pc content"]
    contents: Float[Tensor, "vocab content"]

    def positions(self, n: int) -> Float[Tensor, "n two_k"]:
        """Position coordinates: lambda_f (cos alpha_f m, sin alpha_f m), pair after pair."""
        alpha, size = (torch.tensor(t, dtype=torch.float64) for t in (self.spectrum.alpha, self.spectrum.amplitude))
        angles = torch.arange(n, dtype=torch.float64)[:, None] * alpha
        return (torch.stack((angles.cos(), angles.sin()), dim=-1) * size[:, None]).flatten(1)


@lru_cache(maxsize=16)
def world(*, hidden: bool, seed: int) -> World:
    """The visible or the hidden stream for a seed. Float64, the same on every machine up to rounding."""
    spectrum = HIDDEN if hidden else VISIBLE
    first = 1000 * seed + (500 if hidden else 0)
    embeddings = _trained(spectrum.content) if spectrum.trained else _generic(spectrum.content, first + 1)
    components = principal_components(embeddings, PCS)
    # Unit length after projection: with unequal lengths the long vectors win over the equal ones (C5).
    embeddings = embeddings / (embeddings @ components.T).norm(dim=1, keepdim=True)
    chosen = _spread(embeddings @ components.T, spectrum.n_tokens, spectrum.n_tokens_longer, first + 2)
    return World(spectrum, _oblique(spectrum, first + 3), components, embeddings[chosen])


def principal_components(table: Float[Tensor, "vocab d"], k: int) -> Float[Tensor, "k d"]:
    """The k directions of largest variance, orthonormal rows; each sign such that the largest entry is positive."""
    _, _, rows = torch.linalg.svd(table - table.mean(0), full_matrices=False)
    rows = rows[:k]
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    return rows * largest.sign()


def _generic(size: int, seed: int) -> Float[Tensor, "vocab size"]:
    """Random embeddings with a falling spectrum, in no special basis."""
    random = torch.Generator().manual_seed(seed)
    raw = torch.randn(96, size, generator=random, dtype=torch.float64)
    return (raw * torch.linspace(1.6, 0.6, size, dtype=torch.float64)) @ orthogonal(size, seed)


def _trained(size: int) -> Float[Tensor, "vocab size"]:
    """Tokens of the packaged two-layer model in the first principal components of its W_E, about their mean."""
    with safe_open(zoo_path("two-layer"), framework="pt") as archive:
        table = archive.get_tensor("W_E").T.double()
    table = table - table.mean(0)
    return table @ principal_components(table, size).T


def _spread(points: Float[Tensor, "vocab pc"], first: int, total: int, seed: int) -> list[int]:
    """Tokens chosen one by one, each with cosine at most 0.7 to those before; those after `first` no nearer.

    So the largest cosine rho is the same for the first tokens and for all: what holds for a penalty within
    1 - rho on the tokens shown (2d) holds on more tokens.
    """
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed)).tolist()
    chosen: list[int] = []
    nearest = -1.0
    for token in order:
        closest = float((points[chosen] @ points[token]).max()) if chosen else -1.0
        if closest <= (0.7 if len(chosen) < first else nearest):
            chosen.append(token)
            nearest = max(nearest, closest)
        if len(chosen) == total:
            return chosen
    return chosen  # fewer only if the table is too small, which the tests of this module would show


def _oblique(spectrum: Spectrum, seed: int) -> Space:
    d, two_k = spectrum.d_model, 2 * len(spectrum.alpha)
    random = torch.Generator().manual_seed(seed)
    noise = torch.randn(d, d, generator=random, dtype=torch.float64)
    # Columns of unit length: amplitudes are the spectrum's, not the basis's.
    columns = torch.nn.functional.normalize(orthogonal(d, seed) + OBLIQUE * noise / math.sqrt(d) * 2, dim=0)
    sizes = {"content": spectrum.content, "position": two_k, "v": two_k}
    sizes["rest"] = d - sum(sizes.values())
    return Space(d, dict(zip(sizes, columns.split(list(sizes.values()), dim=1), strict=True)))
