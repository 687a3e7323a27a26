"""Kinds of heads: each threshold on both sides, the order of kinds, and missing measures."""

from __future__ import annotations

import pytest

from headway.studies.heads import ATTENDS, COPIES, COPIES_Z, KINDS, MATCHES, RESTS, kind_of

COPYING = {"copying": COPIES, "copying_z": COPIES_Z}
CASES = {
    "previous-token": {"previous_token": ATTENDS},
    "induction": {"prefix_matching": MATCHES, **COPYING},
    "duplicate-token": {"duplicate_token": ATTENDS},
    "positional": {"best_offset_attention": ATTENDS, "best_offset": 2},
    "copying": COPYING,
    "bos": {"bos": RESTS},
}


def test_every_kind_has_a_case() -> None:
    assert (*CASES, "unexplained") == KINDS


@pytest.mark.parametrize("kind", CASES)
def test_a_kind_begins_at_its_threshold(kind: str) -> None:
    assert kind_of(CASES[kind])[0] == kind
    below = {name: value - 1e-9 for name, value in CASES[kind].items()}
    assert kind_of(below)[0] == "unexplained"


@pytest.mark.parametrize("kind", CASES)
def test_an_earlier_kind_wins(kind: str) -> None:
    later = list(CASES)[list(CASES).index(kind) :]
    everything = {name: value for other in later for name, value in CASES[other].items()}
    # A copying head with a pattern of its own is named for the pattern: copying completes `induction` only.
    everything = {"prefix_matching": None, **everything} if kind != "induction" else everything
    assert kind_of(everything)[0] == kind


def test_matching_without_copying_is_said() -> None:
    kind, evidence = kind_of({"prefix_matching": 0.9, "copying": -0.8, "copying_z": -9.0})
    assert kind == "unexplained" and "does not copy: -0.80" in evidence


def test_copying_must_be_both_large_and_beyond_chance() -> None:
    assert kind_of({"copying": 1.0, "copying_z": COPIES_Z - 1})[0] == "unexplained"
    assert kind_of({"copying": COPIES - 0.1, "copying_z": 50.0})[0] == "unexplained"


def test_missing_measures_fulfil_nothing() -> None:
    assert (
        kind_of(dict.fromkeys(("previous_token", "copying", "copying_z", "bos", "prefix_matching")))[0] == "unexplained"
    )
