"""Inside the answer's process: what a file gives, and what it is told when it gives none. (No process here.)"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.exercises.verdict import failed
from headway.exercises.workbook.child import Child
from headway.exercises.workbook.frames import unpack

HEAD = '"W_Q": given.u_cos[:1], "W_K": given.u_cos[:1]'


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def ask(path: Path, text: str | bytes, id: str = "2c") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    request = {"do": "solve", "id": id, "path": str(path)}
    child = Child()
    child.prepare(request)
    return unpack(io.BytesIO(child.handle(request, {})).read)


def told(path: Path, text: str | bytes, id: str = "2c") -> tuple[str, dict[str, Any]]:
    header, _ = ask(path, text, id)
    return header["reason"], header["facts"]


def test_a_function_answers_on_both_domains(tmp_path: Path) -> None:
    header, arrays = ask(tmp_path / "2c.py", f"def solve(given):\n    return {{{HEAD}}}\n")
    assert header == {"domains": ["visible", "hidden"], "functions": []}
    assert arrays["visible/W_Q"].shape == (1, 32) and arrays["hidden/W_Q"].shape == (1, 40)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("2c.py", "import numpy as np\nW_Q = np.ones((2, 32))\nW_K = [[1.0] * 32] * 2\nother = 'kept out'\n"),
        (
            "2c.json",
            '{"W_Q": [' + ", ".join([str([1] * 32)] * 2) + '], "W_K": [' + ", ".join([str([1] * 32)] * 2) + "]}",
        ),
    ],
)
def test_arrays_answer_on_the_visible_domain(tmp_path: Path, name: str, text: str) -> None:
    header, arrays = ask(tmp_path / name, text)
    assert header["domains"] == ["visible"]
    assert {key: array.shape for key, array in arrays.items()} == {"visible/W_Q": (2, 32), "visible/W_K": (2, 32)}


def test_an_archive_answers_too(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.savez(stream, W_Q=np.ones((4, 32)), W_K=np.ones((4, 32), dtype=np.float16))
    assert ask(tmp_path / "2c.npz", stream.getvalue())[0]["domains"] == ["visible"]


@pytest.mark.parametrize(
    ("text", "reason", "line", "says"),
    [
        ("def solve(given:\n    pass\n", "SYNTAX", 1, "never closed"),
        ("import no_such_library\n", "ERROR", 1, "No module named 'no_such_library'"),
        ("def solve(given):\n    W = u_cos\n", "ERROR", 2, "name 'u_cos' is not defined"),
        (
            "def f(x):\n    return x.nothing\n\ndef solve(given):\n    return f(given)\n",
            "ERROR",
            2,
            "gives no 'nothing'",
        ),
        ("import torch\ndef solve(g):\n    return g.u_cos @ g.u_cos\n", "ERROR", 3, "RuntimeError: mat1 and mat2"),
        ("def f():\n    return f()\nf()\n", "ERROR", 2, "RecursionError"),
        ("import sys\nsys.exit('done')\n", "EXIT", 2, "exit code done"),
        ("raise KeyboardInterrupt\n", "ERROR", 1, "KeyboardInterrupt"),
        ("raise MemoryError\n", "MEMORY", 1, "MemoryError"),
        ("class E(Exception):\n    def __str__(self):\n        raise self\nraise E\n", "ERROR", 4, "E"),
    ],
)
def test_what_a_file_raises_is_told_with_its_own_line(
    tmp_path: Path, text: str, reason: str, line: int, says: str
) -> None:
    got, facts = told(tmp_path / "mine.py", text)
    assert (got, facts["line"], facts["file"]) == (reason, line, "mine.py")
    assert says in facts["error"] and facts["code"] == text.splitlines()[line - 1].strip()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("2c.py", "def solve():\n    return {}\n", "TypeError: solve() takes 0 positional arguments"),
        ("2c.py", b"W_Q = 1\x00", "null bytes"),
    ],
)
def test_what_fails_outside_its_lines_is_told_too(tmp_path: Path, name: str, text: str | bytes, says: str) -> None:
    reason, facts = told(tmp_path / name, text)
    assert reason == "ERROR_ELSEWHERE" and says in facts["error"]


def test_a_file_that_is_not_utf8_is_no_python(tmp_path: Path) -> None:
    reason, facts = told(tmp_path / "2c.py", b"W_Q = '\xff'\n")
    assert (
        reason in ("SYNTAX", "ERROR_ELSEWHERE") and "utf-8" in facts["error"]
    )  # which of them, Python's version decides


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("2c.json", '{"W_Q":\n [1,, 2]}', "Line 2 of 2c.json is not JSON (Expecting value): [1,, 2]}"),
        ("2c.json", "", "2c.json is not JSON (Expecting value)."),
        ("2c.json", b"\xff\xfe", "2c.json is not JSON (it is not text in UTF-8)."),
        ("2c.npz", "no archive", "2c.npz is not an .npz archive of plain arrays."),
        ("2c.npz", b"PK\x03\x04", "2c.npz is not an .npz archive of plain arrays."),
        ("2c.npz", b"", "2c.npz is not an .npz archive of plain arrays."),
    ],
)
def test_a_file_of_data_that_is_none_is_told_so(tmp_path: Path, name: str, text: str | bytes, says: str) -> None:
    reason, facts = told(tmp_path / name, text)
    assert reason == "UNREADABLE" and failed("2c", reason, facts).message == says


def test_an_archive_of_objects_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.savez(stream, W_Q=np.array([{"run": "me"}], dtype=object))
    reason, facts = told(tmp_path / "2c.npz", stream.getvalue())
    assert reason == "UNREADABLE" and "plain arrays" in facts["kind"]


def test_what_a_function_of_the_answer_returns_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "w5.py").write_text("def solve(given):\n    return {'head': lambda W_QK, W_OV, x: 'no'}\n")
    request = {"do": "solve", "id": "w5", "path": str(tmp_path / "w5.py")}
    child = Child()
    child.prepare(request)
    assert unpack(io.BytesIO(child.handle(request, {})).read)[0]["functions"] == ["visible/head", "hidden/head"]
    x = {str(k): np.ones((2, 2)) for k in range(3)}
    for domain in ("visible", "hidden"):
        header = unpack(io.BytesIO(child.handle({"do": "call", "name": f"{domain}/head"}, x)).read)[0]
        assert header["reason"] == "NOTNUMBERS" and header["facts"].get("domain", "visible") == domain
        said = failed("w5", header["reason"], header["facts"]).message
        assert said.startswith("what head returns should be an array of real numbers, but is the text 'no'.")


def test_an_exception_on_the_hidden_data_says_so_too(tmp_path: Path) -> None:
    text = f"def solve(given):\n    assert given.n == 12\n    return {{{HEAD}}}\n"
    reason, facts = told(tmp_path / "2c.py", text)
    assert (reason, facts["line"], facts["domain"]) == ("ERROR", 2, "hidden")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "MISSING"),
        ("W_Q = [[1.0] * 32]\n", "MISSING"),
        ("solve = 3\n", "MISSING"),
        ("def solve(given):\n    pass\n", "UNCHANGED"),
        ("def solve(given):\n    return {'W_Q': None, 'W_K': None}\n", "UNCHANGED"),
        ("def solve(given):\n    return {'W_Q': [[1.0] * given.d_model], 'W_KK': 1}\n", "UNKNOWN"),
        ("W_Q = 'abc'\nW_K = 'abc'\n", "NOTNUMBERS"),
        ("W_Q = [[1, 2], [3]]\nW_K = W_Q\n", "NOTNUMBERS"),
        ("import torch\nW_Q = W_K = torch.ones(32, 4)\n", "SHAPE"),
        ("W_Q = W_K = [[float('inf')] * 32]\n", "NONFINITE"),
    ],
)
def test_what_is_no_answer_has_the_reason_of_the_grader(tmp_path: Path, text: str, reason: str) -> None:
    assert told(tmp_path / "2c.py", text)[0] == reason


def test_a_failure_on_the_hidden_data_says_so(tmp_path: Path) -> None:
    text = "def solve(given):\n    W = [[1.0] * 32]\n    return {'W_Q': W, 'W_K': W}\n"
    reason, facts = told(tmp_path / "2c.py", text)
    assert (reason, facts["domain"]) == ("SHAPE", "hidden")


def test_a_library_s_name_beside_the_answer_hides_no_library(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit\n")
    (tmp_path / "my_own_helper.py").write_text("def one(given):\n    return [[1.0] * given.d_model]\n")
    text = "import json, my_own_helper as h\ndef solve(given):\n    W = h.one(given)\n    return {'W_Q': W, 'W_K': W}\n"
    assert ask(tmp_path / "2c.py", text)[0]["domains"] == ["visible", "hidden"]
