"""Figures check what they are given and can say what they show."""

from __future__ import annotations

import numpy as np
import pytest

from headway.errors import ShapeProblem, UsageError
from headway.views import Bars, HeatMap, Lines, Scatter
from support.unchecked import as_users_run_it

NAN = float("nan")


def heat(values: object, **options: object) -> HeatMap:
    rows = np.asarray(values).shape
    labels = {"row_labels": ["r"] * rows[0], "col_labels": ["c"] * rows[1]}
    return HeatMap("Map", values, **{"row_axis": "query", "col_axis": "key", **labels, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "options", "scale"),
    [
        ([[0.2, 0.5, NAN]], {}, (0.0, 0.5)),
        ([[-0.2, 0.5]], {}, (-0.2, 0.5)),
        ([[-0.2, 0.5]], {"signed": True}, (-0.5, 0.5)),
        ([[-3.0, 0.5]], {"signed": True}, (-3.0, 3.0)),
        ([[-3.0, 0.5]], {"signed": True, "high": 1}, (-1.0, 1.0)),
        ([[0.2, 0.5]], {"low": 0, "high": 1}, (0.0, 1.0)),
        ([[0.0, 0.0]], {}, (0.0, 1.0)),
        ([[0.0, 0.0]], {"signed": True}, (-1.0, 1.0)),
        ([[NAN], [np.inf]], {}, (0.0, 1.0)),
        (np.zeros((0, 3)), {}, (0.0, 1.0)),
    ],
)
def test_colour_scales(values: object, options: dict[str, object], scale: tuple[float, float]) -> None:
    assert heat(values, **options).scale() == scale


def test_heat_map_says_range_gaps_and_clipping() -> None:
    text = heat([[0.25, NAN], [2.0, -0.5], [np.inf, 1.0]], unit="logits", low=0, high=1).describe()
    assert text == (
        "Heat map: rows are query (3), columns are key (2). Values: -0.5 to 2 logits. "
        "2 of 6 cells have no value (hatched). 2 cells lie beyond the colour scale (0 to 1)."
    )
    assert heat([[NAN]]).range_text() == "Values: none."


def test_values_are_copied_and_read_only() -> None:
    values = np.zeros((1, 2))
    figure = heat(values)
    values[0, 0] = 5
    assert figure.values[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        figure.values[0, 0] = 1


def test_infinity_is_not_beyond_the_scale_but_missing() -> None:
    assert "1 of 2 cells have no value" in heat([[np.inf, 1.0]]).range_text()
    assert "beyond" not in heat([[np.inf, 1.0]]).range_text()


def test_heat_map_refuses_what_does_not_fit() -> None:
    with pytest.raises(ShapeProblem, match=r"row_labels: lengths differ; expected \(rows=2,\), got \(1,\)"):
        heat([[1, 2], [3, 4]], row_labels=["r"])
    with pytest.raises(ShapeProblem, match="col_labels"):
        heat([[1, 2]], col_labels=["c"])
    with pytest.raises(ShapeProblem, match="2 axes"):
        HeatMap("Map", [1, 2], ["r"], ["c"], row_axis="q", col_axis="k")
    with pytest.raises(ShapeProblem, match="not an array of numbers"):
        HeatMap("Map", [["a"]], ["r"], ["c"], row_axis="q", col_axis="k")
    with pytest.raises(UsageError, match="empty colour scale"):
        heat([[1, 2]], low=1, high=1)


def test_lines_describe_each_curve() -> None:
    figure = Lines("Loss", {"a": ([1, 2, 3], [NAN, 5, 4]), "b": ([1], [NAN])}, x_axis="tokens", y_axis="nats")
    assert figure.describe() == "Curves of nats against tokens. a: 5 to 4 over 2 to 3. b: no values."


def test_lines_refuse_what_does_not_fit() -> None:
    axes = {"x_axis": "x", "y_axis": "y"}
    with pytest.raises(ShapeProblem, match="y of a"):
        Lines("L", {"a": ([1, 2], [1])}, **axes)
    with pytest.raises(UsageError, match="logarithmic axis needs positive values"):
        Lines("L", {"a": ([0, 2], [1, 1])}, log_x=True, **axes)
    with pytest.raises(UsageError, match="a band of no series"):
        Lines("L", {"a": ([1], [1])}, bands={"b": ([1], [1])}, **axes)
    with pytest.raises(ShapeProblem, match="band of a"):
        Lines("L", {"a": ([1], [1])}, bands={"a": ([1], [1, 2])}, **axes)


def test_scatter_refuses_what_does_not_fit() -> None:
    axes = {"x_axis": "x", "y_axis": "y"}
    for wrong, word in (({"y": [1]}, "y"), ({"labels": ["a"]}, "labels"), ({"groups": ["a"]}, "groups")):
        given = {"x": [1, 2], "y": [1, NAN], "labels": ["a", "b"], **wrong}
        with pytest.raises(ShapeProblem, match=f"^{word}: lengths differ"):
            Scatter("S", **given, **axes)  # type: ignore[arg-type]
    assert "1 of 2 points have no value" in Scatter("S", [1, 2], [1, NAN], ["a", "b"], **axes).describe()


def test_bars_refuse_what_does_not_fit() -> None:
    with pytest.raises(ShapeProblem, match="labels"):
        Bars("B", ["a"], [1, 2], axis="nats")
    with pytest.raises(ShapeProblem, match="errors"):
        Bars("B", ["a"], [1], axis="nats", errors=[1, 2])
    with pytest.raises(UsageError, match="not negative"):
        Bars("B", ["a", "b"], [1, 1], axis="nats", errors=[NAN, -1])
    assert Bars("B", ["a"] * 21, range(21), axis="nats").describe() == "Bars of nats. 21 bars: 0 to 20."


@pytest.mark.parametrize("end", ["x", NAN, np.inf, [0.0]])
def test_ends_of_a_colour_scale_are_finite_numbers(end: object) -> None:
    for which in ("low", "high"):
        with as_users_run_it(), pytest.raises(UsageError, match="ends of a colour scale; expected finite"):
            heat([[1.0]], **{which: end})


@pytest.mark.parametrize("pair", [[1, 2, 3], "xy", 3, ([1.0],)])
def test_a_curve_is_two_arrays(pair: object) -> None:
    with as_users_run_it(), pytest.raises(ShapeProblem, match=r"a: not two arrays; expected \(x, y\)|a: .*axes"):
        Lines("L", {"a": pair}, x_axis="x", y_axis="y")  # type: ignore[dict-item]
