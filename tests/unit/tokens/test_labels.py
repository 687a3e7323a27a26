"""The byte alphabet is a bijection, and nothing invisible survives a label."""

from __future__ import annotations

import unicodedata

import pytest

from headway.tokens.labels import alphabet_to_bytes, byte_alphabet, printable, visible


def test_byte_alphabet_is_a_bijection_onto_all_bytes() -> None:
    letters = byte_alphabet()
    assert sorted(letters.values()) == list(range(256))
    # Two entries known from the published vocabulary: space is G with a dot, newline is C with a dot.
    assert letters["\u0120"] == 0x20 and letters["\u010a"] == 0x0A


def test_byte_alphabet_is_the_one_of_the_tokenizers_package() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert set(ByteLevel.alphabet()) == set(byte_alphabet())
    pre = ByteLevel(add_prefix_space=False, use_regex=False)
    for text in ("é ", "\x00\x1f\x7f", "日本\u202e", "\u00ad\xff"):
        [(piece, _)] = pre.pre_tokenize_str(text)
        assert alphabet_to_bytes(piece) == text.encode()


def test_text_outside_the_alphabet_is_its_own_utf8() -> None:
    assert alphabet_to_bytes("日本") == "日本".encode()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b" the", "·the"),
        (b"\n\n", "⏎⏎"),
        (b"\tx\r", "⇥x\\r"),
        (b"\xe2\x80", "<0xE2><0x80>"),
        ("é".encode() + b"\xff", "é<0xFF>"),
        (b"\x1b]0;", "\\x1b]0;"),
        ("\u202eabc", "\\u202eabc"),
        ("\u00a0\u2028", "\\xa0\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        (b"", ""),
    ],
)
def test_visible(data: bytes | str, shown: str) -> None:
    assert visible(data) == shown


def test_visible_leaves_no_control_or_format_character() -> None:
    shown = visible("".join(map(chr, range(0x3000))))
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Zs", "Zl", "Zp", "Cs"}


def test_printable_keeps_spaces_and_escapes_what_acts() -> None:
    assert printable("a b é 日") == "a b é 日"
    assert printable("\x1b]0;x\x07 \u2066 \n\t\ud800") == "\\x1b]0;x\\x07 \\u2066 \\x0a\\x09\\ud800"
