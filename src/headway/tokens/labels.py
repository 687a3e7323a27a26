"""Bytes of a token, and the form of them that can be seen.

Byte-level BPE stores each byte as one printable character (the GPT-2 byte alphabet); here is its inverse. A label shows
what would be invisible or ambiguous: `·` space, `⏎` newline, `⇥` tab, `<0xE2>` a byte that is no whole character.
"""

from __future__ import annotations

import unicodedata
from functools import cache

_MARKS = {" ": "·", "\n": "⏎", "\t": "⇥"}
# Cc control, Cf format (bidi, zero width), Cs surrogate, Co private, Cn unassigned, Zl/Zp line ends, Zs odd spaces.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}


@cache
def byte_alphabet() -> dict[str, int]:
    """Character -> byte of the GPT-2 byte alphabet: printable Latin-1 is itself, the rest counts up from U+0100.

    >>> byte_alphabet()["A"], byte_alphabet()["Ġ"], len(byte_alphabet())
    (65, 32, 256)
    """
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(itself)]
    return {chr(byte): byte for byte in itself} | {chr(0x100 + k): byte for k, byte in enumerate(rest)}


def alphabet_to_bytes(token: str) -> bytes:
    """The bytes behind a byte-level token; a token with a character outside the alphabet is its own UTF-8.

    >>> alphabet_to_bytes("Ġthe")
    b' the'
    """
    letters = byte_alphabet()
    if all(character in letters for character in token):
        return bytes(letters[character] for character in token)
    return token.encode()


def visible(data: bytes | str) -> str:
    r"""A form of the text in which every character can be seen, on one line.

    >>> visible(b" caf\xc3"), visible("a\n\tb\u202e")
    ('·caf<0xC3>', 'a⏎⇥b\\u202e')
    """
    text = data if isinstance(data, str) else data.decode("utf-8", errors="surrogateescape")
    return "".join(_visible_character(character) for character in text)


def printable(text: str) -> str:
    r"""The text with ordinary spaces kept, and whatever could move a cursor, turn the writing or hide escaped.

    >>> printable("a b\x1b[2J\u202e")
    'a b\\x1b[2J\\u202e'
    """
    return "".join(character if character == " " else _escaped(character) for character in text)


def _visible_character(character: str) -> str:
    return _MARKS.get(character) or _escaped(character)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape's stand-in for a byte that did not decode
        return f"<0x{code - 0xDC00:02X}>"
    if unicodedata.category(character) not in _HIDDEN:
        return character
    if character == "\r":
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
