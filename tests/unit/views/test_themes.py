"""Contrast and colour rules, computed by the formulas of WCAG 2."""

from __future__ import annotations

import colorsys

import pytest

from headway.errors import UnknownName
from headway.views.themes import THEMES, theme_named


def channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_formula_itself() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_text_is_readable_and_lines_are_visible(name: str) -> None:
    theme = THEMES[name]
    for ground in (theme.background, theme.panel):
        for ink in (theme.text, theme.muted, theme.link):
            assert contrast(ink, ground) >= 4.5
    assert all(contrast(colour, theme.background) >= 3 for colour in theme.series)
    assert len(set(theme.series)) == len(theme.series)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_maps_start_or_turn_at_the_background(name: str) -> None:
    theme = THEMES[name]
    assert theme.quantity[0] == theme.background
    assert theme.signed[len(theme.signed) // 2] == theme.background
    steps = [luminance(colour) for colour in theme.quantity]
    assert steps in (sorted(steps), sorted(steps, reverse=True))
    half = len(theme.signed) // 2
    for k in range(1, half + 1):
        left, right = theme.signed[half - k], theme.signed[half + k]
        assert abs(luminance(left) ** 0.5 - luminance(right) ** 0.5) < 0.13


@pytest.mark.parametrize("name", ["light", "dark"])
def test_no_red_and_green(name: str) -> None:
    theme = THEMES[name]
    for colour in (*theme.series, *theme.quantity, *theme.signed):
        hue, _, saturation = colorsys.rgb_to_hls(*channels(colour))
        degrees = hue * 360
        assert saturation < 0.2 or not (degrees < 15 or degrees > 345 or 75 < degrees < 160), colour


def test_unknown_theme() -> None:
    with pytest.raises(UnknownName, match="Did you mean dark"):
        theme_named("drak")
