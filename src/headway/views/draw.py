"""Figures onto a matplotlib canvas: one function a kind of figure. Only `still` calls this module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox

from headway.errors import UsageError
from headway.tokens.labels import printable
from headway.views.figures import Bars, Figure, HeatMap, Lines, Scatter
from headway.views.themes import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_LONGEST_LABEL = 24
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_MARKERS = "osD^vPX*"
_LABELLED_POINTS = 24
_NUMBERED_CELLS = 150


def draw(canvas: Canvas, figure: Figure, theme: Theme, *, heading: bool) -> None:
    """Draw a figure, set the canvas' size, and put the title above when `heading`."""
    axes = canvas.add_subplot()
    if isinstance(figure, HeatMap):
        _heat_map(canvas, axes, figure, theme)
    elif isinstance(figure, Lines):
        _lines(canvas, axes, figure, theme)
    elif isinstance(figure, Scatter):
        _scatter(canvas, axes, figure, theme)
    elif isinstance(figure, Bars):
        _bars(canvas, axes, figure, theme)
    else:
        raise UsageError("not a figure", expected="HeatMap, Lines, Scatter or Bars", got=type(figure).__name__)
    if heading:
        canvas.suptitle(printable(figure.title), x=0.01, ha="left", fontsize=10, fontweight="bold")
        if isinstance(figure, HeatMap):
            axes.set_title(printable(figure.range_text()), loc="left", fontsize=7, color=theme.muted)


def _heat_map(canvas: Canvas, axes: Axes, figure: HeatMap, theme: Theme) -> None:
    rows, cols = figure.values.shape
    numbered = 0 < rows * cols <= _NUMBERED_CELLS and cols <= 14
    cell = min(0.46 if numbered else 0.3, 6.4 / max(cols, 1), 7.5 / max(rows, 1))
    row_labels, col_labels = _short(figure.row_labels), _short(figure.col_labels)
    upright = max(map(len, col_labels), default=0) * 0.075 > cell
    canvas.set_size_inches(
        max(cols * cell, 1.2) + 1.9 + 0.07 * max(map(len, row_labels), default=0),
        max(rows * cell, 1.0) + 0.9 + (0.07 * max(map(len, col_labels), default=0) if upright else 0.15),
    )
    low, high = figure.scale()
    norm, colours = Normalize(low, high), _colours(figure.signed, theme)
    # One hatched sheet lies under the picture and shows through where a cell has no value.
    axes.add_patch(Rectangle((-0.5, -0.5), cols, rows, facecolor=theme.panel, hatch="////", linewidth=0, zorder=-1))
    masked = np.ma.masked_invalid(figure.values if figure.values.size else np.full((1, 1), np.nan))
    picture = axes.imshow(masked, cmap=colours, norm=norm, interpolation="none", aspect="equal")
    axes.set_xlim(-0.5, max(cols, 1) - 0.5)
    axes.set_ylim(max(rows, 1) - 0.5, -0.5)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(theme.rule)
    _cell_labels(axes, "x", col_labels, cell, rotation=90 if upright else 0)
    _cell_labels(axes, "y", row_labels, cell, rotation=0)
    axes.set_xlabel(printable(figure.col_axis) + " →")
    axes.set_ylabel("← " + printable(figure.row_axis))
    if numbered:
        _numbers_in_cells(axes, figure.values, norm, colours)
    below, above = bool((masked < low).any()), bool((masked > high).any())
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    bar = canvas.colorbar(picture, ax=axes, extend=extend, shrink=0.9, aspect=18, pad=0.02)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.set_ticks([low, (low + high) / 2, high], labels=[_tick(end) for end in (low, (low + high) / 2, high)])
    bar.set_label(printable(figure.unit))


def _cell_labels(axes: Axes, which: str, labels: Sequence[str], cell: float, *, rotation: int) -> None:
    """One label a cell, or every k-th where cells are smaller than a line of text."""
    step = max(1, int(np.ceil(0.14 / cell)))
    shown = list(range(0, len(labels), step))
    size = 8 if cell >= 0.2 else 7
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(shown, [labels[i] for i in shown], rotation=rotation, fontsize=size)
    axis.set_tick_params(length=0 if step == 1 else 2)


def _numbers_in_cells(axes: Axes, values: np.ndarray, norm: Normalize, colours: Colormap) -> None:
    finite = np.abs(values[np.isfinite(values)])
    top = float(finite.max()) if finite.size else 0.0
    if top and top < 0.01:
        return
    decimals = 3 if top < 0.1 else 2 if top < 10 else 1 if top < 100 else 0
    for (row, col), value in np.ndenumerate(values):
        if np.isfinite(value):
            ink = _ink(colours(norm(value)))
            axes.text(col, row, f"{value:.{decimals}f}", ha="center", va="center", fontsize=7.5, color=ink)


