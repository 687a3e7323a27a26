"""Complete or not at all, whatever goes wrong half way."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.errors import WriteProblem
from headway.tables.atomic import check_place, write_atomic, write_bytes_atomic


def test_writes_and_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    assert write_bytes_atomic(target, b"one") == target
    write_bytes_atomic(str(target), b"two")
    assert target.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [target]


def test_the_file_has_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_bytes_atomic(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_new_files_follow_the_umask_and_old_ones_keep_their_mode(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        made = write_atomic(tmp_path / "made", private)
        (tmp_path / "old").write_bytes(b"")
        (tmp_path / "old").chmod(0o640)
        old = write_atomic(tmp_path / "old", private)
    finally:
        os.umask(before)
    assert made.stat().st_mode & 0o777 == mode
    assert old.stat().st_mode & 0o777 == 0o640


def private(path: Path) -> None:
    """As some libraries write: a file that only its owner may read."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))


@pytest.mark.parametrize("error", [RuntimeError("half way"), KeyboardInterrupt()])
def test_an_error_half_way_keeps_the_old_file(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "a.bin"
    write_bytes_atomic(target, b"old")

    def half(temp: Path) -> None:
        temp.write_bytes(b"ne")
        raise error

    with pytest.raises(type(error)):
        write_atomic(target, half)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_a_write_problem(tmp_path: Path, error: Exception) -> None:
    target = tmp_path / "a.bin"
    write_bytes_atomic(target, b"old")

    def full(temp: Path) -> None:
        temp.write_bytes(b"ne")
        raise error

    with pytest.raises(WriteProblem, match=r"No space left.*Free some space") as caught:
        write_atomic(target, full)
    assert caught.value.where == str(target) and caught.value.exit_code == 1
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_at_fsync_or_rename_is_a_write_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(WriteProblem, match="No space left"):
                write_bytes_atomic(tmp_path / "a.bin", b"new")
        assert list(tmp_path.iterdir()) == []


def test_a_place_that_does_not_exist_or_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(WriteProblem, match="Make the folder first"):
        write_bytes_atomic(tmp_path / "no" / "a.bin", b"x")
    with pytest.raises(WriteProblem, match="got a folder"):
        write_bytes_atomic(tmp_path, b"x")
    with pytest.raises(WriteProblem, match="got a device"):
        write_bytes_atomic("/dev/null", b"x")


def test_a_writer_that_writes_nothing_is_a_write_problem(tmp_path: Path) -> None:
    with pytest.raises(WriteProblem):
        write_atomic(tmp_path / "a.bin", lambda temp: None)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_written_through(tmp_path: Path) -> None:
    real = tmp_path / "real.bin"
    link = tmp_path / "link.bin"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write_bytes_atomic(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"


def test_long_names_fit(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250)
    write_bytes_atomic(target, b"x")
    assert target.read_bytes() == b"x"


def test_kill_while_writing_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    write_bytes_atomic(target, b"old")
    code = (
        "import sys, time; from headway.tables.atomic import write_atomic\n"
        "def slow(temp):\n"
        "    with open(temp, 'wb') as f:\n"
        "        f.write(b'half'); f.flush(); print('writing', flush=True); time.sleep(60)\n"
        "write_atomic(sys.argv[1], slow)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "writing\n"
        child.send_signal(signal.SIGKILL)
    assert target.read_bytes() == b"old"
    leftovers = [p for p in tmp_path.iterdir() if p != target]
    assert len(leftovers) == 1 and leftovers[0].name.startswith(".a.bin.") and leftovers[0].suffix == ".tmp"


def test_a_place_is_checked_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"as it was")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere" / "file")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    for name in ("old", "new"):
        check_place(tmp_path / name)
    for name, says in (
        ("folder", "cannot be replaced by a file; expected a file name, got a folder"),
        ("nowhere/file", "Make the folder first"),
        ("gone", "Make the folder first"),
        ("old/file", "Name a file inside a folder"),
        ("x" * 300, "Choose a shorter name"),
    ):
        with pytest.raises(WriteProblem, match=says):
            check_place(tmp_path / name)
        with pytest.raises(WriteProblem, match=says):
            write_bytes_atomic(tmp_path / name, b"")
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "old").read_bytes() == b"as it was"
