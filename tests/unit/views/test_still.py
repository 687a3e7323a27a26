"""Stills are well-formed, deterministic, labelled, and leave matplotlib as they found it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread

from headway.errors import UnknownName, UsageError
from headway.views import Bars, Figure, HeatMap, Lines, Scatter, to_png, to_svg
from headway.views.draw import _compact, _ink, _outermost, _short, draw
from headway.views.themes import THEMES
from support.unchecked import as_users_run_it

NAN = float("nan")
AXES = {"row_axis": "destination (query)", "col_axis": "source (key)"}
HOSTILE = "</text><script>alert(1)</script>\x1b\u202e$x$ & 日本"

FIGURES: dict[str, Figure] = {
    "numbered": HeatMap("Map", [[0.1, NAN, 0.3]], ["a"], ["x", "y", "z"], unit="probability", **AXES),
    "signed": HeatMap(
        "Map", np.linspace(-2, 1, 120).reshape(8, 15), ["r"] * 8, ["long label"] * 15, signed=True, **AXES
    ),
    "empty": HeatMap("Map", np.zeros((0, 0)), [], [], **AXES),
    "missing": HeatMap("Map", [[NAN, np.inf]], ["a"], ["b", "c"], **AXES),
    "clipped": HeatMap("Map", [[-5.0, 0.5, 5.0]], ["a"], ["b", "c", "d"], low=0, high=1, **AXES),
    "large": HeatMap("Map", np.zeros((90, 60)), ["r"] * 90, ["c"] * 60, **AXES),
    "lines": Lines(
        "L",
        {"a": ([1, 10, 1e6], [3, NAN, 1]), "b": ([1], [1])},
        x_axis="x",
        y_axis="y",
        log_x=True,
        bands={"a": ([2, 1, 0], [4, 3, 2])},
    ),
    "no lines": Lines("L", {}, x_axis="x", y_axis="y"),
    "scatter": Scatter("S", [0.0, 1.0], [1.0, NAN], ["a", "b"], x_axis="x", y_axis="y", groups=["one", "two"]),
    "no points": Scatter("S", [], [], [], x_axis="x", y_axis="y", groups=[]),
    "bars": Bars("B", ["a", "b", "c"], [1.0, -2.0, NAN], axis="nats", errors=[0.1, 0.1, 0.1]),
    "no bars": Bars("B", [], [], axis="nats"),
    "hostile": HeatMap(HOSTILE, [[1.0]], [HOSTILE], [HOSTILE], row_axis=HOSTILE, col_axis=HOSTILE, unit=HOSTILE),
}


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own output, and whether it parses is the question


@pytest.mark.parametrize(
    ("name", "theme"), [*((name, "light") for name in FIGURES), ("numbered", "dark"), ("bars", "dark")]
)
def test_every_figure_is_well_formed_svg(name: str, theme: str) -> None:
    text = to_svg(FIGURES[name], theme)
    root = parse(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert THEMES[theme].background in text
    assert not [
        e
        for e in root.iter()
        if e.tag.endswith("script")
        or any("href" in a and not v.startswith(("#", "data:image/png")) for a, v in e.attrib.items())
    ]


def test_the_same_figure_gives_the_same_bytes() -> None:
    figure = FIGURES["bars"]
    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(to_svg, [figure] * 3))) == 1
    assert to_png(figure) == to_png(figure)


def test_svg_names_axes_unit_range_and_title() -> None:
    text = "".join(parse(to_svg(FIGURES["numbered"])).itertext())
    for part in ("Map", "destination (query)", "source (key)", "probability", "Values: 0.1 to 0.3", "1 of 3 cells"):
        assert part in text
    bare = "".join(parse(to_svg(FIGURES["numbered"], heading=False)).itertext())
    assert "Map" not in bare and "Values:" not in bare and "source (key)" in bare


def test_hostile_labels_are_text() -> None:
    svg = to_svg(FIGURES["hostile"])
    assert "<script" not in svg and "\x1b" not in svg and "\u202e" not in svg
    assert "$x$" in "".join(parse(svg).itertext())


def test_cells_are_drawn_above_the_hatching_and_gaps_show_it() -> None:
    figure = HeatMap("M", [[1.0, NAN]], ["a"], ["b", "c"], low=0, high=1, **AXES)
    pixels = imread(io.BytesIO(to_png(figure, dpi=100, heading=False)))[..., :3]
    dark_blue = np.array([0x0B, 0x3A, 0x75]) / 255
    share = (np.abs(pixels - dark_blue).max(axis=-1) < 0.02).mean()
    assert share > 0.05  # the full cell is filled with the end of the scale, not hidden by the hatching
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


def test_png_sizes_follow_dpi() -> None:
    small, large = (imread(io.BytesIO(to_png(FIGURES["bars"], dpi=dpi))) for dpi in (72, 144))
    assert large.shape[0] == pytest.approx(2 * small.shape[0], abs=2)
    for dpi in (35, 601):
        with pytest.raises(UsageError, match="not a resolution"):
            to_png(FIGURES["bars"], dpi=dpi)
    with pytest.raises(UnknownName, match="no theme"):
        to_svg(FIGURES["bars"], "sepia")


def test_the_callers_settings_neither_matter_nor_change() -> None:
    before = to_svg(FIGURES["bars"])
    with mpl.rc_context({"font.size": 33, "axes.facecolor": "red", "text.parse_math": True}):
        settings = dict(mpl.rcParams)
        assert to_svg(FIGURES["bars"]) == before
        assert dict(mpl.rcParams) == settings


def test_views_load_no_renderer_and_stills_no_pyplot() -> None:
    code = (
        "import sys; import headway.views as v; from headway.views import Bars, page_html, table_text;"
        "heavy = {'matplotlib', 'jinja2', 'rich', 'torch'}; print(sorted(heavy & set(sys.modules)));"
        "v.to_svg(Bars('B', ['a'], [1.0], axis='nats')); print('matplotlib.pyplot' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split("\n")[:2] == ["[]", "False"], done.stderr


def test_ink_is_the_one_of_higher_contrast() -> None:
    assert [_ink((c, c, c)) for c in (0.0, 0.4, 0.5, 1.0)] == ["#ffffff", "#ffffff", "#000000", "#000000"]


def test_only_the_outermost_points_are_labelled_when_there_are_many() -> None:
    x = np.concatenate([np.zeros(50), [9.0, NAN]])
    y = np.concatenate([np.linspace(0, 0.1, 50), [0.0, 1.0]])
    chosen = _outermost(x, y)
    assert len(chosen) == 24 and 50 in chosen and 51 not in chosen


def test_labels_are_cut_and_ticks_compact() -> None:
    assert _short(["a" * 30, "b"]) == ["a" * 23 + "…", "b"]
    assert [_compact(v) for v in (0.5, 999.0, 2e4, -1.5e6, 3e9)] == ["0.5", "999", "20k", "\N{MINUS SIGN}1.5M", "3G"]


def test_what_is_no_figure_is_refused() -> None:
    from matplotlib.figure import Figure as Canvas

    unchecked: Any = getattr(draw, "__wrapped__", draw)
    with pytest.raises(UsageError, match="not a figure"):
        unchecked(Canvas(), "picture", THEMES["light"], heading=True)


def crowd() -> Scatter:
    random = np.random.default_rng(0)
    x = np.concatenate((random.normal(0, 0.01, 30), [1.0, 0.3]))
    y = np.concatenate((random.normal(0, 0.4, 30), [1.0, 0.9]))
    names = [f"L{i % 2}H{i}" for i in range(30)]
    return Scatter("t", x, y, [*names, "far", "top"], x_axis="x", y_axis="y", groups=["a"] * 30 + ["b"] * 2)


def test_labels_touch_neither_one_another_nor_a_point_nor_the_edge() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    figure, canvas = crowd(), Canvas(layout="constrained")
    FigureCanvasAgg(canvas)
    draw(canvas, figure, THEMES["light"], heading=False)
    canvas.draw_without_rendering()
    (axes,) = canvas.axes
    boxes = {label.get_text(): label.get_window_extent() for label in axes.texts}
    assert {"far", "top"} <= set(boxes) and 6 <= len(boxes) < 24
    points = axes.transData.transform(np.column_stack((figure.x, figure.y)))
    edge = axes.get_window_extent()
    for name, box in boxes.items():
        assert box.count_overlaps([other for n, other in boxes.items() if n != name]) == 0, name
        assert not any(box.contains(*point) for point in points), name
        assert edge.x0 - 1 <= box.x0 and box.x1 <= edge.x1 + 1, name


def test_points_in_one_place_get_as_many_labels_as_there_are_sides() -> None:
    svg = to_svg(Scatter("t", np.zeros(9), np.zeros(9), [f"name{i}" for i in range(9)], x_axis="x", y_axis="y"))
    assert sum(f"name{i}" in svg for i in range(9)) <= 4
    assert "<svg" in to_svg(Scatter("t", np.zeros(0), np.zeros(0), [], x_axis="x", y_axis="y"))


@pytest.mark.parametrize("dpi", ["x", 72.5, True])
def test_a_resolution_is_a_whole_number(dpi: object) -> None:
    with as_users_run_it(), pytest.raises(UsageError, match="not a resolution"):
        to_png(FIGURES["bars"], dpi=dpi)  # type: ignore[arg-type]
