"""What a learner's own code raised: a reason and facts for a verdict, with the line of theirs that was running."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

_NO_ROOM = ("can't allocate memory", "not enough memory", "Cannot allocate memory")


class AnswerFailed(Exception):
    """An answer gave no arrays: `reason` and `facts` of the verdict on it."""

    def __init__(self, reason: str, facts: Mapping[str, Any]) -> None:
        super().__init__(f"{reason}: {dict(facts)}")
        self.reason = reason
        self.facts = dict(facts)


def guarded(function: Callable[..., Any], **facts: object) -> Callable[..., Any]:
    """The function, whose exceptions become AnswerFailed (with more facts, if any). Ctrl-C and exits pass.

    >>> guarded(lambda x: 1 / x)(2)
    0.5
    """
    code = getattr(function, "__code__", None)
    path = code.co_filename if code is not None else str(getattr(function, "__name__", type(function).__name__))

    def call(*inputs: Any) -> Any:
        # The learner's program may raise anything at all, and the verdict is to say what.
        try:
            return function(*inputs)
        except AnswerFailed:
            raise
        except Exception as error:
            reason, said = explained(error, path)
            raise AnswerFailed(reason, said | facts) from error

    return call


def explained(error: BaseException, path: str) -> tuple[str, dict[str, Any]]:
    """Reason code and facts of what the file at `path` raised: EXIT, MEMORY, SYNTAX, ERROR, ERROR_ELSEWHERE.

    >>> explained(ValueError("odd"), "2c.py")
    ('ERROR_ELSEWHERE', {'file': '2c.py', 'error': 'ValueError: odd'})
    """
    facts: dict[str, Any] = {"file": Path(path).name, "error": _named(error)}
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        return "SYNTAX", facts | {"error": error.msg, "line": error.lineno, "code": (error.text or "").strip()}
    line = _own_line(error.__traceback__, path)
    if line:
        facts["line"] = line
        text = linecache.getline(path, line).strip()
        facts |= {"code": text} if text else {}  # what was typed at a prompt has no lines to be found
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
    """The innermost line of the answer's file in a traceback, 0 when there is none."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