def _lines(canvas: Canvas, axes: Axes, figure: Lines, theme: Theme) -> None:
    canvas.set_size_inches(6.6, 3.5)
    for k, (name, (x, y)) in enumerate(figure.series.items()):
        colour = theme.series[k % len(theme.series)]
        dash = _DASHES[(k // len(theme.series) + k) % len(_DASHES)]
        marker = _MARKERS[k % len(_MARKERS)] if len(x) <= 20 else None
        axes.plot(x, y, color=colour, linestyle=dash, marker=marker, markersize=4, linewidth=1.6, label=printable(name))
        if figure.bands and name in figure.bands:
            low, high = figure.bands[name]
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    if figure.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    reach = max((float(np.nanmax(np.abs(x), initial=0.0)) for x, _ in figure.series.values()), default=0.0)
    if figure.log_x or reach >= 1e5:
        axes.xaxis.set_major_formatter(FuncFormatter(_compact))
    axes.grid(True)
    axes.set_xlabel(printable(figure.x_axis))
    axes.set_ylabel(printable(figure.y_axis))
    if len(figure.series) > 1:
        canvas.legend(loc="outside lower left", ncols=min(len(figure.series), 4))


def _scatter(canvas: Canvas, axes: Axes, figure: Scatter, theme: Theme) -> None:
    canvas.set_size_inches(6.2, 4.4)
    groups = list(figure.groups) if figure.groups is not None else [""] * len(figure.x)
    for k, group in enumerate(dict.fromkeys(groups)):
        mine = np.array([g == group for g in groups])
        axes.scatter(
            *(figure.x[mine], figure.y[mine]),
            s=26,
            color=theme.series[k % len(theme.series)],
            marker=_MARKERS[k % len(_MARKERS)],
            edgecolors=theme.background,
            linewidths=0.5,
            label=printable(group),
        )
    axes.grid(True)
    axes.margins(0.08)
    axes.set_xlabel(printable(figure.x_axis))
    axes.set_ylabel(printable(figure.y_axis))
    if figure.groups is not None and groups:
        canvas.legend(loc="outside lower left", ncols=min(len(set(groups)), 4))
    _label_points(canvas, axes, figure, theme)


def _outermost(x: np.ndarray, y: np.ndarray) -> list[int]:
    """The points worth a label, farthest from the middle first, in units of the spread."""
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if not len(known):
        return []
    away = sum(((v[known] - v[known].mean()) / (v[known].std() or 1.0)) ** 2 for v in (x, y))
    return [int(i) for i in known[np.argsort(-np.asarray(away), kind="stable")[:_LABELLED_POINTS]]]


def _label_points(canvas: Canvas, axes: Axes, figure: Scatter, theme: Theme) -> None:
    """Labels of the outermost points, the farther out first, each where it touches no point and no other label."""
    labels, chosen = _short(figure.labels), _outermost(figure.x, figure.y)
    canvas.draw_without_rendering()  # where the points stand is settled only now
    frame, points = axes.get_window_extent(), axes.transData.transform(np.column_stack((figure.x, figure.y)))
    reach = 3 * canvas.dpi / 72  # a marker is 5 points wide
    taken = [Bbox.from_extents(*(point - reach), *(point + reach)) for point in points if np.isfinite(point).all()]
    for i in chosen:
        for right, up in ((True, True), (False, True), (True, False), (False, False)):
            label = axes.annotate(
                labels[i],
                (float(figure.x[i]), float(figure.y[i])),
                xytext=(4 if right else -4, 3 if up else -3),
                textcoords="offset points",
                ha="left" if right else "right",
                va="bottom" if up else "top",
                fontsize=7,
                color=theme.muted,
            )
            box = label.get_window_extent()
            if frame.x0 <= box.x0 and box.x1 <= frame.x1 and not box.count_overlaps(taken):
                taken.append(box)
                break
            label.remove()


def _bars(canvas: Canvas, axes: Axes, figure: Bars, theme: Theme) -> None:
    count = len(figure.values)
    canvas.set_size_inches(6.2, 0.75 + 0.26 * max(count, 1))
    places = np.arange(count)
    values = np.where(np.isfinite(figure.values), figure.values, 0.0)
    errors = None if figure.errors is None else np.where(np.isfinite(figure.values * figure.errors), figure.errors, 0.0)
    axes.barh(places, values, height=0.66, color=theme.series[0])
    if errors is not None:
        axes.errorbar(values, places, xerr=errors, fmt="none", ecolor=theme.text, elinewidth=1.0, capsize=2)
    for place, value in zip(places, figure.values, strict=True):
        reach = 0.0 if errors is None else float(errors[place])
        known = bool(np.isfinite(value))
        left = known and value < 0
        axes.annotate(
            f"{value:.4g}" if known else "no value",
            ((value - reach if left else value + reach) if known else 0.0, place),
            xytext=(-4 if left else 4, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=7.5,
            color=theme.muted,
        )
    axes.axvline(0, color=theme.muted, linewidth=0.8)
    axes.set_yticks(places, _short(figure.labels))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(count, 1) - 0.5, -0.5)
    axes.margins(x=0.14)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.grid(True, axis="x")
    axes.set_xlabel(printable(figure.axis))


def _colours(signed: bool, theme: Theme) -> Colormap:
    colours = LinearSegmentedColormap.from_list("headway", theme.signed if signed else theme.quantity)
    return colours.with_extremes(bad=(0, 0, 0, 0))


def _ink(colour: Sequence[float]) -> str:
    """Black or white, whichever stands out more on a colour (relative luminance of WCAG 2)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#ffffff"


def _short(labels: Sequence[str]) -> list[str]:
    clean = [printable(str(label)) for label in labels]
    return [label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…" for label in clean]


def _compact(value: float, _: object = None) -> str:
    """A tick of a long axis: 500, 20k, 1.5M; powers of ten would need formulas, and those are off."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}".replace("-", "\N{MINUS SIGN}")
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def _tick(value: float) -> str:
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}") if value else "0"
