"""Every page's code runs: python blocks as one script a page, console commands in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.documents import PageProblem, blocks, commands, run_command, run_page_apart
from support.repository import ROOT

PAGES = sorted(path for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if path.is_file())
RUN = ("python", "console")


def has_code(path: Path) -> bool:
    return any(block.info in RUN for block in blocks(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [p for p in PAGES if has_code(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path):
    done = run_page_apart(page, tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_blocks_are_tagged_so_that_none_escapes(page: Path):
    known = {*RUN, "console no-run", "text", "toml", "json", "mermaid", "bibtex"}
    found = {block.info for block in blocks(page.read_text(encoding="utf-8"))}
    assert found <= known


def write(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return path


def test_names_and_files_persist_down_a_page(tmp_path: Path):
    page = write(tmp_path, "```python\nx = 3\n```\n\n- item\n\n  ```python\n  open('made', 'w').write(str(x))\n  ```\n")
    done = run_page_apart(page, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "made").read_text() == "3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n```python\nx = 1\nassert x == 2\n```\n", 'page.md", line 5'),
        ("```python\nimport socket\nsocket.getaddrinfo('example.org', 80)\n```\n", "may not reach the network"),
        ("```console\n$ headway no-such-command\n```\n", "page.md:2: 'headway no-such-command' exited with"),
        ("```console\n$ scripts/no-such-script\n```\n", "does not exist"),
        ("```console\n$ curl example.org\n```\n", "no-run"),
        ("```python\nx = 1\n", "not closed"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "page.md:6: the page shows '2', the code prints '1'"),
        ("```python\nprint(1)\n```\n\n```text\n1\n2\n```\n", "page.md:7: the page shows '2', the code prints None"),
    ],
    ids=["python", "network", "command", "script", "other", "open", "output", "more output"],
)
def test_a_failing_page_is_caught(tmp_path: Path, text: str, message: str):
    done = run_page_apart(write(tmp_path, text), tmp_path)
    assert done.returncode != 0
    assert message in done.stderr


def test_blocks_marked_no_run_are_left_alone(tmp_path: Path):
    done = run_page_apart(
        write(tmp_path, "```console no-run\n$ curl example.org\n```\n```text\n$ what\n```\n"), tmp_path
    )
    assert done.returncode == 0, done.stderr


def test_a_pipe_is_not_run_as_arguments():
    with pytest.raises(PageProblem, match="no-run"):
        run_command("headway heads zoo:two-layer --json | head")


def test_commands_are_found_with_their_lines():
    (block,) = blocks("text\n\n```console\n$ headway a \\\n  --b\noutput\n$ scripts/test\n```\n")
    assert commands(block) == [(4, "headway a --b"), (7, "scripts/test")]
