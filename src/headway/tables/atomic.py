"""The one way Headway puts a file on disk: complete or not at all.

The bytes go to a temporary file beside the target, are forced to the disk, and take the target's name in one rename.
A crash, a full disk or SIGKILL at any moment leaves the earlier file as it was; at worst a `.NAME.….tmp` stays behind.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headway.errors import WriteProblem, check_path

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
        mode = _mode(target, temp)
        writer(temp)
        _sync(temp, mode)
        os.replace(temp, target)
    except BaseException as error:
        with suppress(OSError):
            temp.unlink(missing_ok=True)
        if (number := _os_error_number(error)) is None:
            raise
        raise _refusal(path, number, str(error)) from error
    _sync_folder(target.parent)
    return Path(path)


def check_folder(folder: str | Path, *names: str) -> None:
    """Refuse, before the work, a folder that could not be made or could not take these files. Leaves nothing behind.

    names: files below the folder, with `/` between folders. Raises WriteProblem as `write_atomic`.

    >>> import tempfile
    >>> check_folder(Path(tempfile.mkdtemp()) / "new", "page.html", "tables/a.parquet")
    """
    check_path(folder, "a folder to write to")
    for name in names:
        target = Path(folder) / name
        above = [target, *target.parents]
        # os.path.exists is calm about names that are too long, where Path.exists raises.
        first = next(place for place in above if os.path.exists(place.parent))  # noqa: PTH110
        check_place(first)
        # What is to be made below it cannot be tried out, but its names can be measured.
        longest = max(len(os.fsencode(part)) for part in target.parts)
        if longest > os.pathconf(first.parent, "PC_NAME_MAX"):
            raise _refusal(target, errno.ENAMETOOLONG, "")


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
    check_path(path, "a file to write")
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


def _mode(target: Path, temp: Path) -> int:
    """The permissions the file should have: those it has, else what `open` gives a new one here."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    temp.touch(exist_ok=False)  # asking the system by trying: reading the umask means setting it, for every thread
    mode = stat.S_IMODE(temp.stat().st_mode)
    temp.unlink()
    return mode


def _sync(path: Path, mode: int) -> None:
    """Force the file to the disk, with these permissions: some libraries write files that only their owner may read."""
    with open(path, "rb+") as handle:
        if stat.S_IMODE(os.fstat(handle.fileno()).st_mode) != mode:
            with suppress(PermissionError):  # a file system without permissions
                os.fchmod(handle.fileno(), mode)
        os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; not every file system lets a folder be synced, and the file is whole anyway."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
