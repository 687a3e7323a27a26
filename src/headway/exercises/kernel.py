"""The positional score of a head as a function of offset: its waves, its peak, its aliases, its par."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from headway.exercises.givens import Given
from headway.exercises.proof import TIE
from headway.exercises.scoring import Head
from headway.sources.handmade.kernels import best_weights

_SAME = 1e-6  # relative size below which two numbers are one


@dataclass(frozen=True, eq=False)
class Kernel:
    """kappa(D) = sum_f cosine_f cos(alpha_f D) + sine_f sin(alpha_f D), D = i - j: the part that offset decides.

    share: of the squared position x position scores' coefficients that belong to such waves; the rest depends on where
    the pair stands, as sin alpha(i + j) does.
    """

    alpha: Float[Tensor, "k"]
    cosine: Float[Tensor, "k"]
    sine: Float[Tensor, "k"]
    share: float

    def at(self, offsets: Sequence[int]) -> Float[Tensor, "offset"]:
        """kappa at these offsets, negative ones (keys after the query) too."""
        angles = torch.tensor(offsets, dtype=torch.float64)[:, None] * self.alpha
        return angles.cos() @ self.cosine + angles.sin() @ self.sine

    @property
    def energy(self) -> float:
        """Sum of the waves' amplitudes: the unit in which a gap can be compared with the par."""
        return float(torch.hypot(self.cosine, self.sine).sum())

    def best(self, n: int, *, future: bool = False) -> int:
        """The offset with the highest score among 0 .. n-1, or among -(n-1) .. n-1 when the future counts too."""
        offsets = list(range(-(n - 1) if future else 0, n))
        return offsets[int(self.at(offsets).argmax())]

    def peaks(self, back: int) -> bool:
        """Whether the wanted offset stands above its two neighbours."""
        low, here, high = self.at([back - 1, back, back + 1]).tolist()
        return here > low and here > high

    def stands_out(self, back: int, offsets: Sequence[int]) -> bool:
        """Whether the wanted offset scores above all others of these, by more than a tie."""
        scores = self.at(offsets)
        here = float(self.at([back])[0])
        others = max((float(s) for d, s in zip(offsets, scores, strict=True) if d != back), default=-math.inf)
        return here - others > TIE * float(scores.max() - scores.min())

    def near(self, wanted: int, n: int, *, within: float = 0.1) -> tuple[int, ...]:
        """Offsets that score above the wanted one, or come `within` of its height (as a share of the range) and are none of
        its neighbours: aliases, where the head is right. None of a kernel that is flat.
        """
        scores = self.at(range(n))
        width = scores.max() - scores.min()
        limit = scores[wanted] - within * width
        above = scores > scores[wanted] + TIE * width
        return tuple(d for d in range(n) if width > 0 and (above[d] or (abs(d - wanted) > 1 and scores[d] >= limit)))


def kernel_of(given: Given, head: Head) -> Kernel:
    """The waves in a head's position block: M_f = [[a, -b], [b, a]] + rest per pair, from W_QK on the position bases."""
    if "theta" in given.extra:
        return _rotary_kernel(given, head)
    write = given.space.write("position") * given.amplitude.repeat_interleave(2)
    return of_block(given, (head.W_Q @ write).T @ (head.W_K @ write))


def of_block(given: Given, block: Float[Tensor, "two_k two_k"]) -> Kernel:
    """The waves of q_m^T block k_n with q_m = k_m = (cos alpha_f m, sin alpha_f m), pair after pair; D = m - n.

    cos a m cos a n + sin a m sin a n = cos a D and sin a m cos a n - cos a m sin a n = sin a D: the even and the odd
    half of each 2 x 2 block on the diagonal; everything else in it depends on more than D.
    """
    even, odd = range(0, len(block), 2), range(1, len(block), 2)
    cosine = (block[even, even] + block[odd, odd]) / 2
    sine = (block[odd, even] - block[even, odd]) / 2
    total = float(block.square().sum())
    waves = float(2 * (cosine.square() + sine.square()).sum())
    return Kernel(given.alpha, cosine, sine, waves / total if total > 0 else 0.0)


def _rotary_kernel(given: Given, head: Head) -> Kernel:
    """Under rotary positions, of the mean stream: q^T R_{j-i} k is a sum of waves in D by itself."""
    mean = given.streams().mean((0, 1))
    q, k = (head.W_Q @ mean).view(-1, 2), (head.W_K @ mean).view(-1, 2)
    cosine = (q * k).sum(1)
    sine = q[:, 0] * k[:, 1] - q[:, 1] * k[:, 0]
    return Kernel(given.theta, cosine, sine, 1.0)


def par_fraction(kernel: Kernel, margin: float, offsets: Sequence[int], wanted: int, pairs: int) -> float | None:
    """A head's margin per unit of wave energy, over the best that `pairs` of its frequencies reach; 0 to 1.

    offsets: those within reach, `wanted` among them. The best is over sums of cosines that crest at the wanted offset
    (exercises.md B3). None for a head that is none: scores that offset does not decide, waves with other crests, or a
    margin that content adds to; such a head may be better or worse than any sum of cosines.
    """
    energy, here = kernel.energy, float(kernel.at([wanted])[0])
    others = [offset for offset in offsets if offset != wanted]
    gap = here - float(kernel.at(others).max())
    if not energy or kernel.share < 1 - _SAME or here < (1 - _SAME) * energy or margin > (1 + _SAME) * gap:
        return None
    return margin / energy / par(kernel.alpha.tolist(), [abs(offset - wanted) for offset in others], pairs)


def par(alpha: Sequence[float], distances: Sequence[int], pairs: int) -> float:
    """The best gap per unit energy that a head of `pairs` of these frequencies keeps at all distances (exercises.md B3)."""
    return _par(tuple(float(a) for a in alpha), tuple(sorted(set(distances))), pairs)


@lru_cache(maxsize=64)
def _par(alpha: tuple[float, ...], distances: tuple[int, ...], pairs: int) -> float:
    chosen = itertools.combinations(alpha, min(max(1, pairs), len(alpha)))
    return max(best_weights(some, distances[-1] + 1, distances)[1] for some in chosen)
