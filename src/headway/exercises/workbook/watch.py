"""Noticing that an answer file was saved, by looking at it every so often."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

Stamp = tuple[int, int]
Stamps = dict[Path, Stamp]


def saved_files(
    files: Callable[[], list[Path]],
    *,
    every: float = 0.3,
    pause: Callable[[float], None] = time.sleep,
    first: bool = True,
) -> Iterator[Path]:
    """Each file of `files()` when it appears or was changed, once it stayed the same for one interval; without end.

    first: the files that are there at the start come first. every: seconds between looks. A file that goes away is
    forgotten.
    """
    seen: Stamps = {} if first else _stamps(files())
    before = _stamps(files())
    while True:
        now = _stamps(files())
        for path, stamp in now.items():
            if seen.get(path) != stamp and before.get(path) == stamp:
                seen[path] = stamp
                yield path
        seen = {path: stamp for path, stamp in seen.items() if path in now}
        before = now
        pause(every)


def _stamps(paths: list[Path]) -> Stamps:
    found: Stamps = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
    return found
