"""Stills: a figure as SVG text or PNG bytes, the same bytes for the same figure.

matplotlib's own objects are used without pyplot, its settings only inside a locked block, so a caller's figures and
settings are never touched.
"""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headway.errors import UsageError
from headway.views.figures import Figure
from headway.views.themes import Theme, theme_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# matplotlib's settings are one global dict: two threads must not draw at once.
_SETTINGS = threading.Lock()
_MARGIN = 0.04  # inches


def to_svg(figure: Figure, theme: str = "light", *, heading: bool = True) -> str:
    """The figure as one SVG document. `heading=False` leaves the title to the page around it.

    Text stays text (any font of the reader's that has the characters), pixels of heat maps stay sharp, and nothing
    depends on the clock or on chance. Raises UnknownName for a theme that does not exist.

    >>> from headway.views.figures import Bars
    >>> to_svg(Bars("Loss", ["a"], [1.0], axis="nats")).startswith("<svg")
    True
    """
    with _canvas(figure, theme_named(theme), heading) as canvas:
        buffer = io.StringIO()
        # Named parts of the metadata would otherwise carry the date and matplotlib's version.
        canvas.savefig(
            buffer,
            format="svg",
            bbox_inches="tight",
            pad_inches=_MARGIN,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    text = buffer.getvalue()
    return text[text.index("<svg") :]  # the XML prologue names a DTD on the network


def to_png(figure: Figure, theme: str = "light", *, dpi: int = 144, heading: bool = True) -> bytes:
    r"""The figure as a PNG of `dpi` dots an inch (36 to 600). Raises UsageError for another resolution.

    >>> from headway.views.figures import Bars
    >>> to_png(Bars("Loss", ["a"], [1.0], axis="nats"))[1:4]
    b'PNG'
    """
    if isinstance(dpi, bool) or not isinstance(dpi, int) or not 36 <= dpi <= 600:
        raise UsageError("not a resolution", expected="dpi from 36 to 600", got=repr(dpi))
    with _canvas(figure, theme_named(theme), heading) as canvas:
        buffer = io.BytesIO()
        canvas.savefig(
            buffer, format="png", dpi=dpi, bbox_inches="tight", pad_inches=_MARGIN, metadata={"Software": None}
        )
    return buffer.getvalue()


@contextmanager
def _canvas(figure: Figure, theme: Theme, heading: bool) -> Generator[Canvas]:
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    from headway.views.draw import draw

    with _SETTINGS, style.context(["default", _settings(theme)]), warnings.catch_warnings():
        # A token may be in any script; the browser has the glyph even when matplotlib's font has not.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        canvas = Canvas(layout="constrained")
        FigureCanvasAgg(canvas)
        draw(canvas, figure, theme, heading=heading)
        yield canvas


def _settings(theme: Theme) -> dict[str, Any]:
    return {
        "text.parse_math": False,  # a token `$x$` is no formula
        "svg.fonttype": "none",
        "svg.hashsalt": "headway",
        "font.family": ["DejaVu Sans"],  # ships with matplotlib: the same layout everywhere
        "font.size": 9,
        "axes.titlesize": 9,
        "figure.facecolor": theme.background,
        "savefig.facecolor": theme.background,
        "axes.facecolor": theme.background,
        "axes.edgecolor": theme.muted,
        "axes.labelcolor": theme.text,
        "text.color": theme.text,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "xtick.labelcolor": theme.text,
        "ytick.labelcolor": theme.text,
        "grid.color": theme.rule,
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "hatch.color": theme.muted,
        "hatch.linewidth": 0.5,
        "legend.frameon": False,
        "legend.fontsize": 8,
    }
