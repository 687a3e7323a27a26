"""What a forward pass leaves behind, what of it can be frozen, and where it can be edited."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING

from torch import Tensor

from headway.errors import ShapeProblem, UnknownName, UsageError, check_kind, did_you_mean
from headway.ids import HeadId
from headway.model.config import ModelConfig
from headway.shapes import Keep, Logits, Pattern, PerHead, Stream, Tokens

if TYPE_CHECKING:
    from headway.model.weights import Weights

Change = Tensor | Callable[[Tensor], Tensor]
PARTS = ("pattern", "scores", "result", "Q", "K", "V")
_SITE = re.compile(r"(L\d+H\d+)\.(\w+)")


@dataclass(frozen=True, eq=False)
class Freeze:
    """Patterns and norm scales to use instead of computing them; None leaves a kind live."""

    patterns: tuple[Pattern, ...] | None = None
    norm_scales: tuple[Tensor, ...] | None = None

    @classmethod
    def of(cls, freeze: Recording | Freeze | None) -> Freeze:
        """Everything of a Recording, a Freeze as it is, nothing for None. Raises UsageError for all else."""
        hint = "freeze=recording, or freeze=recording.frozen(patterns=False)"
        kinds = (Recording, Freeze, NoneType)
        check_kind(freeze, kinds, "freeze", expected="a Recording or a Freeze", next_step=hint)
        return freeze.frozen() if isinstance(freeze, Recording) else freeze or cls()

    def pattern(self, layer: int) -> Pattern | None:
        """The frozen patterns of a layer, or None."""
        return None if self.patterns is None else self.patterns[layer]

    def scale(self, layer: int) -> Tensor | None:
        """The frozen 1/sigma of a layer's read norm (n_layers = the final norm), or None."""
        return None if self.norm_scales is None else self.norm_scales[layer]

    def check(self, config: ModelConfig, tokens: Tokens, edits: Edits) -> None:
        """Raise ShapeProblem when the frozen parts belong to another model or text, UsageError when they undo an edit."""
        if self.patterns is not None and any(edits.touches_scores(layer) for layer in range(config.n_layers)):
            raise UsageError(
                "edited scores change nothing while patterns are frozen",
                next_step="Freeze norms alone: freeze=recording.frozen(patterns=False), or edit the pattern",
            )
        batch, n = tokens.shape
        if self.patterns is not None:
            want = [(batch, config.n_heads, n, n)] * config.n_layers
            got = [tuple(p.shape) for p in self.patterns]
            if got != want:
                raise ShapeProblem("frozen patterns", expected=f"a (batch, head, dst, src) a layer: {want}", got=got)
        if self.norm_scales is not None:
            want = [(batch, n)] * (config.n_layers + 1)
            got = [tuple(s.shape) for s in self.norm_scales]
            if got != want or config.norm == "none":
                raise ShapeProblem("frozen norm scales", expected=f"(batch, pos) a read: {want}", got=got)


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """Everything one forward pass computed.

    streams: the residual stream before each layer and after the last (n_layers + 1 of [batch, pos, d_model]).
    norm_scales: 1/sigma at each read, the final norm last (None without norms). scores: before the softmax, -inf where
    `allowed` ([batch or 1, dst, src]) is False. patterns: after it. results: each head's write before b_O, when asked
    for. logits: [batch, pos, vocab]. All tensors are the pass's own: treat them as read-only.
    """

    weights: Weights
    tokens: Tokens
    keep: Keep | None
    allowed: Tensor
    streams: tuple[Stream, ...]
    norm_scales: tuple[Tensor, ...] | None
    scores: tuple[Pattern, ...]
    patterns: tuple[Pattern, ...]
    results: tuple[PerHead, ...] | None
    logits: Logits

    def frozen(self, *, patterns: bool = True, norms: bool = True) -> Freeze:
        """What to hold fixed in another run of the same text."""
        return Freeze(self.patterns if patterns else None, self.norm_scales if norms else None)

    def pattern(self, head: str | HeadId) -> Tensor:
        """Attention pattern of one head, [batch, dst, src]."""
        found = self.weights.head_id(head)
        return self.patterns[found.layer][:, found.head]


class Edits:
    """Edits of one run, parsed and sorted by where they act."""

    def __init__(self, changes: Mapping[tuple[int, int, str], Change], final: Change | None) -> None:
        self._changes = changes
        self.final = final

    @classmethod
    def parse(cls, edit: Mapping[str, Change], weights: Weights) -> Edits:
        """Read `{"L1H3.pattern": tensor or function}`.

        Raises UnknownName for a site that does not exist, ShapeProblem for what is neither tensor nor function.
        """
        if not isinstance(edit, Mapping):
            raise UsageError("edit", expected="{site: tensor or function}", got=type(edit).__name__)
        changes: dict[tuple[int, int, str], Change] = {}
        final = None
        for site, change in edit.items():
            if not isinstance(change, Tensor) and not callable(change):
                raise ShapeProblem(f"edit of {site}", expected="a tensor or a function", got=type(change).__name__)
            match = _SITE.fullmatch(str(site))
            if site == "logits":
                final = change
            elif match and match[2] in PARTS:
                head = weights.head_id(match[1])
                changes[head.layer, head.head, match[2]] = change
            else:
                raise UnknownName(
                    "no such edit site",
                    expected="logits or L1H3. followed by " + " | ".join(PARTS),
                    got=repr(site),
                    next_step=_nearest(str(site)),
                )
        return cls(changes, final)

    def at(self, layer: int, part: str) -> list[tuple[int, Change]]:
        """(head, change) for every edit of this part in this layer."""
        return [(h, change) for (at, h, name), change in self._changes.items() if at == layer and name == part]

    def touches_scores(self, layer: int) -> bool:
        """Whether an edited score could empty a row."""
        return bool(self.at(layer, "scores"))


def _nearest(site: str) -> str:
    """Sites like this one, of the head it names."""
    head = site.rpartition(".")[0]
    return did_you_mean(site, ["logits", *(f"{head.upper()}.{part}" for part in PARTS)] if head else ["logits"])


def apply(change: Change, current: Tensor, site: str) -> Tensor:
    """The edited tensor; it must keep the shape of what it replaces."""
    try:
        new = change if isinstance(change, Tensor) else change(current.clone())
    except Exception as error:
        error.add_note(f"in the edit of {site}, which was called with a tensor {tuple(current.shape)}")
        raise
    if not isinstance(new, Tensor) or new.shape != current.shape or new.is_complex():
        kind = " complex" if isinstance(new, Tensor) and new.is_complex() else ""
        got = f"{tuple(new.shape)}{kind}" if isinstance(new, Tensor) else type(new).__name__
        raise ShapeProblem(f"edit of {site}", expected=f"a tensor {tuple(current.shape)}", got=got)
    return new.to(current)
