"""How the values of one column are printed: as many digits as help, the same number in every row."""

from __future__ import annotations

import math
from collections.abc import Sequence

MISSING = "—"
_DIGITS = 4  # significant digits of the largest value of a column


def cell_texts(values: Sequence[object], *, unit: str = "") -> list[str]:
    """The values of one column as text, aligned on the point when set flush right.

    Floats share the decimals that give the largest of them four significant digits; a smaller value that would print
    as zero, and a column wholly out of range, is written like `1.2e-07`. Whole numbers with a unit get thousands
    separators from 10,000 on. None is an em dash, a truth value yes or no.

    >>> cell_texts([0.1484, 0.02, None, 3e-9]), cell_texts([61000000, 12], unit="tokens")
    (['0.1484', '0.0200', '—', '3.0e-09'], ['61,000,000', '12'])
    """
    floats = [abs(v) for v in values if isinstance(v, float) and math.isfinite(v) and v]
    top = math.floor(math.log10(max(floats))) if floats else 0
    decimals = min(max(_DIGITS - 1 - top, 1), _DIGITS + 2) if -_DIGITS < top < _DIGITS + 3 else None
    return [_cell(value, decimals, unit) for value in values]


def _cell(value: object, decimals: int | None, unit: str) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if unit and abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        if not value:
            return "0" if decimals is None else f"{0:.{decimals}f}"
        if decimals is None or round(abs(value), decimals) == 0:
            return f"{value:.1e}" if decimals is not None else f"{value:.{_DIGITS - 1}e}"
        return f"{value:.{decimals}f}"
    return str(value)
