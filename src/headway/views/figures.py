"""Pictures as data: what is drawn, with its axes and unit, before anything is drawn.

Numbers are given as anything `numpy.asarray` takes and kept as read-only float64 arrays; NaN and infinity count as
missing. Each figure can say what it shows in a sentence (`describe`), which is also its text alternative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

import numpy as np

from headway.errors import ShapeProblem, UsageError, check_kind

Numbers = Any  # lists, numpy arrays, tensors on the CPU


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A matrix as colours: `values[row, col]`, one label a row and a column.

    row_axis, col_axis: what rows and columns are (`destination (query)`, `source (key)`); signed: colours symmetric
    about 0; low, high: ends of the colour scale, from the values when None. Raises ShapeProblem when labels and values
    do not match, UsageError when the scale is empty.

    >>> axes = {"row_axis": "query", "col_axis": "key", "unit": "probability"}
    >>> HeatMap("Pattern", [[1.0, 0.5]], ["x"], ["a", "b"], **axes).describe()
    'Heat map: rows are query (1), columns are key (2). Values: 0.5 to 1 probability.'
    """

    title: str
    values: Numbers
    row_labels: Sequence[str]
    col_labels: Sequence[str]
    _: KW_ONLY
    row_axis: str
    col_axis: str
    unit: str = ""
    signed: bool = False
    low: int | float | None = None
    high: int | float | None = None
    caption: str = ""

    def __post_init__(self) -> None:
        check_kind(self.title, str, "title of a figure", expected="text")
        _freeze(self, "values", 2)
        _check_length("row_labels", self.row_labels, "rows", self.values.shape[0])
        _check_length("col_labels", self.col_labels, "cols", self.values.shape[1])
        for end in (self.low, self.high):
            if end is not None and not (isinstance(end, Real) and np.isfinite(float(end))):
                raise UsageError("ends of a colour scale", where=self.title, expected="finite numbers", got=repr(end))
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise UsageError(
                "an empty colour scale", where=self.title, expected="low < high", got=(self.low, self.high)
            )

    def scale(self) -> tuple[float, float]:
        """Ends of the colour scale: symmetric when signed, from 0 when no value is negative, never empty."""
        finite = self.values[np.isfinite(self.values)]
        least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        if self.signed:
            ends = [abs(float(end)) for end in (self.low, self.high) if end is not None] or [abs(least), abs(most)]
            reach = max(ends) or 1.0
            return -reach, reach
        low = float(self.low) if self.low is not None else min(least, 0.0)
        high = float(self.high) if self.high is not None else most
        return low, high if high > low else low + 1.0

    def range_text(self) -> str:
        """The range of the values, how many are missing, and how many lie beyond the colour scale."""
        low, high = self.scale()
        outside = int((np.isfinite(self.values) & ((self.values < low) | (self.values > high))).sum())
        ends = f"{_number(low)} to {_number(high)}"
        clipped = f" {outside} cells lie beyond the colour scale ({ends})." if outside else ""
        return f"Values: {_range(self.values, self.unit, 'cells', ' (hatched)')}{clipped}"

    def describe(self) -> str:
        """Sizes and range in two sentences."""
        rows, cols = self.values.shape
        return f"Heat map: rows are {self.row_axis} ({rows}), columns are {self.col_axis} ({cols}). {self.range_text()}"


@dataclass(frozen=True, eq=False)
class Lines:
    """Curves: `series[name] = (x, y)`, with an optional band `(low, high)` around some of them.

    Raises ShapeProblem when lengths differ, UsageError for a logarithmic axis with values that are not positive or a
    band of no series.

    >>> Lines("Loss", {"two-layer": ([1, 2], [6.9, 3.2])}, x_axis="tokens", y_axis="loss (nats)").describe()
    'Curves of loss (nats) against tokens. two-layer: 6.9 to 3.2 over 1 to 2.'
    """

    title: str
    series: Mapping[str, tuple[Numbers, Numbers]]
    _: KW_ONLY
    x_axis: str
    y_axis: str
    log_x: bool = False
    bands: Mapping[str, tuple[Numbers, Numbers]] | None = None
    caption: str = ""

    def __post_init__(self) -> None:
        check_kind(self.title, str, "title of a figure", expected="text")
        series = {name: _pair(pair, name, "(x, y)") for name, pair in self.series.items()}
        bands = {name: _pair(pair, f"band of {name}", "(low, high)") for name, pair in (self.bands or {}).items()}
        for name, (x, y) in series.items():
            _check_length(f"y of {name}", y, "points", len(x))
            if self.log_x and bool((x <= 0).any()):
                raise UsageError("a logarithmic axis needs positive values", where=f"x of {name}", got=float(x.min()))
        for name, band in bands.items():
            if name not in series:
                raise UsageError(f"a band of no series: {name!r}", where=self.title, expected=list(series))
            for edge in band:
                _check_length(f"band of {name}", edge, "points", len(series[name][0]))
        object.__setattr__(self, "series", series)
        object.__setattr__(self, "bands", bands)

    def describe(self) -> str:
        """One sentence for the axes and one for each curve."""
        parts = [f"Curves of {self.y_axis} against {self.x_axis}."]
        for name, (x, y) in self.series.items():
            known = np.flatnonzero(np.isfinite(y))
            if not known.size:
                parts.append(f"{name}: no values.")
                continue
            first, last = known[0], known[-1]
            span = f"{_number(x[first])} to {_number(x[last])}"
            parts.append(f"{name}: {_number(y[first])} to {_number(y[last])} over {span}.")
        return " ".join(parts)


