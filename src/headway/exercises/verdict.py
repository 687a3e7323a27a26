"""What an answer is told: passed or not, a named reason with its numbers, one counterexample, one picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from headway.exercises.catalogue import sentence

Facts = Mapping[str, Any]  # numbers and short texts by name; the catalogue's sentences name them


@dataclass(frozen=True)
class Note:
    """A remark beside the verdict: what was left out, what else is true of the answer. `code` names its sentence."""

    code: str
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Counterexample:
    """The shortest sequence on which the answer fails, and what its head does there.

    tokens: ids of the exercise's vocabulary; query: position that looks; target: positions it should look at;
    attention: its row, probabilities over positions 0 .. query, with scores multiplied by `sharpened_by` so that the
    largest differs from the least by 10 nats (scale is not graded, so it may not hide the failure).
    """

    tokens: tuple[int, ...]
    query: int
    target: tuple[int, ...]
    attention: tuple[float, ...]
    sharpened_by: float


@dataclass(frozen=True)
class Sharpness:
    """How large scores must be, and how good the shape is, whatever the scale.

    T99: multiply x^T W_QK x by this (1/sqrt(d_head) included) and at most 1 % of any row leaks off its targets
    (sufficient: handmade/sharpness.py). relative_margin: worst margin over the largest range of a row, 0 to 1.
    par_fraction: margin per unit energy as a fraction, 0 to 1, of the best that the linear programme finds for these
    frequencies and this width (exercises.md B3); None where position alone, by offset alone, does not give the margin.
    """

    T99: float
    relative_margin: float
    par_fraction: float | None = None


@dataclass(frozen=True, eq=False)
class Picture:
    """Yours, wanted and difference as plain arrays with labels.

    kind `matrix`: each [rows, columns]; kind `kernel`: each [offsets], score against offset, columns the offsets.
    marks: offsets (kernel) whose score is above the target's, or nearly as high (an alias).
    """

    kind: Literal["matrix", "kernel"]
    yours: Float[np.ndarray, "..."]
    wanted: Float[np.ndarray, "..."]
    difference: Float[np.ndarray, "..."]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Verdict:
    """The decision on one answer. `reason` is a code (PASSED, OFFSET, ALIAS, ...); `message` says it in a sentence.

    >>> Verdict("2c", True, "PASSED").passed
    True
    """

    id: str
    passed: bool
    reason: str
    facts: Facts = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    counterexample: Counterexample | None = None
    sharpness: Sharpness | None = None
    picture: Picture | None = None
    lang: str = "en"

    @property
    def message(self) -> str:
        """The reason as a sentence, in the language that was asked for."""
        return self.text(self.lang)

    def text(self, lang: str) -> str:
        """The reason as a sentence in a language of the catalogue: `en` or `zh`."""
        return sentence(self.id, self.reason, self.facts, lang=lang)

    def note_texts(self, lang: str | None = None) -> tuple[str, ...]:
        """The notes as sentences."""
        spoken = lang or self.lang
        return tuple(sentence(self.id, f"note.{note.code}", note.facts, lang=spoken) for note in self.notes)

    def with_facts(self, **facts: object) -> Verdict:
        """The same verdict with more facts."""
        return replace(self, facts={**self.facts, **facts})

    def with_notes(self, *notes: Note) -> Verdict:
        """The same verdict with more notes, each said once."""
        return replace(self, notes=self.notes + tuple(note for note in notes if note not in self.notes))

    def __repr__(self) -> str:
        return f"Verdict({self.id}: {'passed' if self.passed else 'not passed'}, {self.reason}, {dict(self.facts)})"


def passed(id: str, **parts: Any) -> Verdict:
    """A verdict of an answer that passed; parts are its other fields."""
    return Verdict(id, True, "PASSED", **parts)


def failed(id: str, reason: str, facts: Facts | None = None, **parts: Any) -> Verdict:
    """A verdict of an answer that did not pass, with its reason code."""
    return Verdict(id, False, reason, facts or {}, **parts)
