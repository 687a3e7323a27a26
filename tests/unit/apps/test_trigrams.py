"""`headway trigrams`: skip-trigrams, their bugs and what they cost, as a user asks for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.apps.cli.app import main
from headway.circuits.trigram_bugs import skip_trigram_bugs
from headway.circuits.trigrams import TrigramPick, skip_trigrams
from headway.sources.open import load


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["trigrams", "zoo:one-layer", *words, "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "headway/trigrams@1"
    return document["rows"]


def test_the_largest_of_one_head_of_all_and_of_one_token(capsys: pytest.CaptureFixture[str]) -> None:
    model = load("zoo:one-layer")
    assert rows(capsys, "L0H3", "--top", "4") == skip_trigrams(model, "L0H3", k=4).rows()
    assert rows(capsys) == skip_trigrams(model, k=20).rows()
    of_one = rows(capsys, "--source", " for", "--destination", " in", "--lowered", "--top", "3")
    assert of_one == skip_trigrams(model, k=3, pick=TrigramPick(False, " for", " in")).rows()
    assert {(r["source"], r["destination"]) for r in of_one} == {("·for", "·in")}


def test_bugs_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    bugs = rows(capsys, "L0H6", "--bugs", "--search", "1000", "--top", "2")
    assert bugs == skip_trigram_bugs(load("zoo:one-layer"), "L0H6", k=1000).rows()[:2] and len(bugs) == 2
    (cost,) = rows(capsys, "L0H4", "--cost", "--search", "50")
    assert cost["head"] == "L0H4" and cost["benefit"] > 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--bugs", "--cost"), "one of them"),
        (("--bugs", "--source", "a"), "no --bugs with it"),
        (("--cost", "--lowered"), "no --cost with it"),
        (("--search", "5"), "--bugs or --cost with it"),
        (("--top", "0"), "--top"),
    ],
)
def test_what_does_not_go_together(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str) -> None:
    assert main(["trigrams", "no-such-model", *words]) == 2
    shown = capsys.readouterr()
    assert says in shown.err and "no such model" not in shown.err and shown.out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("L3H3",), "no head L3H3 in this model"),
        (("--source", "frobnicate"), "is not one token"),
        (("--destination", "#99999"), "99999"),
    ],
)
def test_heads_and_tokens_that_do_not_exist(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    assert main(["trigrams", "zoo:one-layer", *words]) == 2
    assert says in capsys.readouterr().err
