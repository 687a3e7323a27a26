"""The process in which an answer file runs: `python -m headway.exercises.workbook.child MEMORY DESCRIPTOR`.

It takes frames (`frames`) on stdin and answers on stdout. The answer's own stdout goes where its stderr goes, its stdin is
empty, its memory is limited, and a watchdog writes where it was before ending it. Only arrays and plain facts leave.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import linecache
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NoReturn

import numpy as np
import torch

from headway.exercises.answer import taken, tensor_of
from headway.exercises.catalogue import exercise
from headway.exercises.givens import Given, given
from headway.exercises.workbook.frames import pack, unpack

_NO_ROOM = ("can't allocate memory", "not enough memory", "Cannot allocate memory")


class Child:
    """Answers requests about answer files, and keeps the functions they gave for later calls."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}
        self.data: dict[str, Given] = {}
        self.path = ""

    def prepare(self, request: Mapping[str, Any]) -> None:
        """Before the answer's time runs: the data it is to be computed from."""
        if request["do"] == "solve":
            id, self.path = request["id"], request["path"]
            self.functions = {}
            self.data = {"visible": given(id), "hidden": given(id, hidden=True)}

    def solve(self, id: str) -> bytes:
        """Run a file and take in its answer on the visible data, and on the hidden data where it is a function."""
        answer = _read(self.path, tuple(exercise(id).answers))
        domains = ("visible", "hidden") if callable(answer) else ("visible",)
        arrays: dict[str, np.ndarray] = {}
        for domain in domains:
            here = self.data[domain]
            values, problem = taken(id, answer(here) if callable(answer) else answer, here)
            if problem is not None:
                return _failure(
                    problem.reason, dict(problem.facts) | ({"domain": domain} if domain == "hidden" else {})
                )
            for name, value in values.items():
                key = f"{domain}/{name}"
                if callable(value):
                    self.functions[key] = value
                else:
                    arrays[key] = value.numpy() if isinstance(value, torch.Tensor) else np.array(value)
        return pack({"domains": domains, "functions": list(self.functions)}, arrays)

    def call(self, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
        """Call a function of the answer with arrays in order; what it returns, as float64."""
        inputs = [torch.from_numpy(arrays[str(k)].copy()) for k in range(len(arrays))]
        value = self.functions[request["name"]](*inputs)
        if value is None:
            return pack({"nothing": True})
        tensor = tensor_of(value)
        if tensor is None:
            facts = {"name": request["name"].split("/")[1], "wanted": "an array", "got": type(value).__name__}
            return _failure("NOTNUMBERS", facts)
        return pack({}, {"value": tensor.numpy()})

    def handle(self, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
        """The reply to one request. Whatever the answer raises, exits included, becomes a reason and its own line."""
        # The learner's program may raise anything at all, and the workbook is to say what: nothing may pass by.
        try:
            return self.solve(request["id"]) if request["do"] == "solve" else self.call(request, arrays)
        except BaseException as error:  # noqa: BLE001
            return _failure(*_explained(error, self.path))


def _read(path: str, names: tuple[str, ...]) -> Mapping[str, Any] | Callable[[Given], Any]:
    """The answer in a file: its `solve`, else the arrays called as the exercise calls them."""
    suffix = Path(path).suffix
    if suffix == ".json":
        return json.loads(Path(path).read_text(encoding="utf-8"))
    if suffix == ".npz":
        try:
            with np.load(path) as archive:
                return {name: archive[name] for name in archive.files}
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError("it is not an .npz archive of plain arrays") from error
    sys.path.append(str(Path(path).parent))  # last, so that no file beside the answer hides a library
    found = runpy.run_path(path, run_name="answer")
    if callable(found.get("solve")):
        return found["solve"]
    return {name: found[name] for name in names if name in found}


def _failure(reason: str, facts: Mapping[str, Any]) -> bytes:
    return pack({"reason": reason, "facts": facts})


def _explained(error: BaseException, path: str) -> tuple[str, dict[str, Any]]:
    """Reason code and facts of what an answer raised, with the last of its own lines that was running."""
    facts: dict[str, Any] = {"file": Path(path).name, "error": _named(error)}
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        text = (error.text or "").strip()
        return "SYNTAX", facts | {"error": error.msg, "line": error.lineno, "code": text}
    line = _own_line(error.__traceback__, path)
    if line:
        facts |= {"line": line, "code": linecache.getline(path, line).strip()}
    if isinstance(error, SystemExit):
        return "EXIT", facts | {"error": f"exit code {error.code}"}
    if isinstance(error, MemoryError) or any(words in facts["error"] for words in _NO_ROOM):
        return "MEMORY", facts
    return ("ERROR" if line else "ERROR_ELSEWHERE"), facts


def _named(error: BaseException) -> str:
    # str() of somebody's own exception may itself fail.
    try:
        text = " ".join(str(error).split()).rstrip(".")
    except BaseException:  # noqa: BLE001
        text = ""
    name = type(error).__name__
    return f"{name}: {text[:300]}" if text else name


def _own_line(trace: TracebackType | None, path: str) -> int:
    """The innermost line of the answer file in a traceback, 0 when there is none."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _leave(code: int = 0) -> NoReturn:
    """In place of os._exit, which would end the process without saying where."""
    raise SystemExit(code)


def limit_memory(more: int) -> None:
    """Let the process have at most `more` bytes of address space beyond what it has. Nothing where there are no limits."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def serve(requests: BinaryIO, replies: BinaryIO, last_words: int) -> None:
    """Answer frame after frame until the other side closes; the watchdog writes to the descriptor `last_words`."""
    child = Child()
    replies.write(pack({"ready": True}))
    replies.flush()
    while True:
        try:
            request, arrays = unpack(requests.read)
        except EOFError:
            return
        child.prepare(request)
        faulthandler.dump_traceback_later(request["seconds"], exit=True, file=last_words)
        reply = child.handle(request, arrays)
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.flush()
        replies.write(reply)
        replies.flush()


def main() -> None:
    """Keep the two pipes to the workbook for frames, give the answer an empty stdin and stderr for its prints."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    most, last_words = map(int, sys.argv[1:3])
    faulthandler.enable(last_words)
    os._exit = _leave  # pyright: ignore[reportPrivateUsage]
    limit_memory(most)
    serve(requests, replies, last_words)


if __name__ == "__main__":
    main()
