"""Names of heads and paths: `L1H3` is head 3 of layer 1; `L0H2-L1H3` a virtual head, lowest layer first.

Layers and heads count from 0 everywhere. A path is written with `-`, never `>`: a shell would redirect.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import SupportsIndex

from headway.errors import CannotCompose, UnknownName, UsageError

_HEAD = re.compile(r"L(\d+)H(\d+)|(\d+)\.(\d+)", re.IGNORECASE)


@dataclass(frozen=True, order=True, slots=True)
class HeadId:
    """One attention head, by layer and index, both from 0.

    >>> HeadId.parse("L1H3"), str(HeadId(1, 3))
    (HeadId(layer=1, head=3), 'L1H3')
    """

    layer: int
    head: int

    def __post_init__(self) -> None:
        for name in ("layer", "head"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, SupportsIndex):
                raise UsageError(f"{name} of a head id", expected="a whole number >= 0", got=repr(value))
            object.__setattr__(self, name, operator.index(value))
        if self.layer < 0 or self.head < 0:
            raise UsageError("a head id counts from 0", expected="layer, head >= 0", got=(self.layer, self.head))

    @classmethod
    def parse(cls, text: str | HeadId) -> HeadId:
        """Read `L1H3` or `1.3`. Raises UnknownName for anything else."""
        if isinstance(text, HeadId):
            return text
        match = _HEAD.fullmatch(text.strip()) if isinstance(text, str) else None
        if not match:
            raise UnknownName("not a head", expected="L1H3 (layer 1, head 3, from 0)", got=repr(text))
        layer, head = (g for g in match.groups() if g is not None)
        return cls(int(layer), int(head))

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}"


@dataclass(frozen=True, order=True, slots=True)
class PathId:
    """A sequence of heads through strictly rising layers; the empty path is the direct path.

    >>> str(PathId.parse("L0H2-L1H3")), PathId.parse("direct").order
    ('L0H2-L1H3', 0)
    """

    heads: tuple[HeadId, ...] = ()

    def __post_init__(self) -> None:
        for low, high in zip(self.heads, self.heads[1:], strict=False):
            if low.layer >= high.layer:
                raise CannotCompose(
                    "layers of a path must rise",
                    expected="lowest layer first, as in L0H2-L1H3",
                    got=f"{low} then {high}",
                )

    @classmethod
    def parse(cls, text: str | PathId) -> PathId:
        """Read `L0H2-L1H3`, or `direct` for the empty path."""
        if isinstance(text, PathId):
            return text
        if not isinstance(text, str):
            raise UnknownName("not a path", expected="L0H2-L1H3, or direct", got=repr(text))
        if text.strip() == "direct":
            return cls()
        return cls(tuple(HeadId.parse(part) for part in text.split("-")))

    @property
    def order(self) -> int:
        """Number of heads on the path."""
        return len(self.heads)

    def __str__(self) -> str:
        return "-".join(map(str, self.heads)) or "direct"
