"""Pictures of verdicts in characters and as image files."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from headway.errors import UsageError
from headway.exercises.catalogue import label
from headway.exercises.pictures import counterexample_text, picture_figures, picture_text, write_picture
from headway.exercises.verdict import Counterexample, Picture
from headway.views.figures import HeatMap, Lines

NAN = float("nan")


def matrix(rows: int, cols: int, *, labels: bool = True) -> Picture:
    random = np.random.default_rng(0)
    yours, wanted = random.normal(size=(2, rows, cols))
    names = (tuple(f"r{k}" for k in range(rows)), tuple(f"c{k}" for k in range(cols))) if labels else ((), ())
    return Picture("matrix", yours, wanted, yours - wanted, *names)


def kernel(n: int = 12, marks: tuple[int, ...] = (6,)) -> Picture:
    offsets = np.arange(n)
    yours, wanted = (np.cos(offsets) + 1) / 2, (np.cos(offsets - 1) + 1) / 2
    return Picture("kernel", yours, wanted, yours - wanted, ("score",), tuple(map(str, offsets)), marks)


def test_a_small_matrix_is_written_in_numbers() -> None:
    wanted = np.array([[1.0, NAN], [0.0, -0.5]])
    text = picture_text(Picture("matrix", wanted, wanted, wanted * 0, ("a", "b"), ("a", "b")))
    head, first, second = text.splitlines()
    assert head.split() == ["yours", "wanted", "difference"]
    assert first.split() == ["a", "1.00", "1.00", "·"]
    assert second.split() == ["b", "·", "-0.50", "·", "-0.50", "·", "·"]


def test_sign_and_size_are_told_by_the_character() -> None:
    values = np.array([[1.0, 0.6, 0.3, 0.1, 0.0, -0.1, -0.3, -0.6, -1.0, NAN, 0.0]])
    first = picture_text(Picture("matrix", values, values, values, ("a",), ())).splitlines()[1]
    assert first.removeprefix("a ").replace(" ", "") == "█▓▒░·-=≡#·" * 3


@pytest.mark.parametrize(("rows", "cols"), [(2, 2), (3, 7), (8, 8), (12, 12), (16, 16), (24, 24), (40, 40), (1, 60)])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_matrix_fits_eighty_columns_and_shows_all_three(rows: int, cols: int, lang: str) -> None:
    lines = picture_text(matrix(rows, cols), width=80, lang=lang).splitlines()
    assert max(map(cell_len, lines)) <= 80
    glyphs = sum(line.count(mark) for line in lines[1:-1] for mark in "░▒▓█-=≡#·")
    assert cols < 5 or glyphs >= 3 * rows * cols


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_kernel_has_a_line_an_offset_with_target_and_alias_marked(lang: str) -> None:
    lines = picture_text(kernel(), width=80, lang=lang).splitlines()
    assert len(lines) == 2 + 12 and max(map(cell_len, lines)) <= 80
    marked = [line.split()[0] for line in lines if "<-" in line]
    assert marked == ["1", "6"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_is_marked_is_told_apart_by_its_height(lang: str) -> None:
    """The target at 1 is not the highest here: an alias is nearly as high, others are higher, one is the highest."""
    yours, wanted = np.array([0.2, 0.6, 0.55, 0.8, 1.0, 0.6]), np.array([0.0, 1.0, 0.5, 0.1, 0.1, 0.1])
    picture = Picture("kernel", yours, wanted, yours - wanted, ("score",), tuple("012345"), (2, 3, 4, 5))
    said = [line.split("<- ")[1] for line in picture_text(picture, lang=lang).splitlines() if "<-" in line]
    names = ("target", "alias", "higher", "highest", "alias")
    assert said == [label(name, lang=lang).removeprefix("<- ") for name in names]


def test_columns_line_up_under_chinese_headings() -> None:
    lines = picture_text(kernel(marks=()), width=80, lang="zh").splitlines()[1:]
    wanted = cell_len(lines[0][: lines[0].index("要求")])
    full = next(line for line in lines if "<-" in line)
    assert cell_len(full[: full.rindex("██")]) >= wanted


def test_zero_and_missing_matrices_are_drawn_too() -> None:
    zero, none = np.zeros((5, 6)), np.full((5, 6), NAN)
    assert "█" not in picture_text(Picture("matrix", zero, zero, zero, (), ())).splitlines()[1]
    assert picture_text(Picture("matrix", none, none, none, (), ())).startswith("  yours")


def test_a_counterexample_marks_what_the_query_should_look_at() -> None:
    text = counterexample_text(Counterexample((7, 1, 7), 2, (0,), (0.25, 0.5, 0.25), 1.0))
    lines = text.splitlines()
    assert [line.split()[1:] for line in lines[1:4]] == [["0", "1", "2"], ["7", "1", "7"], [".25", ".50", ".25"]]
    assert lines[4].index("^") == lines[3].index(".25") + 2
    assert "position 2" in lines[5] and "look at 0" in lines[5]


def test_a_long_counterexample_is_folded() -> None:
    n = 40
    text = counterexample_text(Counterexample(tuple(range(n)), n - 1, (3, 38), tuple([1 / n] * n), 1.0), width=60)
    assert max(map(len, text.splitlines())) <= 60 and text.count("^") == 2 and text.count("position ") >= 4


def test_figures_carry_the_same_numbers() -> None:
    picture = matrix(2, 3)
    maps = [figure for figure in picture_figures(picture, "Exercise 1a") if isinstance(figure, HeatMap)]
    wanted = (picture.yours, picture.wanted, picture.difference)
    assert all(np.array_equal(drawn.values, values) for drawn, values in zip(maps, wanted, strict=True))
    assert len({drawn.scale() for drawn in maps}) == 1
    (curves,) = picture_figures(kernel(), "Exercise 2c")
    assert isinstance(curves, Lines)
    x, y = curves.series["near or above the target"]
    assert x[0] == 6.0 and y[0] == kernel().yours[6]


@pytest.mark.parametrize("picture", [matrix(3, 4), kernel(), kernel(marks=())], ids=["matrix", "kernel", "plain"])
def test_files_are_whole_pictures_without_chinese(tmp_path: Path, picture: Picture) -> None:
    svg = write_picture(picture, tmp_path / "p.svg", "Exercise 2c").read_text(encoding="utf-8")
    assert ET.fromstring(svg).tag.endswith("svg")  # noqa: S314 (our own)
    assert all(name in svg for name in ("yours", "wanted", "difference")) and ("near or above" in svg) == bool(
        picture.marks
    )
    assert not any("\u4e00" <= letter <= "\u9fff" for letter in svg)
    assert write_picture(picture, tmp_path / "p.png", "Exercise 2c").read_bytes()[1:4] == b"PNG"


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="svg or"):
        write_picture(matrix(2, 2), tmp_path / "p.gif", "x")
    assert list(tmp_path.iterdir()) == []
