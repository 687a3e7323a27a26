"""The picture of a verdict, yours | wanted | difference: as text for a terminal, and as an SVG or PNG file.

Stills carry English only: the fonts that ship with matplotlib have no Chinese.
"""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import numpy as np
from rich.cells import cell_len

from headway.errors import UsageError
from headway.exercises.catalogue import label
from headway.exercises.proof import TIE
from headway.exercises.verdict import Counterexample, Picture
from headway.tables.atomic import write_bytes_atomic
from headway.views.figures import Figure, HeatMap, Lines
from headway.views.still import to_png, to_svg

_PARTS = ("yours", "wanted", "difference")
_ABOVE, _BELOW, _NOTHING = "░▒▓█", "-=≡#", "·"
_BAR = 20
_OFFSETS = 24  # lines of a kernel; of a longer one only those that tell something
_NUMBER = 6  # cells of a written-out number; larger matrices are drawn in shades
_SMALLEST = 0.02  # of the largest value: below it a cell is drawn as zero


def picture_text(picture: Picture, *, width: int = 80, lang: str = "en") -> str:
    """The picture in characters, at most `width` cells wide: matrices side by side where they fit, else one below another.

    Cells that are not numbers stay blank. Sign is told by the character, not by colour.
    """
    return _kernel_text(picture, width, lang) if picture.kind == "kernel" else _matrix_text(picture, width, lang)


