"""Answer files in their own process: whatever they do, there is a verdict, soon, and nothing is left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headway.errors import UnknownName, UsageError
from headway.exercises.catalogue import exercise
from headway.exercises.verdict import Verdict
from headway.exercises.workbook.runner import AnswerFailed, AnswerProcess, Checked, Limits, check_file

SOON = Limits(seconds=1.0, gigabytes=0.5)
PREVIOUS = """
import torch

def solve(given):
    print("n is", given.n)
    rows = torch.stack((given.u_cos[0], given.u_sin[0], given.u_cos[1], given.u_sin[1]))
    turns = []
    for a in given.alpha[:2]:
        turns.append(torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]], dtype=torch.float64))
    return {"W_Q": torch.block_diag(*turns) @ rows, "W_K": rows}
"""


def check(folder: Path, text: str, id: str = "2c", limits: Limits = SOON) -> Checked:
    path = folder / f"{id}.py"
    path.write_text(text)
    return check_file(id, path, limits=limits)


def test_a_right_answer_passes_and_its_prints_are_kept(tmp_path: Path) -> None:
    checked = check(tmp_path, PREVIOUS, limits=Limits())
    assert checked.verdict.passed and checked.verdict.sharpness is not None
    assert checked.printed.splitlines() == ["n is 12", "n is 24"]
    assert [path.name for path in tmp_path.iterdir()] == ["2c.py"]


def test_a_wrong_answer_has_reason_counterexample_and_picture(tmp_path: Path) -> None:
    verdict = check(tmp_path, PREVIOUS.replace("a.sin()], [-a.sin()", "-a.sin()], [a.sin()"), limits=Limits()).verdict
    assert not verdict.passed and verdict.reason == "SIGN"
    assert verdict.counterexample is not None and verdict.picture is not None


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("def solve(given):\n    while True:\n        pass\n", "SLOW", None),
        ("import time\ntry:\n    time.sleep(99)\nexcept BaseException:\n    pass\n", "SLOW", 3),
        ("import ctypes\nctypes.string_at(0)\n", "DIED", 2),
        ("import os\nos.kill(os.getpid(), 9)\n", "DIED", None),
        ("import os\nos._exit(0)\n", "EXIT", 2),
        ("import torch\nx = torch.zeros(2**29)\n", "MEMORY", 2),
    ],
    ids=["loop", "stubborn", "crash", "killed", "left", "memory"],
)
def test_whatever_a_file_does_there_is_a_verdict(tmp_path: Path, text: str, reason: str, line: int | None) -> None:
    verdict = check(tmp_path, text).verdict
    assert (verdict.passed, verdict.reason) == (False, reason)
    assert line is None or verdict.facts["line"] == line
    assert "2c.py" in verdict.message and "2c.py" in verdict.text("zh")


def test_a_flood_of_prints_is_cut_and_comes_to_an_end(tmp_path: Path) -> None:
    checked = check(tmp_path, "while True:\n    print('x' * 1000)\n")
    assert checked.verdict.reason == "SLOW" and len(checked.printed) < 40_000


def test_what_an_answer_started_ends_with_it(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    text = (
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])\n"
        f"pathlib.Path({str(started)!r}).write_text(str(child.pid))\n"
    )
    assert check(tmp_path, text, limits=Limits()).verdict.reason == "MISSING"
    pid = int(started.read_text())
    late = time.monotonic() + 5
    while _runs(pid) and time.monotonic() < late:
        time.sleep(0.05)
    assert not _runs(pid)


def test_a_function_answer_is_called_where_it_lives(tmp_path: Path) -> None:
    path = tmp_path / "w5.py"
    path.write_text(
        "def head(W_QK, W_OV, x):\n    if len(x) > 3:\n        return x @ W_OV.T\n"
        "    if len(x) == 1:\n        return None\n"
        "    return 'text' if len(x) == 2 else 1 / 0\n"
    )
    import torch

    with AnswerProcess(Limits()) as process:
        head = process.solve("w5", path)["visible"]["head"]
        square, x = torch.eye(5, dtype=torch.float64) * 2, torch.arange(20.0, dtype=torch.float64).reshape(4, 5)
        assert torch.equal(head(square, square, x), 2 * x)
        assert head(square, square, x[:1]) is None
        with pytest.raises(AnswerFailed, match="NOTNUMBERS"):
            head(square, square, x[:2])
        with pytest.raises(AnswerFailed, match="ZeroDivisionError") as failure:
            head(square, square, x[:3])
    assert failure.value.facts["line"] == 6


def test_earlier_files_that_fail_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.exercises import checking

    seen: dict[str, object] = {}

    def grade(id: str, own: object, *, earlier: dict[str, object], lang: str) -> Verdict:
        seen.update(earlier)
        return Verdict(id, True, "PASSED", lang=lang)

    monkeypatch.setattr(checking, "grade", grade)
    files = {"2d": "W_Q = W_K = [[1.0] * 32]\n", "2e": "raise OSError\n", "2f": "W_Q = W_K = [[1.0] * 32]\n"}
    for id, text in files.items():
        (tmp_path / f"{id}.py").write_text(text)
    earlier = {part: tmp_path / f"{part}.py" for part in exercise("2f").requires}
    assert check_file("2f", tmp_path / "2f.py", earlier=earlier).verdict.passed
    assert list(seen) == ["2d"]


def test_a_wrong_call_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such answer file"):
        check_file("2c", tmp_path / "2c.py")
    (tmp_path / "2c.txt").write_text("")
    with pytest.raises(UsageError, match=r"\.py or \.json or \.npz"):
        check_file("2c", tmp_path / "2c.txt")
    (tmp_path / "2g.py").write_text("")
    with pytest.raises(UnknownName, match="2g"):
        check_file("2g", tmp_path / "2g.py")


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1][0]
    except FileNotFoundError:
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return not Path("/proc/self").exists()
    return state != "Z"
