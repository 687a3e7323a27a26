"""The one way Headway puts a file on disk: complete or not at all.

The bytes go to a temporary file beside the target, are forced to the disk, and take the target's name in one rename.
A crash, a full disk or SIGKILL at any moment leaves the earlier file as it was; at worst a `.NAME.….tmp` stays behind.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headway.errors import WriteProblem

# Rust libraries (safetensors, polars) report a full disk under their own exception types, but with this ending.
_RUST_OS_ERROR = re.compile(r"\(os error (\d+)\)")

_NEXT_STEP = {
    errno.ENOSPC: "Free some space, or write to another disk",
    errno.EDQUOT: "Free some of your quota, or write to another disk",
    errno.ENOENT: "Make the folder first",
    errno.ENOTDIR: "Name a file inside a folder",
    errno.EACCES: "Choose a place you may write to",
    errno.EPERM: "Choose a place you may write to",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.EROFS: "Choose a place you may write to",
}


def write_atomic(path: str | Path, writer: Callable[[Path], None]) -> Path:
    """Let `writer` fill a temporary file, then give it the name `path`; returns the path written.

    The writer gets the path of the temporary file (its name ends in `.tmp`, in the folder of the target) and may raise:
    then the temporary file goes and an earlier file at `path` stays untouched. A symbolic link is written through.
    Raises WriteProblem when the operating system refuses (full disk, no such folder, no permission) and when `path`
    is a folder or a device; whatever else the writer raises passes through.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_atomic(folder / "a.txt", lambda temp: temp.write_text("done") and None).read_text()
    'done'
    """
    target = _target(path)
    temp = _beside(target)
    try:
        writer(temp)
        _sync(temp)
        os.replace(temp, target)
    except BaseException as error:
        with suppress(OSError):
            temp.unlink(missing_ok=True)
        if (number := _os_error_number(error)) is None:
            raise
        raise _refusal(path, number, str(error)) from error
    _sync_folder(target.parent)
    return Path(path)


def check_place(path: str | Path) -> None:
    """Refuse at once what `write_atomic` would refuse after the work: tries a temporary file there, and removes it.

    Raises WriteProblem as `write_atomic`.

    >>> import tempfile
    >>> check_place(Path(tempfile.mkdtemp()) / "a.txt")
    """
    temp = _beside(_target(path))
    try:
        temp.touch(exist_ok=False)
        temp.unlink()
    except OSError as error:
        raise _refusal(path, error.errno or 0, str(error)) from error


def _target(path: str | Path) -> Path:
    """The file behind links, which may not exist yet but is no folder or device."""
    target = Path(os.path.realpath(path))
    try:
        taken = target.exists() and not target.is_file()
    except OSError as error:  # a name longer than the file system allows
        raise _refusal(path, error.errno or 0, str(error)) from error
    if taken:
        raise WriteProblem("cannot be replaced by a file", where=str(path), expected="a file name", got=_kind(target))
    return target


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")


def _refusal(path: str | Path, number: int, text: str) -> WriteProblem:
    reason = os.strerror(number) if number else text
    return WriteProblem(
        f"could not be written ({reason}); nothing half-written was left",
        where=str(path),
        next_step=_NEXT_STEP.get(number),
    )


def write_bytes_atomic(path: str | Path, data: bytes) -> Path:
    """`write_atomic` of bytes already in memory.

    >>> import tempfile
    >>> write_bytes_atomic(Path(tempfile.mkdtemp()) / "a.bin", b"xyz").stat().st_size
    3
    """

    def fill(temp: Path) -> None:
        temp.write_bytes(data)

    return write_atomic(path, fill)


def _os_error_number(error: BaseException) -> int | None:
    """The errno behind an exception: 0 when it is an OSError without one, None when it is no OS error."""
    if isinstance(error, OSError):
        return error.errno or 0
    match = _RUST_OS_ERROR.search(str(error)) if isinstance(error, Exception) else None
    return int(match.group(1)) if match else None


def _kind(path: Path) -> str:
    return "a folder" if path.is_dir() else "a device or pipe"


def _sync(path: Path) -> None:
    with open(path, "rb+") as handle:
        os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; not every file system lets a folder be synced, and the file is whole anyway."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