def counterexample_text(example: Counterexample, *, width: int = 80, lang: str = "en") -> str:
    """The failing sequence: positions, tokens, and the attention row of its query, with the targets marked."""
    names = [label(name, lang=lang) for name in ("position", "token", "attention")]
    rows = [
        [str(k) for k in range(len(example.tokens))],
        [str(t) for t in example.tokens],
        [f"{a:.2f}".removeprefix("0") for a in example.attention],
    ]
    head = max(map(cell_len, names)) + 2
    cell = max(len(text) for row in rows for text in row) + 1
    step = max(1, (width - head) // cell)
    lines = [label("sequence", lang=lang)]
    for start in range(0, len(example.tokens), step):
        for name, row in zip(names, rows, strict=True):
            lines.append(_padded(f"  {name}", head) + "".join(text.rjust(cell) for text in row[start : start + step]))
        marks = ["^" if k in example.target else "" for k in range(len(example.tokens))][start : start + step]
        if any(marks):
            lines.append((" " * head + "".join(mark.rjust(cell) for mark in marks)).rstrip())
    asks = "asks" if example.target else "asks_nothing"
    asked = label(asks, lang=lang, query=example.query, target=", ".join(map(str, example.target)))
    return "\n".join([*lines, f"  {asked}"])


def picture_figures(picture: Picture, title: str) -> tuple[Figure, ...]:
    """The picture as figures of `views`: three heat maps on one scale, or curves against offset with marks."""
    if picture.kind == "kernel":
        x = [float(column) for column in picture.columns]
        curves = {name: (x, getattr(picture, name)) for name in _PARTS}
        if picture.marks:
            # A gap between any two points, so that no line joins them.
            places = [value for mark in picture.marks for value in (float(mark), math.nan)]
            heights = [value for mark in picture.marks for value in (_at(picture, mark), math.nan)]
            curves["near or above the target"] = (places, heights)
        return (Lines(title, curves, x_axis="offset (query minus key position)", y_axis="score, scaled 0 to 1"),)
    top = _top(picture)
    rows, cols = _labels(picture)
    return tuple(
        HeatMap(
            f"{title}: {name}" if name == "yours" else name,
            getattr(picture, name),
            rows,
            cols,
            row_axis="row: destination, or written",
            col_axis="column: source, or read",
            signed=True,
            low=-top,
            high=top,
        )
        for name in _PARTS
    )


def write_picture(picture: Picture, path: Path, title: str, *, theme: str = "light") -> Path:
    """Write the picture as .svg or .png. Raises UsageError for another ending, WriteProblem when it cannot be written."""
    figures = picture_figures(picture, title)
    if path.suffix == ".svg":
        return write_bytes_atomic(path, _side_by_side([to_svg(figure, theme) for figure in figures]).encode())
    if path.suffix == ".png":
        return write_bytes_atomic(path, _pasted([to_png(figure, theme) for figure in figures]))
    raise UsageError("not a kind of picture", where=str(path), expected=".svg or .png", got=path.suffix or "none")


def _matrix_text(picture: Picture, width: int, lang: str) -> str:
    top = _top(picture)
    rows, cols = _labels(picture)
    margin = max((len(text) for text in rows), default=0)
    wide = next((w for w in (_NUMBER, 2) if margin + 1 + 3 * (w * len(cols) + 2) <= width), 1)
    blocks: list[list[str]] = []
    for name in _PARTS:
        cells = [[_number(v) if wide == _NUMBER else _glyph(v, top) for v in row] for row in getattr(picture, name)]
        blocks.append([label(name, lang=lang), *("".join(text.rjust(wide) for text in row) for row in cells)])
    block = max(len(cols) * wide, *(cell_len(lines[0]) for lines in blocks)) + 2
    beside = max(1, min(3, (width - margin - 1) // block))
    lines: list[str] = []
    for start in range(0, 3, beside):
        shown = blocks[start : start + beside]
        for k in range(len(rows) + 1):
            left = (rows[k - 1] if k else "").rjust(margin)
            lines.append((left + " " + "".join(_padded(part[k], block) for part in shown)).rstrip())
    if wide != _NUMBER:
        lines.append(label("scale", lang=lang, top=top))
    return "\n".join(lines)


def _kernel_text(picture: Picture, width: int, lang: str) -> str:
    """One line an offset: bars of yours and wanted, both from 0 to 1, and their difference."""
    names = [label(name, lang=lang) for name in ("offset", *_PARTS)]
    bar = max(6, min(_BAR, (width - cell_len(names[0]) - 52) // 2))
    best = int(np.argmax(picture.wanted))
    head = "".join((_padded(names[0], cell_len(names[0]) + 2), *(_padded(n, bar + 7) for n in names[1:3]), names[3]))
    lines = [label("kernel", lang=lang), head]
    shown = _shown_offsets(picture, best)
    for k, column in enumerate(picture.columns):
        if k not in shown:
            if k - 1 in shown:
                lines.append("...".rjust(cell_len(names[0])))
            continue
        parts = [column.rjust(cell_len(names[0])) + "  "]
        parts += [_bar(float(values[k]), bar) for values in (picture.yours, picture.wanted)]
        mark = _mark(picture, k, best)
        mark = label(mark, lang=lang) if mark else ""
        lines.append("".join((*parts, f"{_signed(float(picture.difference[k]))}  ", mark)).rstrip())
    return "\n".join(lines)


def _mark(picture: Picture, k: int, best: int) -> str:
    """What to say beside an offset: the name of a label, or nothing."""
    yours = picture.yours
    if k == best:
        return "target"
    if int(picture.columns[k]) not in picture.marks:
        return ""
    if yours[k] <= yours[best] + TIE:
        return "alias"
    return "highest" if yours[k] == yours.max() else "higher"


def _shown_offsets(picture: Picture, best: int) -> set[int]:
    """Every offset of a short kernel; of a long one the first, the target, the highest, the first marked and the last."""
    n = len(picture.columns)
    if n <= _OFFSETS:
        return set(range(n))
    return {*range(_OFFSETS // 2), best, int(np.argmax(picture.yours)), *picture.marks[: _OFFSETS // 2], n - 1}


def _signed(value: float) -> str:
    return " 0.00" if abs(value) < 0.005 else f"{value:+.2f}"


def _bar(value: float, width: int) -> str:
    filled = round(min(max(value, 0.0), 1.0) * width)
    return f"{'█' * filled}{' ' * (width - filled)} {value:5.2f} "


def _glyph(value: float, top: float) -> str:
    if not math.isfinite(value):
        return " "
    size = abs(value) / top
    if size < _SMALLEST:
        return _NOTHING
    return (_ABOVE if value > 0 else _BELOW)[min(3, int(size * 4))]


def _number(value: float) -> str:
    if not math.isfinite(value):
        return ""
    if abs(value) < 0.005:
        return _NOTHING
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}" if abs(value) < 1000 else f"{value:.0e}"


def _top(picture: Picture) -> float:
    """The largest size of what is shown, 1 when all is zero: one scale for the three matrices."""
    values = np.concatenate([np.abs(getattr(picture, name)).ravel() for name in _PARTS])
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def _labels(picture: Picture) -> tuple[list[str], list[str]]:
    rows, cols = picture.yours.shape
    return (
        list(picture.rows) if len(picture.rows) == rows else [str(k) for k in range(rows)],
        list(picture.columns) if len(picture.columns) == cols else [str(k) for k in range(cols)],
    )


def _at(picture: Picture, mark: int) -> float:
    columns = list(picture.columns)
    return float(picture.yours[columns.index(str(mark))]) if str(mark) in columns else math.nan


def _padded(text: str, cells: int) -> str:
    return text + " " * max(0, cells - cell_len(text))


def _side_by_side(documents: list[str]) -> str:
    """Several SVG documents as one, from left to right."""
    if len(documents) == 1:
        return documents[0]
    sizes = [re.search(r'<svg[^>]*? width="([\d.]+)pt"', text) for text in documents]
    heights = [re.search(r'<svg[^>]*? height="([\d.]+)pt"', text) for text in documents]
    widths = [float(found[1]) if found else 0.0 for found in sizes]
    height = max((float(found[1]) for found in heights if found), default=0.0)
    parts = [
        text.replace("<svg", f'<svg x="{sum(widths[:k]):.2f}"', 1).replace('pt"', '"', 2)
        for k, text in enumerate(documents)
    ]
    size = f'width="{sum(widths):.2f}pt" height="{height:.2f}pt" viewBox="0 0 {sum(widths):.2f} {height:.2f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} version="1.1">\n' + "\n".join(parts) + "</svg>\n"


def _pasted(pictures: list[bytes]) -> bytes:
    """Several PNG pictures as one, from left to right on white."""
    if len(pictures) == 1:
        return pictures[0]
    from matplotlib.image import imread, imsave

    arrays = [imread(io.BytesIO(data)) for data in pictures]
    height = max(len(array) for array in arrays)
    padded = [np.pad(a, ((0, height - len(a)), (0, 0), (0, 0)), constant_values=1.0) for a in arrays]
    buffer = io.BytesIO()
    imsave(buffer, np.concatenate(padded, axis=1), format="png", metadata={"Software": "headway"})
    return buffer.getvalue()
