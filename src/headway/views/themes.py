"""The colours of light and dark, shared by stills and pages.

Text has a contrast of at least 4.5 on its background, lines of a plot at least 3. No pair of red and green; signs are
orange (negative) and purple (positive) with the background between, quantities one blue that starts at the background.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import UnknownName, did_you_mean


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by role; `quantity` runs from nothing to the most, `signed` from negative through the background."""

    name: str
    background: str
    panel: str
    text: str
    muted: str
    rule: str
    link: str
    series: tuple[str, ...]
    quantity: tuple[str, ...]
    signed: tuple[str, ...]


THEMES = {
    theme.name: theme
    for theme in (
        Theme(
            name="light",
            background="#ffffff",
            panel="#f4f6f8",
            text="#1b1f24",
            muted="#55606b",
            rule="#d3dae1",
            link="#0b57a4",
            series=("#1f5fa8", "#b85600", "#6b3fa0", "#007c8a", "#7d6200", "#555b63"),
            quantity=("#ffffff", "#cfe0f3", "#7fb0dc", "#2f75b5", "#0b3a75"),
            signed=("#6b3206", "#d9731a", "#f8cd9b", "#ffffff", "#cbc4e4", "#7d6cb0", "#4a1486"),
        ),
        Theme(
            name="dark",
            background="#14181d",
            panel="#1c2229",
            text="#e6e8eb",
            muted="#a3adb8",
            rule="#3a444f",
            link="#8ec1ff",
            series=("#7db8ff", "#ffab5c", "#c3a2f5", "#5fd3dc", "#e3c95b", "#a8b0ba"),
            quantity=("#14181d", "#1d3f66", "#2f75b5", "#7fb5e8", "#e3f0ff"),
            signed=("#ffd9a6", "#e08a35", "#6b421a", "#14181d", "#3d3170", "#8a70dc", "#ddd0ff"),
        ),
    )
}


def theme_named(name: str) -> Theme:
    """The theme `light` or `dark`. Raises UnknownName for another name.

    >>> theme_named("dark").background
    '#14181d'
    """
    if name not in THEMES:
        raise UnknownName(f"no theme {name!r}", next_step=did_you_mean(name, THEMES))
    return THEMES[name]
