"""The process in which an answer file runs: `python -m headway.exercises.workbook.child MEMORY DESCRIPTOR`.

It takes frames (`frames`) on stdin and answers on stdout. The answer's own stdout goes where its stderr goes, its stdin is
empty, its memory is limited, and a watchdog writes where it was before ending it. Only arrays and plain facts leave.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from zipfile import BadZipFile

import numpy as np
import torch

from headway.exercises.answer import kind_of, taken, tensor_of
from headway.exercises.catalogue import exercise
from headway.exercises.givens import Given, given
from headway.exercises.raised import AnswerFailed, explained
from headway.exercises.workbook.frames import pack, unpack


class Child:
    """Answers requests about answer files, and keeps the functions they gave for later calls."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}
        self.data: dict[str, Given] = {}
        self.path = ""
        self.domain = "visible"  # which data the answer is being computed from

    def prepare(self, request: Mapping[str, Any]) -> None:
        """Before the answer's time runs: the data it is to be computed from."""
        if request["do"] == "solve":
            id, self.path = request["id"], request["path"]
            self.functions, self.domain = {}, "visible"
            self.data = {"visible": given(id), "hidden": given(id, hidden=True)}

    def solve(self, id: str) -> bytes:
        """Run a file and take in its answer on the visible data, and on the hidden data where it is a function."""
        answer = _read(self.path, tuple(exercise(id).answers))
        domains = ("visible", "hidden") if callable(answer) else ("visible",)
        arrays: dict[str, np.ndarray] = {}
        for domain in domains:
            self.domain, here = domain, self.data[domain]
            values, problem = taken(id, answer(here) if callable(answer) else answer, here)
            if problem is not None:
                return _failure(problem.reason, problem.facts, domain=domain)
            for name, value in values.items():
                key = f"{domain}/{name}"
                if callable(value):
                    self.functions[key] = value
                else:
                    arrays[key] = value.numpy() if isinstance(value, torch.Tensor) else np.array(value)
        return pack({"domains": domains, "functions": list(self.functions)}, arrays)

    def call(self, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
        """Call a function of the answer with arrays in order; what it returns, as float64."""
        self.domain = request["name"].split("/")[0]
        inputs = [torch.from_numpy(arrays[str(k)].copy()) for k in range(len(arrays))]
        value = self.functions[request["name"]](*inputs)
        if value is None:
            return pack({"nothing": True})
        tensor = tensor_of(value)
        if tensor is None:
            facts = {"name": f"what {request['name'].split('/')[1]} returns", "wanted": "an array of real numbers"}
            return _failure("NOTNUMBERS", facts | {"got": kind_of(value)}, domain=self.domain)
        return pack({}, {"value": tensor.numpy()})

    def handle(self, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
        """The reply to one request. Whatever the answer raises, exits included, becomes a reason and its own line."""
        # The learner's program may raise anything at all, and the workbook is to say what: nothing may pass by.
        try:
            return self.solve(request["id"]) if request["do"] == "solve" else self.call(request, arrays)
        except AnswerFailed as problem:
            return _failure(problem.reason, problem.facts)
        except BaseException as error:  # noqa: BLE001
            return _failure(*explained(error, self.path), domain=self.domain)


def _read(path: str, names: tuple[str, ...]) -> Mapping[str, Any] | Callable[[Given], Any]:
    """The answer in a file: its `solve`, else the arrays called as the exercise calls them."""
    file = Path(path)
    if file.suffix == ".json":
        return _read_json(file)
    if file.suffix == ".npz":
        try:
            # Opened here: np.load leaves a broken archive open.
            with file.open("rb") as opened, np.load(opened) as archive:
                return {name: archive[name] for name in archive.files}
        except (ValueError, AttributeError, TypeError, OSError, EOFError, BadZipFile) as error:
            facts = {"file": file.name, "kind": "an .npz archive of plain arrays"}
            raise AnswerFailed("UNREADABLE", facts) from error
    sys.path.append(str(file.parent))  # last, so that no file beside the answer hides a library
    found = runpy.run_path(path, run_name="answer")
    if callable(found.get("solve")):
        return found["solve"]
    return {name: found[name] for name in names if name in found}


def _read_json(file: Path) -> Any:
    facts: dict[str, Any] = {"file": file.name, "kind": "JSON"}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        code = error.doc.split("\n")[error.lineno - 1].strip()[:80]
        where = {"line": error.lineno, "code": code} if code else {}
        raise AnswerFailed("UNREADABLE", facts | {"error": error.msg} | where) from error
    except UnicodeDecodeError as error:
        raise AnswerFailed("UNREADABLE", facts | {"error": "it is not text in UTF-8"}) from error


def _failure(reason: str, facts: Mapping[str, Any], *, domain: str = "visible") -> bytes:
    return pack({"reason": reason, "facts": {**facts, **({"domain": domain} if domain == "hidden" else {})}})


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
