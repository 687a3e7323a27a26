from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from headway.errors import FileProblem, TextProblem, UsageError
from headway.sources.trained.corpus import SPLITS, Corpus, read_corpus, standard_library
from support.unchecked import as_users_run_it


def corpus(n: int) -> Corpus:
    return Corpus(tuple((f"file-{i}.txt", f"text {i}") for i in range(n)), "made up", "none")


def test_the_hash_names_exactly_this_corpus():
    one = corpus(5)
    assert one.hash == corpus(5).hash and len(one.hash) == 16
    assert Corpus(one.files, "another description", "another licence").hash == one.hash
    renamed = (("other.txt", one.files[0][1]), *one.files[1:])
    rewritten = ((one.files[0][0], "text 0!"), *one.files[1:])
    assert len({one.hash, *(Corpus(f, "", "").hash for f in (renamed, rewritten, one.files[:4]))}) == 4


@pytest.mark.parametrize("n", [3, 19, 20, 200, 2000])
def test_every_file_is_in_one_split(n: int):
    whole = corpus(n)
    parts = [whole.split(part) for part in SPLITS]
    assert sorted(f for part in parts for f in part) == sorted(whole.files)
    assert all(parts), "none is empty"
    if n >= 20:
        assert 0.8 < len(parts[0]) / n < 0.96


def test_a_file_keeps_its_split_when_others_come_and_go():
    kept = [f for f in corpus(400).split("heldout") if int(f[0][5:-4]) < 200]
    assert kept == list(corpus(200).split("heldout"))


def test_reading_folders_and_files_in_the_order_of_names(tmp_path: Path):
    for name, text in (
        ("b.txt", "bee"),
        ("sub/a.txt", "ay é"),
        ("c.md", "sea"),
        (".hidden", "no"),
        ("empty.txt", " \n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_corpus([tmp_path], licence="CC0")
    assert [Path(n).name for n, _ in found.files] == ["b.txt", "c.md", "a.txt"]
    assert [t for _, t in found.files] == ["bee", "sea", "ay é"] and found.licence == "CC0"
    assert found.hash == read_corpus([str(tmp_path)]).hash


def test_a_single_file_is_cut_at_lines_and_nothing_is_lost(tmp_path: Path):
    text = "".join(f"line {i}\n" for i in range(137))
    (tmp_path / "one.txt").write_text(text)
    found = read_corpus([tmp_path / "one.txt"])
    assert len(found.files) == 20 and "".join(t for _, t in found.files) == text
    assert all(t.endswith("\n") for _, t in found.files)
    assert [n for n, _ in found.files] == sorted(n for n, _ in found.files)
    assert sum(len(found.split(part)) for part in SPLITS) == 20


def test_bad_input(tmp_path: Path):
    with pytest.raises(FileProblem, match=r"nowhere.txt: no such file or folder"):
        read_corpus([tmp_path / "nowhere.txt"])
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(TextProblem, match=r"latin.txt: not UTF-8"):
        read_corpus([tmp_path / "latin.txt"])
    (tmp_path / "empty.txt").write_text("  \n")
    with pytest.raises(TextProblem, match="at least one non-empty file"):
        read_corpus([tmp_path / "empty.txt"])
    (tmp_path / "folder").mkdir()
    with pytest.raises(TextProblem, match="no text"):
        read_corpus([tmp_path / "folder"])


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.txt").write_text("x")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(FileProblem, match=r"a.txt: cannot be read; got Permission denied"):
        read_corpus([tmp_path / "a.txt"])


def test_the_standard_library_leaves_out_tests_and_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wanted = {"ast.py": "a = 1", "json/decoder.py": "b = 2", "json/__init__.py": ""}
    others = {
        "test/test_ast.py": "x",
        "json/tests/t.py": "x",
        "site-packages/torch.py": "x",
        "__pycache__/a.py": "x",
        "readme.txt": "x",
    }
    for name, text in {**wanted, **others}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "old.py").write_bytes(b"# \xe9")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    found = standard_library()
    assert dict(found.files) == wanted, "what is not UTF-8 is left out too"
    assert [n for n, _ in found.files] == sorted(wanted)
    assert found.licence == "PSF-2.0" and found.description.startswith("Python 3.")


def test_a_device_or_pipe_is_no_text(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (Path(os.devnull), tmp_path / "pipe"):
        with pytest.raises(FileProblem, match=r"not a file of text.*got a device or pipe"):
            read_corpus([path])
    (tmp_path / "a.txt").write_text("words in a file")
    assert [name for name, _ in read_corpus([tmp_path]).files], "a pipe inside a folder is passed over"


def folder_of(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_a_file_given_twice_counts_once_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = folder_of(tmp_path / "a", **{"x.txt": "one\n", "y.txt": "two\n", "z/x.txt": "three\n"})
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    alone = read_corpus(folder)
    for paths in (["a", folder], ["link", "a/x.txt"], ["a/../a", "./a", folder / "y.txt"]):
        assert read_corpus(paths).files == alone.files, paths
    assert [name for name, _ in alone.files] == ["x.txt", "y.txt", "z/x.txt"]


def test_names_do_not_depend_on_where_a_folder_lies(tmp_path: Path):
    texts = {"x.txt": "one\n", "y.txt": "two\n", "z/x.txt": "three\n"}
    here, there = (read_corpus(folder_of(tmp_path / at, **texts)) for at in ("a/texts", "elsewhere/deep/texts"))
    assert here.files == there.files


def test_names_of_two_folders_are_told_apart(tmp_path: Path):
    one, two = (folder_of(tmp_path / at / "src", **{"x.txt": at, "y.txt": "y"}) for at in ("one", "two"))
    names = [name for name, _ in read_corpus([one, two]).files]
    assert names == ["one/src/x.txt", "one/src/y.txt", "two/src/x.txt", "two/src/y.txt"]


@pytest.mark.parametrize("paths", [3, [None], ["a\0b"]])
def test_what_is_no_path_is_a_usage_error(paths: Any):
    with as_users_run_it(), pytest.raises(UsageError):
        read_corpus(paths)
