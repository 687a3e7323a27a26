"""`Observed`: attention patterns with the tokens they belong to, from a recording or from any other tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.errors import BadInput, NotFinite, ShapeProblem, UsageError
from headway.ids import HeadId
from headway.model.recording import Recording
from headway.shapes import as_tensor, whole_ids

Arrays = Any  # numpy arrays, tensors, nested lists
_SLACK = 1e-3  # row sums of patterns kept in half precision


@dataclass(frozen=True, eq=False)
class Observed:
    """What attention did on one batch of texts.

    patterns: [batch, head, dst, src] a layer; tokens: [batch, pos] ids; keep: True at real tokens, None when all are;
    bos: the id that starts texts, or None. Padding stands at the ends of a row. Raises ShapeProblem.
    """

    patterns: tuple[Tensor, ...]
    tokens: Tensor
    keep: Tensor | None = None
    bos: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", whole_ids(self.tokens, "tokens", "batch pos"))
        if self.bos is not None and (isinstance(self.bos, bool) or not isinstance(self.bos, int)):
            raise UsageError("BOS of the texts", expected="a token id, or None", got=repr(self.bos))
        if not isinstance(self.patterns, Sequence | np.ndarray | Tensor):
            raise ShapeProblem("patterns", expected="one array a layer", got=type(self.patterns).__name__)
        if not isinstance(self.patterns, tuple) or not all(isinstance(p, Tensor) for p in self.patterns):
            layers = tuple(as_tensor(p, f"patterns of layer {layer}") for layer, p in enumerate(self.patterns))
            object.__setattr__(self, "patterns", layers)
        if self.keep is not None:
            object.__setattr__(self, "keep", as_tensor(self.keep, "keep"))
        batch, n = self.tokens.shape
        heads = self.patterns[0].shape[1] if self.patterns and self.patterns[0].ndim == 4 else "head"
        for layer, pattern in enumerate(self.patterns):
            if tuple(pattern.shape) != (batch, heads, n, n):
                raise ShapeProblem(
                    f"patterns of layer {layer}",
                    expected=f"(batch={batch}, head={heads}, dst={n}, src={n}), as the tokens say",
                    got=tuple(pattern.shape),
                    next_step="Give one array a layer, with the batch axis first",
                )
        if self.keep is not None:
            _check_keep(self.keep, self.tokens)

    @classmethod
    def of(cls, seen: Recording | Observed) -> Observed:
        """The patterns of a recording, as they are; an Observed is returned unchanged."""
        if isinstance(seen, Observed):
            return seen
        if not isinstance(seen, Recording):
            raise UsageError(
                "not a recording",
                expected="a Recording or Observed",
                got=type(seen).__name__,
                next_step="headway.run(weights, tokens) records; Observed.from_arrays takes patterns of other tools",
            )
        return cls(seen.patterns, seen.tokens, seen.keep, seen.weights.config.bos)

    @classmethod
    def from_arrays(
        cls, patterns: Sequence[Arrays] | Arrays, tokens: Arrays, *, keep: Arrays = None, bos: int | None = None
    ) -> Observed:
        """Patterns captured by another tool, checked to be causal attention.

        patterns: one [batch, head, dst, src] array a layer, or one array [layer, batch, head, dst, src]. Raises
        ShapeProblem, NotFinite, and BadInput for negative entries, rows that sum to more than 1, or a look ahead.

        >>> Observed.from_arrays([[[[[1.0, 0.0], [0.5, 0.5]]]]], [[3, 4]], bos=3).patterns[0].shape
        torch.Size([1, 1, 2, 2])
        """
        if not hasattr(patterns, "__getitem__"):
            raise ShapeProblem("patterns", expected="one array a layer", got=type(patterns).__name__)
        layers = tuple(as_tensor(p, f"patterns of layer {layer}") for layer, p in enumerate(patterns))
        kept = None if keep is None else as_tensor(keep, "keep")
        seen = cls(layers, as_tensor(tokens, "tokens"), kept, bos)
        for layer, pattern in enumerate(layers):
            _check_attention(pattern, f"patterns of layer {layer}")
        return seen

    @property
    def real(self) -> Tensor:
        """[batch, pos]: True at real tokens."""
        return torch.ones_like(self.tokens, dtype=torch.bool) if self.keep is None else self.keep

    @property
    def head_ids(self) -> list[HeadId]:
        """Every head, layer by layer."""
        return [HeadId(layer, head) for layer, p in enumerate(self.patterns) for head in range(p.shape[1])]


def _check_keep(keep: Tensor, tokens: Tensor) -> None:
    if keep.shape != tokens.shape or keep.dtype != torch.bool:
        got = f"{keep.dtype} {tuple(keep.shape)}"
        raise ShapeProblem("keep", expected=f"bool {tuple(tokens.shape)} like tokens", got=got)
    runs = keep[:, :1].sum(1) + (keep[:, 1:] & ~keep[:, :-1]).sum(1)
    if bool((runs > 1).any()):
        row = int((runs > 1).nonzero()[0])
        raise ShapeProblem("keep", expected="padding at the ends of a row only", got=f"a gap inside row {row}")


def _check_attention(pattern: Tensor, where: str) -> None:
    if not pattern.is_floating_point():
        raise ShapeProblem("a pattern holds floating-point numbers", where=where, got=pattern.dtype)
    if not bool(pattern.isfinite().all()):
        raise NotFinite("NaN or infinity", where=where, expected="attention from 0 to 1")
    if pattern.numel() == 0:
        return
    least, most = float(pattern.min()), float(pattern.sum(-1).max())
    if least < 0 or most > 1 + _SLACK:
        got = f"entries from {least:.4g}, row sums up to {most:.4g}"
        raise BadInput("not attention", where=where, expected="entries >= 0, rows that sum to at most 1", got=got)
    ahead = float(pattern.triu(1).max())
    if ahead > 0:
        raise BadInput(
            "attention to later positions",
            where=where,
            expected="zeros where src > dst",
            got=f"{ahead:.4g}",
            next_step="Axes are (batch, head, dst, src): are dst and src swapped?",
        )
