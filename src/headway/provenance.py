"""What a result came from: which weights, how processed, with which options, seed and version. No clock.

Two runs of the same question on the same weights carry equal provenance, so files can be compared byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headway.version import VERSION


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a number comes from.

    weights: content hash of the weights, `""` when none are involved; source: what the user named;
    steps: the processing done to the weights, in order (`folded norms`, …), empty = raw;
    options: the settings of the computation; seed: of every random draw; version: of Headway.
    """

    weights: str = ""
    source: str = ""
    steps: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    version: str = VERSION

    @property
    def processing(self) -> str:
        """`raw`, or the steps joined: what stands beside every result."""
        return " + ".join(self.steps) or "raw"

    def with_step(self, step: str) -> Provenance:
        """The same provenance with one more processing step."""
        return replace(self, steps=(*self.steps, step))

    def with_options(self, seed: int | None = None, **options: Any) -> Provenance:
        """The same provenance with options added, and the seed when given."""
        return replace(
            self, options={**self.options, **options}, seed=self.seed if seed is None else seed, version=VERSION
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict; `processing` is spelled out for readers."""
        return {
            "weights": self.weights,
            "source": self.source,
            "processing": self.processing,
            "steps": list(self.steps),
            "options": dict(self.options),
            "seed": self.seed,
            "version": self.version,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Provenance:
        """Inverse of `to_dict`. Raises TypeError for fields of another kind."""
        kinds: dict[str, Any] = {"weights": str, "source": str, "steps": (list, tuple), "options": dict, "version": str}
        found: dict[str, Any] = {"weights": "", "source": "", "steps": (), "options": {}, "version": "", **data}
        odd = [name for name, kind in kinds.items() if not isinstance(found[name], kind)]
        odd += [] if all(isinstance(step, str) for step in found["steps"]) else ["steps"]
        odd += [] if type(found.get("seed")) in (int, type(None)) else ["seed"]
        if odd:
            raise TypeError(f"provenance field {odd[0]}: {found[odd[0]]!r}")
        return cls(
            weights=found["weights"],
            source=found["source"],
            steps=tuple(found["steps"]),
            options=dict(found["options"]),
            seed=found.get("seed"),
            version=found["version"],
        )


def content_hash(parts: Iterable[tuple[str, bytes]]) -> str:
    """First 16 hex digits of SHA-256 over named byte strings, independent of their order.

    >>> content_hash([("a", b"1"), ("b", b"2")]) == content_hash([("b", b"2"), ("a", b"1")])
    True
    """
    digests = sorted((name, hashlib.sha256(data).hexdigest()) for name, data in parts)
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16]
