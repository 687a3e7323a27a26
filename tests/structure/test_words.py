"""Habits the project does without: unfinished marks, silent tests, printing libraries, pickles, private paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.repository import PACKAGE, ROOT, library_files, parse, python_files, shown

# Spelled in pieces, so that this file may be searched like any other.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b|NotImplemented" + r"Error")
UNRUN = re.compile(r"\b(skip|xfail|skipif|import" + r"orskip)\b\(|mark\.(skip|xfail)|pragma: no" + r" cover")
PRIVATE_PATH = re.compile(r"(?<![\w.:/])/(home|Users|root)/\w")
UNSAFE_ROOTS = {"pickle", "dill", "marshal", "shelve", "eval", "exec"}
UNSAFE_CALLS = {"torch.load", "torch.save", "allow_pickle="}
TEXT_SUFFIXES = {"", ".cfg", ".css", ".html", ".j2", ".js", ".md", ".py", ".sh", ".toml", ".ts", ".txt", ".yml"}


def text_files() -> list[Path]:
    """Files of the project that people write."""
    folders = [ROOT / name for name in ("src", "tests", "docs", "scripts", "benchmarks", "web", ".ci")]
    found = [path for folder in folders for path in folder.rglob("*")] + list(ROOT.glob("*"))
    return sorted(
        path
        for path in found
        if path.is_file() and path.suffix in TEXT_SUFFIXES and not {"__pycache__", "node_modules"} & set(path.parts)
    )


def lines_with(pattern: re.Pattern[str], path: Path) -> list[str]:
    """A row for each line of a file that matches."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [f"{shown(path)}:{i} {line.strip()}" for i, line in enumerate(lines, 1) if pattern.search(line)]


def dotted(node: ast.expr) -> str:
    """`torch.load` for the expression that says so, "" for anything that is not a dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def unsafe_code(path: Path) -> list[str]:
    """A row for each way a file could run code that it was given: pickles, torch.load, eval and exec."""
    rows: list[str] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            names = [dotted(node.func)] + [f"{keyword.arg}=" for keyword in node.keywords]
        else:
            continue
        bad = (name for name in names if name.split(".")[0] in UNSAFE_ROOTS or name in UNSAFE_CALLS)
        rows += [f"{shown(path)}:{node.lineno} {name}" for name in bad]
    return rows


def prints(path: Path) -> list[str]:
    """A row for each call of print."""
    calls = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    return [f"{shown(path)}:{node.lineno} print" for node in calls if dotted(node.func) == "print"]


def empty_bodies(path: Path) -> list[str]:
    """A row for each function whose body is only a docstring, `pass` or `...`; protocols and overloads may be empty."""
    rows: list[str] = []
    tree = parse(path)
    protocols = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and "Protocol" in map(dotted, n.bases)]
    allowed = {id(method) for class_ in protocols for method in class_.body}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or id(node) in allowed:
            continue
        if any(re.search(r"abstractmethod|overload", ast.dump(decorator)) for decorator in node.decorator_list):
            continue
        body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
        if all(isinstance(n, ast.Pass) for n in body):
            rows.append(f"{shown(path)}:{node.lineno} {node.name}: empty body")
    return rows


def silent_tests(path: Path) -> list[str]:
    """A row for each test that neither asserts nor calls something named for checking."""
    rows: list[str] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            calls = (dotted(n.func) for n in ast.walk(node) if isinstance(n, ast.Call))
            checks = any(re.search(r"assert|raises|check|expect|verify", call) for call in calls)
            if not checks and not any(isinstance(n, ast.Assert) for n in ast.walk(node)):
                rows.append(f"{shown(path)}:{node.lineno} {node.name}")
    return rows


@pytest.mark.parametrize("pattern", [UNFINISHED, UNRUN, PRIVATE_PATH], ids=["unfinished", "unrun", "private-path"])
def test_no_file_has_the_words(pattern: re.Pattern[str]):
    paths = python_files() if pattern is UNRUN else text_files()
    assert [row for path in paths for row in lines_with(pattern, path)] == []


def test_nothing_runs_code_it_was_given():
    assert [row for path in library_files() for row in unsafe_code(path)] == []


def test_only_the_apps_print():
    assert [row for path in library_files() if not path.is_relative_to(PACKAGE / "apps") for row in prints(path)] == []


def test_no_function_is_empty():
    assert [row for path in library_files() for row in empty_bodies(path)] == []


def test_every_test_asserts():
    assert [row for path in sorted((ROOT / "tests").rglob("test_*.py")) for row in silent_tests(path)] == []


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        (UNFINISHED, "x = 1  # TO" + "DO later", True),
        (UNFINISHED, "raise NotImplemented" + "Error", True),
        (UNFINISHED, "return NotImplemented", False),
        (UNRUN, "@pytest.mark.sk" + "ip", True),
        (UNRUN, "    pytest.sk" + "ip('no')", True),
        (UNRUN, "skip_trigrams(weights)", False),
        (PRIVATE_PATH, "open('/ho" + "me/ada/model')", True),
        (PRIVATE_PATH, "see /Us" + "ers/ada", True),
        (PRIVATE_PATH, "https://example.org/ho" + "me/ada", False),
    ],
)
def test_patterns_find_what_they_should(tmp_path: Path, pattern: re.Pattern[str], line: str, found: bool):
    path = tmp_path / "made_up.py"
    path.write_text(line + "\n", encoding="utf-8")
    assert bool(lines_with(pattern, path)) is found


@pytest.mark.parametrize(
    ("finder", "bad", "good"),
    [
        (unsafe_code, "import pick" + "le\n", "import json\n"),
        (unsafe_code, "from marshal import loads\n", "from json import loads\n"),
        (
            unsafe_code,
            "def f(torch, path):\n    return torch.load(path)\n",
            "def f(hw, path):\n    return hw.load(path)\n",
        ),
        (unsafe_code, "x = eval('1')\n", "def f(model):\n    model.eval()\n"),
        (unsafe_code, "def f(np):\n    np.load('a', allow_pickle=True)\n", "def f(np):\n    np.load('a')\n"),
        (prints, "print('x')\n", "def f(console):\n    console.print('x')\n"),
        (empty_bodies, "def f():\n    '''Doc.'''\n    ...\n", "class P(Protocol):\n    def f(self): ...\n"),
        (
            empty_bodies,
            "class C:\n    def f(self):\n        pass\n",
            "@overload\ndef f(): ...\ndef f():\n    return 1\n",
        ),
        (silent_tests, "def test_x():\n    run()\n", "def test_x():\n    assert_close(1, 1)\n"),
        (silent_tests, "def test_x():\n    f()\n", "def test_x():\n    with pytest.raises(E):\n        f()\n"),
    ],
)
def test_finders_find_what_they_should(tmp_path: Path, finder: Callable[[Path], list[str]], bad: str, good: str):
    for text, rows in ((bad, 1), (good, 0)):
        path = tmp_path / "made_up.py"
        path.write_text(text, encoding="utf-8")
        assert len(finder(path)) == rows, text