@dataclass(frozen=True, eq=False)
class Scatter:
    """Points `(x, y)` with a label each, coloured by group when groups are given.

    Raises ShapeProblem when lengths differ.

    >>> axes = {"x_axis": "prefix matching", "y_axis": "copying"}
    >>> Scatter("Heads", [0.1, 0.6], [0.2, 1.0], ["L0H0", "L1H3"], **axes).describe()
    '2 points. prefix matching: 0.1 to 0.6. copying: 0.2 to 1.'
    """

    title: str
    x: Numbers
    y: Numbers
    labels: Sequence[str]
    _: KW_ONLY
    x_axis: str
    y_axis: str
    groups: Sequence[str] | None = None
    caption: str = ""

    def __post_init__(self) -> None:
        check_kind(self.title, str, "title of a figure", expected="text")
        _freeze(self, "x", 1)
        _freeze(self, "y", 1)
        _check_length("y", self.y, "points", len(self.x))
        _check_length("labels", self.labels, "points", len(self.x))
        if self.groups is not None:
            _check_length("groups", self.groups, "points", len(self.x))

    def describe(self) -> str:
        """How many points and the range of either axis."""
        x, y = _range(self.x, "", "points"), _range(self.y, "", "points")
        return f"{len(self.x)} points. {self.x_axis}: {x} {self.y_axis}: {y}"


@dataclass(frozen=True, eq=False)
class Bars:
    """Horizontal bars, one a label, with optional symmetric errors.

    Raises ShapeProblem when lengths differ, UsageError for negative errors.

    >>> Bars("Loss by order", ["0", "1"], [5.5, 3.25], axis="loss (nats)", errors=[0.01, 0.01]).describe()
    'Bars of loss (nats), with errors. 0: 5.5; 1: 3.25.'
    """

    title: str
    labels: Sequence[str]
    values: Numbers
    _: KW_ONLY
    axis: str
    errors: Numbers = None
    caption: str = ""

    def __post_init__(self) -> None:
        check_kind(self.title, str, "title of a figure", expected="text")
        _freeze(self, "values", 1)
        _check_length("labels", self.labels, "bars", len(self.values))
        if self.errors is not None:
            _freeze(self, "errors", 1)
            _check_length("errors", self.errors, "bars", len(self.values))
            if bool((self.errors < 0).any()):
                raise UsageError("errors are not negative", where=self.title, got=float(np.nanmin(self.errors)))

    def describe(self) -> str:
        """Every bar up to twenty, then the range."""
        head = f"Bars of {self.axis}{', with errors' if self.errors is not None else ''}. "
        if len(self.values) > 20:
            return f"{head}{len(self.values)} bars: {_range(self.values, '', 'bars')}"
        return head + "; ".join(f"{n}: {_number(v)}" for n, v in zip(self.labels, self.values, strict=True)) + "."


Figure = HeatMap | Lines | Scatter | Bars


def _array(values: Numbers, ndim: int, where: str) -> np.ndarray:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeProblem("not an array of numbers", where=where, got=str(error)) from error
    if array.ndim != ndim:
        raise ShapeProblem("wrong number of axes", where=where, expected=f"{ndim} axes", got=array.shape)
    array.setflags(write=False)
    return array


def _pair(pair: object, where: str, expected: str) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ShapeProblem("not two arrays", where=where, expected=expected, got=type(pair).__name__)
    return _array(pair[0], 1, where), _array(pair[1], 1, where)


def _freeze(figure: object, name: str, ndim: int) -> None:
    object.__setattr__(figure, name, _array(getattr(figure, name), ndim, name))


def _check_length(name: str, values: Any, axis: str, wanted: int) -> None:
    if len(values) != wanted:
        raise ShapeProblem("lengths differ", where=name, expected=f"({axis}={wanted},)", got=f"({len(values)},)")


def _range(values: np.ndarray, unit: str, things: str, mark: str = "") -> str:
    finite = values[np.isfinite(values)]
    missing = values.size - finite.size
    if not finite.size:
        return "none."
    text = f"{_number(finite.min())} to {_number(finite.max())}{' ' + unit if unit else ''}."
    return text + (f" {missing} of {values.size} {things} have no value{mark}." if missing else "")


def _number(value: float) -> str:
    return f"{value:.4g}" if np.isfinite(value) else "no value"
