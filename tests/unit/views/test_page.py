"""The page: one file, no scripts, no network, every text escaped, headings and tables as they should be."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from headway.provenance import Provenance
from headway.tables import Column, Table
from headway.views import Bars, HeatMap, Page, PageTable, Section, page_html

HOSTILE = '</script><script>alert(1)</script><b onload="x">\x1b\u202e'
VOID = {"meta", "link", "img", "source", "br"}


class Reader(HTMLParser):
    """Checks nesting and collects every start tag, and the text outside the style sheet."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def table(text: str = "·the") -> Table:
    columns = {"token": Column("a token"), "score": Column("the `score`", "nats", 0, 9), "n": Column("n", low=0)}
    rows = [{"token": text, "score": k / 3, "n": k} for k in range(25)]
    return Table.from_rows(rows, columns, Provenance(steps=("folded norms",)))


def page(text: str = "plain") -> Page:
    heat = HeatMap(text, [[1.0, float("nan")]], [text], ["a", "b"], row_axis="query", col_axis=text, caption=text)
    bars = Bars("How much?", [text], [1.0], axis="nats")
    return Page(
        title=text,
        lead=[text, "Head `L1H3` reads `a<b`."],
        sections=[
            Section("Same", [text], [heat, bars], [PageTable(text, table(text))], [text]),
            Section("Same", ["More."], tables=[PageTable("All rows", table(), limit=None)]),
            Section("日本"),
        ],
        facts=[(text, text)],
        provenance=Provenance("ab12", text, ("folded norms",), {"draws": 200}, 0, "0.1.0"),
        command=f"headway report {text}",
    )


@pytest.fixture(scope="module")
def plain() -> str:
    return page_html(page())


@pytest.fixture(scope="module")
def hostile() -> str:
    return page_html(page(HOSTILE))


def test_the_page_is_well_nested_and_loads_nothing(plain: str) -> None:
    read = Reader(plain)
    assert read.open == []
    assert not read.all("script")
    policy = next(a["content"] for a in read.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    links = [a[k] for _, a in read.tags for k in ("src", "srcset", "href", "action") if k in a]
    assert links and all(link.startswith(("data:", "#")) for link in links)
    assert "http://" not in plain and "https://" not in plain and "url(" not in plain and "@import" not in plain


def test_hostile_text_is_shown_and_not_obeyed(hostile: str, plain: str) -> None:
    read = Reader(hostile)
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in Reader(plain).tags]
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    assert "\x1b" not in hostile and "\u202e" not in hostile
    assert "</script><script>alert(1)</script>" in read.text and "\\x1b\\u202e" in read.text


def test_structure_for_readers_of_every_kind(plain: str) -> None:
    read = Reader(plain)
    assert read.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in read.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    assert len(read.all("caption")) == len(read.all("table")) == 2
    scopes = [a.get("scope") for a in read.all("th")]
    assert scopes.count("col") == 6 and scopes.count("row") == 20 + 25
    assert len(read.all("figcaption")) == len(read.all("figure")) == 2
    assert all(a["alt"] and a["width"] and a["height"] for a in read.all("img"))
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in read.all("div") if a.get("class") == "scroll")


def test_ids_are_unique_and_the_contents_lead_to_them(plain: str) -> None:
    read = Reader(plain)
    ids = [a["id"] for _, a in read.tags if "id" in a]
    assert len(set(ids)) == len(ids)
    targets = [a["href"][1:] for a in read.all("a")]
    assert targets == ["s-same", "s-same-2", "s-section-3"] and set(targets) <= set(ids)


def test_tables_say_what_is_left_out_and_what_columns_mean(plain: str) -> None:
    text = " ".join(Reader(plain).text.split())
    assert "25 rows, 5 of them not shown; processing: folded norms" in text
    assert "25 rows; processing: folded norms" in text
    assert "the score (nats, 0 to 9)" in text and "n (at least 0)" in text


def test_figures_in_both_themes_without_scripts(plain: str) -> None:
    read = Reader(plain)
    assert {a["media"] for a in read.all("source")} == {"screen and (prefers-color-scheme: dark)"}
    for image in [a["src"] for a in read.all("img")] + [a["srcset"] for a in read.all("source")]:
        assert base64.b64decode(image.partition(",")[2]).startswith(b"<svg")  # test_still parses them
    assert "Values: 1 to 1. 1 of 2 cells have no value (hatched)." in read.text
    assert "How much?" in read.text and "How much?." not in read.text


def test_code_and_nothing_else_is_markup(plain: str) -> None:
    assert "<code>L1H3</code> reads <code>a&lt;b</code>." in plain


def test_the_foot_tells_where_the_numbers_come_from(plain: str) -> None:
    foot = " ".join(Reader(plain).text.split()).rpartition("made by")[2]
    for part in (
        "headway report plain",
        "weights ab12",
        "processing folded norms",
        'options {"draws": 200}',
        "seed 0",
        "version 0.1.0",
    ):
        assert part in foot


def test_a_page_of_almost_nothing() -> None:
    read = Reader(page_html(Page("Empty", [], [])))
    assert read.open == [] and not read.all("footer") and not read.all("nav")


def test_the_same_page_gives_the_same_bytes(plain: str) -> None:
    assert page_html(page()) == plain
