"""Checking an answer file: it runs in a process of its own, with a limit on time and memory; only arrays come back."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from headway.errors import UsageError
from headway.exercises.catalogue import exercise
from headway.exercises.raised import AnswerFailed
from headway.exercises.verdict import Verdict, failed
from headway.exercises.workbook.frames import pack, unpack

SUFFIXES = (".py", ".json", ".npz")
_KEPT = 16_384  # bytes kept of the start and of the end of what an answer prints
_STARTING = 60.0  # seconds for Python and torch to load, which is not the answer's time
_PATIENCE = 10.0  # seconds that the child may take for what is not the answer's, and to end itself

# How the last words of the child's watchdog or fault handler begin.
_ENDED = re.compile(r"Timeout \(|Fatal Python error: (?P<why>.*)")


@dataclass(frozen=True)
class Limits:
    """What an answer may use: seconds of wall clock, and gigabytes (2^30 bytes) beyond what Python and torch take.

    The limit on memory is the system's own (RLIMIT_AS) and holds on Linux; macOS has it in name only, so there an answer
    may take what there is.
    """

    seconds: float = 10.0
    gigabytes: float = 2.0


@dataclass(frozen=True)
class Checked:
    """A verdict on an answer file and what the file printed."""

    verdict: Verdict
    printed: str = ""


def check_file(
    id: str,
    path: Path,
    *,
    earlier: Mapping[str, Path] | None = None,
    lang: str = "en",
    limits: Limits = Limits(),
) -> Checked:
    """Decide the answer in a file (.py with `solve` or arrays, .json, .npz) to exercise `id`.

    earlier: files of the parts it builds on; one that gives no arrays is left out (the reference stands in).
    What goes wrong inside the file is a verdict (ERROR, SYNTAX, SLOW, MEMORY, EXIT, DIED, ...). Raises UsageError for a
    file that does not exist or is of another kind, UnknownName for an unknown id.
    """
    for part, file in {**(earlier or {}), id: path}.items():
        exercise(part)
        _check_kind(file)
    with AnswerProcess(limits) as process:  # first, so that both processes load torch at the same time
        from headway.exercises.checking import Submission, grade

        def submission(part: str, file: Path) -> Submission:
            answers = process.solve(part, file)
            return Submission(answers["visible"], answers.get("hidden"))

        try:
            own = submission(id, path)
            before: dict[str, Submission] = {}
            for part, file in (earlier or {}).items():
                with suppress(AnswerFailed):
                    before[part] = submission(part, file)
            verdict = grade(id, own, earlier=before, lang=lang)
        except AnswerFailed as problem:
            verdict = failed(id, problem.reason, problem.facts, lang=lang)
    return Checked(verdict, process.printed)


class AnswerProcess:
    """A child process that runs answer files; a context manager that always ends it and whatever it started."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self.limits = limits
        self.printed = ""
        self._output = bytearray()
        self._path = Path()
        self._last_words = tempfile.TemporaryFile()  # noqa: SIM115 (closed at the end)
        home = Path(__file__).parents[3]
        places = os.pathsep.join(filter(None, (str(home), os.environ.get("PYTHONPATH", ""))))
        most = str(int(limits.gigabytes * 2**30))
        # -P: a file of the learner's called torch.py must not be taken for torch.
        self._process = subprocess.Popen(  # noqa: S603 (this interpreter, our own module)
            [sys.executable, "-P", "-m", "headway.exercises.workbook.child", most, str(self._last_words.fileno())],
            pass_fds=(self._last_words.fileno(),),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._ready = False

    def __enter__(self) -> AnswerProcess:  # noqa: PYI034 (beartype knows no Self here)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def solve(self, id: str, path: Path) -> dict[str, dict[str, Any]]:
        """Answers by domain (`visible`, and `hidden` for a `solve` function) and name. Raises AnswerFailed."""
        self._path = path.resolve()
        request = {"do": "solve", "id": id, "path": str(self._path), "seconds": self.limits.seconds}
        header, arrays = self._ask(request, {})
        found: dict[str, dict[str, Any]] = {domain: {} for domain in header["domains"]}
        for key, array in arrays.items():
            domain, _, name = key.partition("/")
            found[domain][name] = array
        for key in header["functions"]:
            domain, _, name = key.partition("/")
            found[domain][name] = self._stand_in(key)
        return found

    def _stand_in(self, key: str) -> Callable[..., Any]:
        """A function here that calls the answer's function there."""

        def call(*inputs: Any) -> Any:
            import torch

            arrays = {str(k): np.asarray(value) for k, value in enumerate(inputs)}
            header, result = self._ask({"do": "call", "name": key, "seconds": self.limits.seconds}, arrays)
            return None if header.get("nothing") else torch.from_numpy(result["value"].copy())

        return call

    def _ask(
        self, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Send a request and wait for its reply, well beyond the time that the child's own watchdog allows."""
        if not self._ready:
            self._receive(_STARTING)
            self._ready = True
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            raise AnswerFailed("DIED", {"file": self._path.name, "error": "ended by an earlier request"})
        with suppress(OSError):  # a child that is gone is noticed by what it does not reply
            stdin.write(pack(request, arrays))
            stdin.flush()
        header, result = self._receive(self.limits.seconds + _PATIENCE)
        if "reason" in header:
            raise AnswerFailed(header["reason"], header["facts"] | {"gigabytes": self.limits.gigabytes})
        return header, result

    def _receive(self, seconds: float) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        late = time.monotonic() + seconds
        stdout = self._process.stdout
        descriptor = stdout.fileno() if stdout is not None else -1

        def read(count: int) -> bytes:
            got = bytearray()
            while len(got) < count:
                readable, _, _ = select.select([descriptor], [], [], max(0.0, late - time.monotonic()))
                if not readable:
                    raise TimeoutError
                part = os.read(descriptor, min(count - len(got), 2**20))
                if not part:
                    break
                got += part
            return bytes(got)

        try:
            return unpack(read)
        except (TimeoutError, EOFError, ValueError) as error:
            if not isinstance(error, TimeoutError):
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(5.0)  # it is going by itself, and its exit code says how
            problem = self._post_mortem(isinstance(error, TimeoutError))
            self._end()
            raise AnswerFailed(*problem) from error

    def _post_mortem(self, late: bool) -> tuple[str, dict[str, Any]]:
        """Why there is no reply, from what the watchdog and the fault handler wrote before the end."""
        self._last_words.seek(0)
        text = self._last_words.read(_KEPT).decode("utf-8", "replace")
        facts: dict[str, Any] = {"file": self._path.name, "seconds": self.limits.seconds}
        ended = _ENDED.search(text)
        if ended:
            place = re.search(rf'File "{re.escape(str(self._path))}", line (\d+)', text[ended.start() :])
            if place:
                line = int(place[1])
                facts |= {"line": line, "code": _line_of(self._path, line)}
            if ended["why"] is None:
                return "SLOW", facts
            return "DIED", facts | {"error": ended["why"]}
        if late:
            return "SLOW", facts
        code = self._process.returncode or 0
        return "DIED", facts | {"error": signal.Signals(-code).name if code < 0 else f"exit code {code}"}

    def _listen(self) -> None:
        """Take what the answer prints as it comes, so that it never waits, and keep the start and the end of it."""
        stream = self._process.stderr
        while stream is not None and (part := os.read(stream.fileno(), 65_536)):
            self._output += part
            if len(self._output) > 2 * _KEPT:
                self._output[_KEPT : len(self._output) - _KEPT] = b"\n"

    def _end(self) -> None:
        """End the process and its own children, and close the pipes; once is enough."""
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            return
        with suppress(OSError):  # the last of what was asked of a process that is gone
            stdin.close()
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join(1.0)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None and not self._listener.is_alive():
                stream.close()
        self._last_words.close()
        self.printed = self._output.decode("utf-8", "replace").strip("\n")


def _check_kind(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise UsageError(
            "not an answer file", where=str(path), expected=" or ".join(SUFFIXES), got=path.suffix or "none"
        )
    if not path.is_file():
        raise UsageError(
            "there is no such answer file", where=str(path), next_step="Make one with: headway learn start ID"
        )


def _line_of(path: Path, line: int) -> str:
    with suppress(OSError, IndexError):
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[line - 1].strip()
    return ""
