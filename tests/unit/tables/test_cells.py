"""Printed numbers: aligned, enough digits, and no small value shown as zero."""

from __future__ import annotations

import pytest

from headway.tables.cells import cell_texts


@pytest.mark.parametrize(
    ("values", "unit", "texts"),
    [
        ([0.25, 0.5, 1.0], "probability", ["0.250", "0.500", "1.000"]),
        ([34.5191, -2.0], "dimensionless", ["34.52", "-2.00"]),
        ([3.25149, 0.0], "nats", ["3.251", "0.000"]),
        ([1.0, 1e-9], "", ["1.000", "1.0e-09"]),
        ([1e-7, -2.5e-8], "", ["1.000e-07", "-2.500e-08"]),
        ([1.5e12, 0.0], "", ["1.500e+12", "0"]),
        ([-0.0, 2.0], "", ["0.000", "2.000"]),
        ([99999.5], "", ["99999.5"]),
        ([1234, 56789], "", ["1234", "56789"]),
        ([1234, -56789], "tokens", ["1234", "-56,789"]),
        ([True, False, None], "", ["yes", "no", "—"]),
        (["L0H1", None], "", ["L0H1", "—"]),
        ([], "", []),
    ],
)
def test_cell_texts(values: list[object], unit: str, texts: list[str]) -> None:
    assert cell_texts(values, unit=unit) == texts
