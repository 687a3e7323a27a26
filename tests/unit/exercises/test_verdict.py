"""A verdict speaks, grows facts and notes without changing, and shows itself shortly."""

from __future__ import annotations

from headway.exercises.verdict import Note, Verdict, failed, passed


def test_facts_and_notes_are_added_to_a_copy():
    first = failed("2c", "OFFSET", {"offset": 0})
    second = first.with_facts(domain="longer").with_notes(Note("COPIES"), Note("COPIES"))
    assert dict(first.facts) == {"offset": 0} and first.notes == ()
    assert dict(second.facts) == {"offset": 0, "domain": "longer"}
    assert second.with_notes(Note("COPIES")).notes == second.notes
    assert not second.passed


def test_a_pass_has_the_reason_passed():
    verdict = passed("2a", notes=(Note("EXCLUDED", {"queries": "position 0"}),))
    assert (verdict.passed, verdict.reason) == (True, "PASSED")
    assert len(verdict.note_texts()) == 1 and "position 0" in verdict.note_texts()[0]
    assert verdict.message


def test_a_code_without_words_is_still_said():
    assert "NOSUCHREASON" in Verdict("2a", False, "NOSUCHREASON", {"at": 3}).text("en")


def test_it_shows_itself_in_one_line():
    shown = repr(failed("2c", "ALIAS", {"offset": 19}))
    assert shown == "Verdict(2c: not passed, ALIAS, {'offset': 19})"
