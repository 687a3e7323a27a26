"""A file reads in one sitting: 500 lines, functions of 60, classes of 15 public methods, 6 parameters."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from support.repository import library_files, parse, python_files, shown

FILE_LINES = 500
FUNCTION_LINES = 60
CLASS_METHODS = 15
PARAMETERS = 6

type_of_function = (ast.FunctionDef, ast.AsyncFunctionDef)


def too_long(path: Path) -> list[str]:
    """A row when the file has more than FILE_LINES lines."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    return [f"{shown(path)}: {lines} lines, at most {FILE_LINES}"] if lines > FILE_LINES else []


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters of every kind, keyword-only and starred ones too; `self` and `cls` do not count."""
    spec = function.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    names += [arg.arg for arg in (spec.vararg, spec.kwarg) if arg]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def public_methods(class_: ast.ClassDef) -> set[str]:
    """Names of methods and properties without a leading underscore. Overloads and setters share a name."""
    return {node.name for node in class_.body if isinstance(node, type_of_function) and not node.name.startswith("_")}


def too_big(path: Path) -> list[str]:
    """A row for every function or class of the file that is over a limit."""
    rows: list[str] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, type_of_function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                rows.append(f"{shown(path)}:{node.lineno} {node.name}: {lines} lines, at most {FUNCTION_LINES}")
            if (count := parameters(node)) > PARAMETERS:
                rows.append(f"{shown(path)}:{node.lineno} {node.name}: {count} parameters, at most {PARAMETERS}")
        elif isinstance(node, ast.ClassDef) and (count := len(public_methods(node))) > CLASS_METHODS:
            rows.append(f"{shown(path)}:{node.lineno} {node.name}: {count} public methods, at most {CLASS_METHODS}")
    return rows


def test_files_read_in_one_sitting():
    assert [row for path in python_files() for row in too_long(path)] == []


def test_functions_and_classes_are_small():
    assert [row for path in library_files() for row in too_big(path)] == []


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "made_up.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_long_file_is_caught(tmp_path: Path):
    assert too_long(write(tmp_path, "x = 1\n" * FILE_LINES)) == []
    assert "501 lines" in too_long(write(tmp_path, "x = 1\n" * (FILE_LINES + 1)))[0]


def test_a_long_function_is_caught(tmp_path: Path):
    body = "    x = 1\n"
    assert too_big(write(tmp_path, "def f():\n" + body * (FUNCTION_LINES - 1))) == []
    assert "f: 61 lines" in too_big(write(tmp_path, "async def f():\n" + body * FUNCTION_LINES))[0]


@pytest.mark.parametrize(
    ("signature", "count"),
    [
        ("self, a, b, c, d, e, f", 6),
        ("a, /, b, *, c, d, e, f, g", 7),
        ("a, b, c, d, e, *args, **options", 7),
        ("cls, a, *, b", 2),
    ],
)
def test_every_kind_of_parameter_counts(tmp_path: Path, signature: str, count: int):
    rows = too_big(write(tmp_path, f"def f({signature}):\n    return 1\n"))
    assert [f"{count} parameters" in row for row in rows] == ([True] if count > PARAMETERS else [])


def test_a_class_of_many_methods_is_caught(tmp_path: Path):
    public = "".join(f"    def m{i}(self):\n        return {i}\n" for i in range(CLASS_METHODS))
    quiet = "    field: int = 1\n    def __len__(self):\n        return 0\n    def _own(self):\n        return 0\n"
    assert too_big(write(tmp_path, "class C:\n" + quiet + public)) == []
    more = "    @property\n    def one_more(self):\n        return 1\n"
    assert "C: 16 public methods" in too_big(write(tmp_path, "class C:\n" + public + more))[0]
