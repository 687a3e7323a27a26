"""What a trained model takes along: counts of its training text, texts it never saw, and its card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from torch import Tensor

from headway.errors import BadInput, ConfigProblem, ShapeProblem, TokenProblem

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Carried:
    """Bigram counts of the training text, validation and held-out token ids, and a card.

    bigrams: [3, n] integers: first token, next token, how often in training (each window's BOS included as first).
    validation, heldout: token ids of whole files, cut only at file ends by BOS; smoothing is fitted on the first, losses
    are reported on the second.
    card: recipe, seed, corpus hash, losses, licence of the text, and the command that rebuilds the model.
    """

    bigrams: Int[np.ndarray, "3 n"]
    validation: Int[np.ndarray, " v"]
    heldout: Int[np.ndarray, " h"]
    card: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, axes in (("bigrams", 2), ("validation", 1), ("heldout", 1)):
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.ndim != axes:
                got = f"{array.shape} {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
                raise ShapeProblem(f"carried {name}", expected=f"whole numbers with {axes} axes", got=got)
        if self.bigrams.shape[0] != 3:
            raise ShapeProblem(
                "bigram counts", expected="(3, n): first token, next token, count", got=self.bigrams.shape
            )
        if self.bigrams.size and self.bigrams[2].min() < 0:
            raise BadInput("bigram counts", expected="counts >= 0", got=int(self.bigrams[2].min()))
        if not isinstance(self.card, Mapping):
            raise ConfigProblem("a card", expected="named fields", got=type(self.card).__name__)

    def check_vocabulary(self, d_vocab: int) -> None:
        """Raise TokenProblem when any id lies outside the vocabulary."""
        for name, ids in (("bigrams", self.bigrams[:2]), ("validation", self.validation), ("heldout", self.heldout)):
            if ids.size and (ids.min() < 0 or ids.max() >= d_vocab):
                raise TokenProblem(
                    f"{name} ids", expected=f"0 .. d_vocab-1={d_vocab - 1}", got=f"{ids.min()} .. {ids.max()}"
                )

    def bigram_table(self, d_vocab: int) -> Float[Tensor, "first next"]:
        """The counts as a dense float64 table [first, next]."""
        import torch

        first, following = torch.from_numpy(self.bigrams[:2].astype(np.int64))
        table = torch.zeros(d_vocab, d_vocab, dtype=torch.float64)
        return table.index_put_(
            (first, following), torch.from_numpy(self.bigrams[2].astype(np.float64)), accumulate=True
        )
