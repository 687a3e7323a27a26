"""What was solved so far: one JSON file beside the answer files, written whole or not at all.

    {"version": 1, "exercises": {"2c": {"passed": true, "reason": "PASSED", "attempts": 3, "hints": 1,
                                        "T99": 23.1, "answer": "sha256:..."}}}

Whatever else stands in the file stays in it: entries of other exercises, other fields, other versions.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.tables.atomic import write_bytes_atomic

FILE_NAME = "headway-progress.json"
VERSION = 1
_LARGEST = 16 * 2**20  # bytes: more is no progress file


@dataclass(frozen=True)
class Entry:
    """How one exercise stands. passed: ever; reason: of the last check; T99: the smallest of those that passed."""

    passed: bool = False
    reason: str = ""
    attempts: int = 0
    hints: int = 0
    T99: float | None = None
    answer: str = ""


@dataclass(frozen=True)
class Progress:
    """The progress file of a folder, as it was read. `set_aside`: where a file that could not be read was moved."""

    folder: Path
    document: Mapping[str, Any] = field(default_factory=dict)
    set_aside: Path | None = None

    @classmethod
    def of(cls, folder: Path) -> Progress:
        """Read a folder's file. A broken one is never fatal and never lost: it gets another name.

        >>> import tempfile
        >>> Progress.of(Path(tempfile.mkdtemp())).entry("2c").attempts
        0
        """
        path = folder / FILE_NAME
        try:
            if path.stat().st_size > _LARGEST:
                raise ValueError("too large")
            document = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(document, dict) or not isinstance(document.get("exercises", {}), dict):
                raise ValueError("not a progress file")
        except FileNotFoundError:
            return cls(folder)
        except OSError:  # a folder that cannot be read says so when it is written
            return cls(folder)
        except (ValueError, RecursionError):
            return cls(folder, set_aside=_set_aside(path))
        return cls(folder, document)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.folder / FILE_NAME

    def entry(self, id: str) -> Entry:
        """How an exercise stands; fields that are missing or of another type count as untouched."""
        stored = self._stored(id)
        kept: dict[str, Any] = {}
        for name, default in (("passed", False), ("reason", ""), ("attempts", 0), ("hints", 0), ("answer", "")):
            value = stored.get(name, default)
            kept[name] = value if type(value) is type(default) else default
        T99 = stored.get("T99")
        kept["T99"] = float(T99) if isinstance(T99, (int, float)) and math.isfinite(T99) else None
        return Entry(**kept)

    def checked(self, id: str, *, reason: str, passed: bool, T99: float | None = None, answer: str = "") -> Progress:
        """After one more check. What passed once stays passed."""
        before = self.entry(id)
        sharpest = [value for value in (before.T99, T99 if passed else None) if value is not None]
        best = min((value for value in sharpest if math.isfinite(value)), default=None)
        changes = {
            "passed": before.passed or passed,
            "reason": reason,
            "attempts": before.attempts + 1,
            "T99": best,
            "answer": answer,
        }
        return self._with(id, changes)

    def hinted(self, id: str, level: int) -> Progress:
        """After a hint of a level was shown."""
        return self._with(id, {"hints": max(level, self.entry(id).hints)})

    def save(self) -> None:
        """Write the file. Raises WriteProblem; the earlier file is then untouched."""
        text = json.dumps(self.document, indent=1, ensure_ascii=False) + "\n"
        write_bytes_atomic(self.path, text.encode("utf-8", "surrogatepass"))

    def _stored(self, id: str) -> Mapping[str, Any]:
        stored = self.document.get("exercises", {}).get(id)
        return stored if isinstance(stored, dict) else {}

    def _with(self, id: str, changes: Mapping[str, Any]) -> Progress:
        all_of_them = {**self.document.get("exercises", {}), id: {**self._stored(id), **changes}}
        document = {"version": VERSION, **self.document, "exercises": all_of_them}
        return Progress(self.folder, document, self.set_aside)


def digest(path: Path) -> str:
    """A short name of a file's bytes, "" when it cannot be read."""
    try:
        return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def _set_aside(path: Path) -> Path | None:
    """Give a broken file the first free name beside it; None when it cannot be renamed."""
    for k in range(1, 1000):
        other = path.with_name(f"{path.stem}.broken-{k}{path.suffix}")
        if not other.exists():
            with suppress(OSError):
                return path.rename(other)
            return None
    return None
