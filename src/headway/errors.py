"""Everything Headway raises on purpose.

    HeadwayError                     exit code 1
    ├── UsageError                   2   the question cannot be asked like this
    │   ├── UnknownName              2   a head, model, token, site or option that does not exist
    │   ├── CannotCompose            2   layer order forbids this pair
    │   └── MissingExtra             2   an optional dependency is not installed
    ├── BadInput                     1   what was given is damaged or does not fit
    │   ├── FileProblem              1   missing, truncated, not the expected format
    │   ├── ShapeProblem             1   an array of the wrong shape or dtype
    │   ├── NotFinite                1   NaN or infinity in weights
    │   ├── ConfigProblem            1   an unknown or impossible config field
    │   ├── TextProblem              1   empty, too short, not UTF-8
    │   └── TokenProblem             1   ids outside the vocabulary, tokenizer and model disagree
    ├── NotBuilt                     1   a model feature Headway knows and refuses by name
    ├── TooLarge                     1   a dense result over the size guard
    ├── WriteProblem                 1   the disk is full or the place cannot be written
    ├── CheckFailed                  3   a check was made and did not pass
    └── Interrupted                130   stopped by the user; what was done is saved

Each message says what, where, what was expected (with axis names), what came, and the next step.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable


class HeadwayError(Exception):
    """Root of all deliberate errors; carries its parts so that programs need not parse the text."""

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: object = None,
        got: object = None,
        next_step: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.got = got
        self.next_step = next_step
        super().__init__(self._text())

    def _text(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        facts = []
        if self.expected is not None:
            facts.append(f"expected {self.expected}")
        if self.got is not None:
            facts.append(f"got {self.got}")
        if facts:
            text += "; " + ", ".join(facts)
        if self.next_step:
            text += f". {self.next_step}"
        return text


class UsageError(HeadwayError):
    """The question cannot be asked like this."""

    exit_code = 2


class UnknownName(UsageError):
    """A head, model, token, site or option that does not exist."""


class CannotCompose(UsageError):
    """Layer order forbids this pair: the writer must be in an earlier layer than the reader."""


class MissingExtra(UsageError):
    """An optional dependency is not installed."""


class BadInput(HeadwayError):
    """What was given is damaged or does not fit."""


class FileProblem(BadInput):
    """A file is missing, truncated, or not of the expected format."""


class ShapeProblem(BadInput):
    """An array has the wrong shape or dtype."""


class NotFinite(BadInput):
    """NaN or infinity where finite numbers are needed."""


class ConfigProblem(BadInput):
    """An unknown or impossible config field."""


class TextProblem(BadInput):
    """A text is empty, too short, or not UTF-8."""


class TokenProblem(BadInput):
    """Token ids outside the vocabulary, or a tokenizer that does not belong to the model."""


class NotBuilt(HeadwayError):
    """A model feature Headway knows by name and refuses rather than getting wrong."""


class TooLarge(HeadwayError):
    """A dense result above the size guard."""


class WriteProblem(HeadwayError):
    """A result could not be written; nothing half-written was left."""


class CheckFailed(HeadwayError):
    """A check was made and did not pass."""

    exit_code = 3


class Interrupted(HeadwayError):
    """Stopped by the user; what was finished is saved."""

    exit_code = 130


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence with the nearest known names, or the list of them when it is short.

    >>> did_you_mean("two-layr", ["zero-layer", "one-layer", "two-layer"])
    'Did you mean two-layer?'
    """
    names = [str(k) for k in known]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        likeness = [difflib.SequenceMatcher(None, name, other).ratio() for other in near]
        near = [other for other, like in zip(near, likeness, strict=True) if like > max(likeness) - 0.15]
        return "Did you mean " + " or ".join(near) + "?"
    if 0 < len(names) <= 12:
        return "Known: " + ", ".join(names)
    return ""


def counted(n: int, what: str) -> str:
    """A number of things in words.

    >>> counted(1, "layer"), counted(1200, "layer")
    ('1 layer', '1,200 layers')
    """
    return f"{n:,} {what}{'s' * (n != 1)}"


def check_kind(
    value: object, kinds: type | tuple[type, ...], what: str, *, expected: str, next_step: str | None = None
) -> None:
    """Raise UsageError for an argument that is none of these kinds.

    >>> check_kind(None, str, "title of a page", expected="text")
    Traceback (most recent call last):
    headway.errors.UsageError: title of a page; expected text, got None
    """
    if not isinstance(value, kinds):
        got = repr(value)[:60] if isinstance(value, str | int | float | None) else type(value).__name__
        raise UsageError(what, expected=expected, got=got, next_step=next_step)


def check_path(value: object, what: str) -> None:
    """Raise UsageError for what no file or folder can be called: a number, None, a zero byte.

    >>> check_path("a/b.csv", "a table")
    """
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise UsageError(what, expected="a path", got=repr(value)[:60])
