"""A page: sections of text, figures and tables as ONE self-contained HTML file without scripts or network."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import NoneType
from typing import TYPE_CHECKING, Any

from headway.errors import UsageError, check_kind
from headway.provenance import Provenance
from headway.tables.cells import cell_texts
from headway.tables.table import Table
from headway.tokens.labels import printable
from headway.views.figures import Bars, Figure, HeatMap, Lines, Scatter
from headway.views.still import to_svg
from headway.views.themes import THEMES

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True)
class PageTable:
    """A table on a page: what it shows, and how many of its rows (None: all)."""

    caption: str
    table: Table
    limit: int | None = 20

    def __post_init__(self) -> None:
        check_kind(self.caption, str, "caption of a table", expected="text")
        check_kind(self.table, Table, "a table on a page", expected="a Table")
        if self.limit is not None and (type(self.limit) is not int or self.limit < 0):
            expected = "a whole number >= 0, or None for all"
            raise UsageError("rows of a table on a page", expected=expected, got=repr(self.limit))


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, then figures, tables, and notes in small print.

    In every text of a page, `` `code` `` between backticks is set as code; nothing else is markup.
    """

    title: str
    paragraphs: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[PageTable] = ()
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_kind(self.title, str, "title of a section", expected="text")
        _check_all(self.paragraphs, str, "paragraphs of a section", "texts")
        _check_all(self.figures, (HeatMap, Lines, Scatter, Bars), "figures of a section", "figures")
        _check_all(self.tables, PageTable, "tables of a section", "PageTables")
        _check_all(self.notes, str, "notes of a section", "texts")


@dataclass(frozen=True)
class Page:
    """A title, what the reader should know first, a few key numbers, and sections.

    lead: paragraphs above everything; facts: (name, value) pairs shown large under the lead; provenance: of the whole
    page, printed at its foot; command: what makes the page again.
    """

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
    provenance: Provenance | None = None
    command: str = ""

    def __post_init__(self) -> None:
        check_kind(self.title, str, "title of a page", expected="text")
        check_kind(self.command, str, "command of a page", expected="text")
        check_kind(self.provenance, (Provenance, NoneType), "provenance of a page", expected="a Provenance")
        _check_all(self.lead, str, "lead of a page", "paragraphs")
        _check_all(self.sections, Section, "sections of a page", "Sections")
        _check_all(self.facts, tuple, "facts of a page", "(name, value) pairs of text")
        for fact in self.facts:
            if len(fact) != 2 or not all(isinstance(part, str) for part in fact):
                raise UsageError("facts of a page", expected="(name, value) pairs of text", got=repr(fact)[:60])


def page_html(page: Page) -> str:
    """The page as one HTML document that opens anywhere, offline.

    It follows the reader's light or dark setting (paper is always light), runs no script and loads nothing: its content
    policy forbids both. Figures are pictures with their description as text alternative; every text is escaped, so a
    token `</script>` is shown, not obeyed.

    >>> "<h1>A &lt;b&gt; study</h1>" in page_html(Page("A <b> study", ["What was found."], []))
    True
    """
    check_kind(page, Page, "not a page", expected="a Page")
    names = _anchors([section.title for section in page.sections])
    sections = [_section(section, name) for section, name in zip(page.sections, names, strict=True)]
    return _template().render(page=page, sections=sections, themes=THEMES, foot=_foot(page))


def _check_all(values: object, kinds: type | tuple[type, ...], what: str, each: str) -> None:
    """Raise UsageError for what is no sequence of these, a single text included."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise UsageError(what, expected=f"a list of {each}", got=type(values).__name__)
    for value in values:
        check_kind(value, kinds, what, expected=f"a list of {each}")


def _section(section: Section, anchor: str) -> dict[str, Any]:
    return {
        "anchor": anchor,
        "title": section.title,
        "paragraphs": section.paragraphs,
        "figures": [_figure(figure) for figure in section.figures],
        "tables": [_table(shown) for shown in section.tables],
        "notes": section.notes,
    }


def _figure(figure: Figure) -> dict[str, Any]:
    stills = {theme: to_svg(figure, theme, heading=False) for theme in THEMES}
    width, height = (float(size) for size in re.findall(r'(?:width|height)="([\d.]+)pt"', stills["light"])[:2])
    return {
        "title": _sentence(figure.title),
        "caption": figure.caption,
        "description": figure.describe(),
        "range": figure.range_text() if isinstance(figure, HeatMap) else "",
        "sources": {theme: _data_uri(svg) for theme, svg in stills.items()},
        "width": round(width * 96 / 72),
        "height": round(height * 96 / 72),
    }


def _data_uri(svg: str) -> str:
    # As an image, an SVG cannot run scripts or load anything, and its ids cannot clash with another figure's.
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _table(shown: PageTable) -> dict[str, Any]:
    table = shown.table
    frame = table.frame if shown.limit is None else table.frame.head(shown.limit)
    cells = [cell_texts(frame[name].to_list(), unit=column.unit) for name, column in table.columns.items()]
    left_out = int(table.meta.get("rows_left_out", 0)) + len(table) - frame.height
    return {
        "caption": _sentence(shown.caption),
        "heads": [
            {"name": name, "column": column, "numeric": frame[name].dtype.is_numeric(), "range": _range_text(column)}
            for name, column in table.columns.items()
        ],
        "rows": list(zip(*cells, strict=True)),
        "total": frame.height + left_out,
        "left_out": left_out,
        "processing": table.provenance.processing,
    }


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."


def _range_text(column: Any) -> str:
    if column.low is None and column.high is None:
        return ""
    if column.high is None:
        return f"at least {column.low:g}"
    return f"at most {column.high:g}" if column.low is None else f"{column.low:g} to {column.high:g}"


def _foot(page: Page) -> list[tuple[str, str]]:
    facts = [("made by", page.command)] if page.command else []
    if page.provenance is None:
        return facts
    for name, value in page.provenance.to_dict().items():
        if name == "steps" or value in ("", None, {}):
            continue
        facts.append((name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    return facts


def _anchors(titles: Sequence[str]) -> list[str]:
    """An id for each title, unique on the page."""
    taken: set[str] = set()
    names = []
    for number, title in enumerate(titles, start=1):
        name = "-".join(re.findall(r"[a-z0-9]+", title.lower())) or f"section-{number}"
        name = f"{name}-{number}" if name in taken else name
        taken.add(name)
        names.append(name)
    return names


def _spans(text: str) -> list[dict[str, Any]]:
    """Text split at `code` between backticks; a single backtick is a backtick."""
    parts = re.split(r"`([^`]+)`", printable(text))
    return [{"code": k % 2 == 1, "text": part} for k, part in enumerate(parts) if part]


def _safe_text(value: object) -> str:
    return printable(str(value))


@cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters: dict[str, Any] = {"spans": _spans, "safe_text": _safe_text}
    environment.filters.update(filters)
    return environment.from_string(files("headway.views").joinpath("page.html.j2").read_text(encoding="utf-8"))
