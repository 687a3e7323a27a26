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

from headway.errors import FileProblem, TextProblem, check_kind, check_path, counted
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


def read_corpus(paths: str | Path | Sequence[str | Path], licence: str = "the user's own text") -> Corpus:
    """A text file, or several, and all text files below folders, in the order of their names.

    Raises FileProblem for a path that is missing and TextProblem for one that is not UTF-8 or where nothing is left.
    Names are those below the folder given, so they do not depend on where it lies or how it is typed; a file given twice
    counts once. One or two files are cut into 20 runs of whole lines each, so that they can be split.
    """
    given = [paths] if isinstance(paths, str | Path) else paths
    check_kind(given, Sequence, "text to read", expected="files or folders by name")
    for path in given:
        check_path(path, "text to read")
    given = [Path(path) for path in given]
    files: list[tuple[str, str]] = []
    for name, path in _named(_walk(given)):
        text = _utf8(path)
        if text is None:
            raise TextProblem("not UTF-8 text", where=str(path), next_step="Convert it, or leave it out")
        files.append((name, text))
    files = [(name, text) for name, text in files if text.strip()]
    if not files:
        raise TextProblem("no text", where=", ".join(map(str, given)), expected="at least one non-empty file")
    what = "file"
    if len(files) < 3:
        files, what = [piece for name, text in files for piece in _pieces(name, text)], "piece"
    roots = ", ".join(dict.fromkeys(path.resolve().name for path in given))
    return Corpus(tuple(files), f"{counted(len(files), what)} of {roots}", licence)


def _walk(given: Iterable[Path]) -> list[tuple[Path, Path]]:
    """(root, file) of every file given or below a folder given, resolved; each file once, under its highest root."""
    found: dict[Path, tuple[Path, Path]] = {}
    for path in sorted(map(_root, given), key=lambda root: (len(root.parts), root)):
        inside = path.rglob("*") if path.is_dir() else [path]
        for file in sorted(p for p in inside if p.is_file()):
            if path.is_file() or not file.name.startswith("."):
                found.setdefault(file.resolve(), (path if path.is_dir() else path.parent, file))
    return list(found.values())


def _root(path: Path) -> Path:
    """The file or folder itself, however the path is spelled. Raises FileProblem for what is neither."""
    try:
        root = path.resolve()
        there, text = root.exists(), root.is_dir() or root.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long a name, a loop of links, a zero byte
        got = getattr(error, "strerror", None) or str(error)
        raise FileProblem("cannot be read", where=str(path), got=got) from error
    if not there:
        raise FileProblem("no such file or folder", where=str(path))
    if not text:
        raise FileProblem("not a file of text", where=str(path), expected="a file or folder", got="a device or pipe")
    return root


def _named(files: Sequence[tuple[Path, Path]]) -> list[tuple[str, Path]]:
    """Files by the name below their root, in the order of the names: the same wherever the root lies, however it is typed.

    Where two roots hold files of one name, every name gets as many folders above its root in front as tell them apart.
    """

    def names(above: int) -> list[str]:
        lead = (root.parts[max(len(root.parts) - above, 0) :] for root, _ in files)
        return ["/".join((*parts, *f.relative_to(r).parts)) for parts, (r, f) in zip(lead, files, strict=True)]

    above = 0
    while len(set(names(above))) < len(files):
        above += 1
    return sorted(zip(names(above), (file for _, file in files), strict=True))


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
    return int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:4], "big") % 20
