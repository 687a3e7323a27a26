"""Training text: files in a fixed order, split by file, with a hash that names exactly this corpus.

The default is the running Python's standard library source, without tests: present wherever Python is, and free
(PSF licence). Test folders are left out because distributions disagree about shipping them.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.errors import FileProblem, TextProblem
from headway.provenance import content_hash

_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
SPLITS = ("training", "validation", "heldout")


@dataclass(frozen=True)
class Corpus:
    """Named texts in order. description, licence and hash go into every card that this corpus leads to."""

    files: tuple[tuple[str, str], ...]
    description: str
    licence: str

    @property
    def hash(self) -> str:
        """Sixteen hex digits over names and contents."""
        return content_hash((name, text.encode()) for name, text in self.files)

    def split(self, part: str) -> tuple[tuple[str, str], ...]:
        """Files of `training` (18 of 20), `validation` or `heldout` (1 of 20 each), by a hash of the name.

        Where that leaves one of them empty, as in small corpora, the last 20th of the files, or one, is heldout and the
        one before it validation.
        """
        buckets = [min(_bucket(name), 2) for name, _ in self.files]
        if len(self.files) >= 20 and set(buckets) == {0, 1, 2}:
            wanted = {"validation": 0, "heldout": 1, "training": 2}[part]
            return tuple(file for file, bucket in zip(self.files, buckets, strict=True) if bucket == wanted)
        n = max(1, len(self.files) // 20)
        chosen = {"training": self.files[: -2 * n], "validation": self.files[-2 * n : -n], "heldout": self.files[-n:]}
        return chosen[part]


def standard_library() -> Corpus:
    """The running Python's own source: every `.py` of its library folder, in the order of the names."""
    root = Path(sysconfig.get_path("stdlib"))
    names = sorted(
        p.relative_to(root).as_posix() for p in root.rglob("*.py") if not _LEFT_OUT & set(p.relative_to(root).parts)
    )
    files = [(name, text) for name in names if (text := _utf8(root / name)) is not None]
    version = ".".join(map(str, sys.version_info[:3]))
    return Corpus(tuple(files), f"Python {version} standard library source, without tests", "PSF-2.0")


def read_corpus(paths: Sequence[str | Path], licence: str = "the user's own text") -> Corpus:
    """Text files, and all text files below folders, in the order of their names.

    Raises FileProblem for a path that is missing and TextProblem for one that is not UTF-8 or where nothing is left.
    A single file is cut into 20 runs of whole lines, so that it can be split.
    """
    files: list[tuple[str, str]] = []
    for path in _walk(paths):
        text = _utf8(path)
        if text is None:
            raise TextProblem("not UTF-8 text", where=str(path), next_step="Convert it, or leave it out")
        files.append((path.as_posix(), text))
    files = [(name, text) for name, text in files if text.strip()]
    if not files:
        raise TextProblem("no text", where=", ".join(map(str, paths)), expected="at least one non-empty file")
    if len(files) < 3:
        files = [piece for name, text in files for piece in _pieces(name, text)]
    return Corpus(tuple(files), f"{len(files)} files of " + ", ".join(Path(p).name for p in paths), licence)


def _walk(paths: Iterable[str | Path]) -> list[Path]:
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        elif path.is_file():
            found.append(path)
        elif path.exists():
            raise FileProblem(
                "not a file of text", where=str(path), expected="a file or folder", got="a device or pipe"
            )
        else:
            raise FileProblem("no such file or folder", where=str(path))
    return found


def _pieces(name: str, text: str, n: int = 20) -> list[tuple[str, str]]:
    lines = text.splitlines(keepends=True)
    cuts = [len(lines) * i // n for i in range(n + 1)]
    pieces = [("".join(lines[a:b])) for a, b in itertools.pairwise(cuts)]
    return [(f"{name}#{i:02}", piece) for i, piece in enumerate(pieces) if piece.strip()]


def _utf8(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None
    except OSError as error:
        raise FileProblem("cannot be read", where=str(path), got=error.strerror) from error


def _bucket(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 20
