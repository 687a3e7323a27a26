"""Breaking text into lines by the cells it takes on a terminal, in English and in Chinese."""

from __future__ import annotations

import re

from rich.cells import cell_len

# A line may break at spaces, and beside any wide character, but closing punctuation never begins a line.
_PIECES = re.compile(r"\s+|[\u2e80-\uffef][，。；：、！？）」》]*|[^\s\u2e80-\uffef]+[，。；：、！？）」》]*")


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most `width` cells. Lines of the text that begin with a blank stand as they are; others flow together.

    >>> wrapped("one two\\nthree", 9)
    ['one two', 'three']
    >>> wrapped("注意力头", 4)
    ['注意', '力头']
    """
    lines: list[str] = []
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        if paragraph:
            lines += _flow(_joined(paragraph), width - cell_len(indent))
            paragraph = []
        lines.append(line.rstrip())
    return [(indent + line).rstrip() for line in lines[:-1]]


def _joined(parts: list[str]) -> str:
    """Lines as one, with a blank between words and none between Chinese characters."""
    text = parts[0]
    for part in parts[1:]:
        text += part if cell_len(text[-1]) == 2 or cell_len(part[0]) == 2 else f" {part}"
    return text


def _flow(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for piece in _PIECES.findall(text):
        if line and cell_len(line) + cell_len(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece if line else piece.lstrip()
    return [*lines, line.rstrip()] if line.strip() else lines
