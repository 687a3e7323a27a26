from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import Interrupted, NotFinite, TextProblem, UsageError, WriteProblem
from headway.model.archive import load
from headway.model.forward import logits
from headway.sources.trained import loop, run_folder
from headway.sources.trained.corpus import Corpus
from headway.sources.trained.data import bigram_counts
from headway.sources.trained.loop import Progress
from headway.sources.trained.run_folder import RunFolder
from headway.sources.trained.training import held_out_loss, train
from support.random_models import random_weights
from support.small_runs import STEPS, small_corpus, small_recipe, small_text


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One whole run, never interrupted."""
    out = tmp_path_factory.mktemp("straight") / "run"
    train(small_recipe(), out, corpus=small_corpus())
    return RunFolder(out)


def stop_at(step: int) -> Any:
    def hook(at: Progress) -> None:
        if at.step == step:
            signal.raise_signal(signal.SIGINT)

    return hook


class Killed(BaseException):
    """What a SIGKILL looks like from inside: nothing more runs."""


def kill_at(step: int) -> Any:
    def hook(at: Progress) -> None:
        if at.step == step:
            raise Killed

    return hook


def test_a_run_leaves_a_model_with_its_card(straight: RunFolder):
    weights = load(straight.model_path)
    carried, about = weights.carried, straight.about()
    assert carried is not None and weights.tokenizer is not None
    card, recipe = carried.card, small_recipe()
    assert card["recipe"] == recipe.to_dict() and card["tokens_seen"] == STEPS * 2 * 16
    assert card["corpus"]["hash"] == small_corpus().hash and card["corpus"]["licence"] == "none"
    assert set(card["losses"]) == {"training", "validation", "heldout"} and "rebuild" in card
    assert weights.config == recipe.config(bos=0) and weights.tokenizer.d_vocab == 280
    ids = straight.ids()
    assert np.array_equal(carried.heldout, ids["heldout"]) and np.array_equal(carried.validation, ids["validation"])
    assert np.array_equal(carried.bigrams, bigram_counts(ids["training"], 0, 280, 16))
    assert card["losses"]["heldout"] == pytest.approx(held_out_loss(weights, ids["heldout"]), abs=1e-4)
    assert weights.tokenizer.decode(ids["heldout"][1:]) == small_text(5)
    assert about["corpus"]["tokens"] == {n: len(a) for n, a in ids.items()}
    assert straight.snapshots() == [4, 8, 12]
    last = load(straight.snapshot_path(12))
    assert all(torch.equal(last.tensors()[n], t) for n, t in weights.tensors().items())
    log = [json.loads(line) for line in (straight.path / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log if "validation" in entry] == [4, 8, 12]


def test_the_same_recipe_and_text_give_the_same_bytes(straight: RunFolder, tmp_path: Path):
    train(small_recipe(), tmp_path / "run", corpus=small_corpus())
    assert RunFolder(tmp_path / "run").model_path.read_bytes() == straight.model_path.read_bytes()


def test_interrupted_killed_and_resumed_is_bit_for_bit_the_same(straight: RunFolder, tmp_path: Path):
    out = tmp_path / "a run"
    with pytest.raises(Interrupted) as stopped:
        train(small_recipe(), out, corpus=small_corpus(), on_progress=stop_at(5))
    assert "step 5 of 12" in str(stopped.value) and stopped.value.exit_code == 130
    assert f"headway train two-layer -o '{out}' --resume" in str(stopped.value)
    assert not RunFolder(out).model_path.exists()
    with pytest.raises(Killed):
        train(small_recipe(), out, resume=True, on_progress=kill_at(9))
    (out / ".state.safetensors.0123456789ab.tmp").write_bytes(b"half")
    steps: list[int] = []
    train(small_recipe(), out, resume=True, on_progress=lambda at: steps.append(at.step))
    assert steps == list(range(6, STEPS + 1)), "from the last checkpoint on"
    found = RunFolder(out)
    assert found.model_path.read_bytes() == straight.model_path.read_bytes()
    assert (out / "state.safetensors").read_bytes() == (straight.path / "state.safetensors").read_bytes()
    for step in (4, 8, 12):
        assert found.snapshot_path(step).read_bytes() == straight.snapshot_path(step).read_bytes()


def test_resuming_takes_recipe_and_text_from_the_run(straight: RunFolder, tmp_path: Path):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(small_recipe(), out, corpus=small_corpus(), on_progress=stop_at(2))
    other = Corpus((("x", "another text"),), "other", "other")
    found = train(small_recipe("one-layer", seed=9), out, corpus=other, resume=True)
    assert found.content_hash() == load(straight.model_path).content_hash()


def test_resuming_a_finished_run_changes_nothing(straight: RunFolder):
    before = straight.model_path.read_bytes()
    assert train(small_recipe(), straight.path, resume=True).config.n_layers == 2
    assert straight.model_path.read_bytes() == before


def test_snapshots_are_handed_over(tmp_path: Path):
    seen: dict[int, str] = {}
    recipe = small_recipe("zero-layer")
    train(recipe, tmp_path / "run", corpus=small_corpus(), on_snapshot=lambda s, w: seen.update({s: w.content_hash()}))
    assert list(seen) == [4, 8, 12] and len(set(seen.values())) == 3
    assert load(RunFolder(tmp_path / "run").snapshot_path(8)).content_hash() == seen[8]


def test_a_full_disk_leaves_the_last_checkpoint(straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(small_recipe(), out, corpus=small_corpus(), on_progress=stop_at(5))
    checkpoint = (out / "state.safetensors").read_bytes()
    real = run_folder.save_file

    def full(tensors: Any, temp: Path, metadata: Any = None) -> None:
        Path(temp).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder, "save_file", full)
    with pytest.raises(WriteProblem, match="Free some space"):
        train(small_recipe(), out, resume=True, on_progress=stop_at(7))
    assert (out / "state.safetensors").read_bytes() == checkpoint and not list(out.glob(".*.tmp"))
    monkeypatch.setattr(run_folder, "save_file", real)
    train(small_recipe(), out, resume=True)
    assert RunFolder(out).model_path.read_bytes() == straight.model_path.read_bytes()


def test_a_rate_that_explodes_is_named_and_no_model_is_left(tmp_path: Path):
    with pytest.raises(NotFinite, match=r"Start a new run with a rate below 1e\+38"):
        train(small_recipe(rate=1e38), tmp_path / "run", corpus=small_corpus())
    assert not RunFolder(tmp_path / "run").model_path.exists()


def test_a_folder_with_other_files_is_refused_before_the_text_is_read(tmp_path: Path):
    (tmp_path / "thesis.tex").touch()

    class Untouched(Corpus):
        def split(self, part: str) -> Any:
            raise AssertionError(f"read {part} first")

    for resume in (False, True):
        with pytest.raises(UsageError, match="not empty"):
            train(small_recipe(), tmp_path, corpus=Untouched((), "", ""), resume=resume)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_text_that_is_too_short_leaves_no_run(tmp_path: Path):
    few = Corpus(tuple((f"{i}", small_text(i, 5)) for i in range(3)), "", "")
    with pytest.raises(TextProblem, match="too little text"):
        train(small_recipe(), tmp_path / "run", corpus=few)
    with pytest.raises(TextProblem, match="n_ctx=2000"):
        train(small_recipe(n_ctx=2000), tmp_path / "run", corpus=small_corpus(4))
    short = Corpus((*small_corpus().files[:4], ("v", "the cat"), ("h", small_text(8))), "", "")
    with pytest.raises(TextProblem, match="validation text too short; expected at least n_ctx=16"):
        train(small_recipe(), tmp_path / "run", corpus=short)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("bos", [0, None])
def test_held_out_loss_by_hand(bos: int | None):
    """Windows of n_ctx = 16 tokens tile the ids, each behind its own BOS; a rest shorter than a window is left out."""
    weights = random_weights(bos=bos, dtype=torch.float32)
    ids = np.random.default_rng(1).integers(0, 13, 16 * 5 + 7)
    total: list[float] = []
    for start in range(0, 80, 16):
        window = ids[start : start + 16].tolist()
        row = [bos, *window[:-1]] if bos is not None else window[:-1]
        log_p = logits(weights, torch.tensor([row])).log_softmax(-1)[0]
        wanted = window if bos is not None else window[1:]
        total += [-float(log_p[i, t]) for i, t in enumerate(wanted)]
    assert held_out_loss(weights, ids) == pytest.approx(sum(total) / len(total), rel=1e-5)
    assert held_out_loss(weights, ids, windows=99) == held_out_loss(weights, ids)
    assert held_out_loss(weights, ids, windows=2) != held_out_loss(weights, ids)
    with pytest.raises(TextProblem, match="n_ctx=16"):
        held_out_loss(weights, ids[:15])


@pytest.mark.parametrize("lost", ["the folder", "its files"])
def test_a_run_that_lost_its_snapshots_goes_on(straight: RunFolder, tmp_path: Path, lost: str):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(small_recipe(), out, corpus=small_corpus(), on_progress=stop_at(5))
    shutil.rmtree(out / "snapshots")
    if lost == "its files":
        (out / "snapshots").mkdir()
    train(small_recipe(), out, resume=True)
    assert RunFolder(out).snapshots() == [8, 12]
    assert RunFolder(out).model_path.read_bytes() == straight.model_path.read_bytes()


def test_a_run_killed_before_its_first_checkpoint_begins_again(straight: RunFolder, tmp_path: Path):
    out = tmp_path / "run"
    with pytest.raises(Killed):
        train(small_recipe(), out, corpus=small_corpus(), on_progress=kill_at(2))
    assert RunFolder(out).exists and not (out / "state.safetensors").exists()
    train(small_recipe(), out, resume=True)
    assert RunFolder(out).model_path.read_bytes() == straight.model_path.read_bytes()


def test_a_loss_that_becomes_nan_leaves_the_last_checkpoint(
    straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(small_recipe(), out, corpus=small_corpus(), on_progress=stop_at(5))
    checkpoint = (out / "state.safetensors").read_bytes()
    with monkeypatch.context() as poisoned:
        poisoned.setattr(loop, "next_token_loss", lambda scores, targets: scores.sum() * torch.nan)
        with pytest.raises(NotFinite, match=r"step 6: the loss is NaN.*stays as it is"):
            train(small_recipe(), out, resume=True)
    assert (out / "state.safetensors").read_bytes() == checkpoint
    train(small_recipe(), out, resume=True)
    assert RunFolder(out).model_path.read_bytes() == straight.model_path.read_bytes()


@contextmanager
def precision(dtype: torch.dtype) -> Generator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def test_a_run_goes_on_in_its_own_precision_only(straight: RunFolder, tmp_path: Path):
    out = tmp_path / "run"
    with precision(torch.float64):
        train(small_recipe(), tmp_path / "straight", corpus=small_corpus())
        with pytest.raises(Interrupted, match="--resume --dtype float64"):
            train(small_recipe(), out, corpus=small_corpus(), on_progress=stop_at(5))
    with pytest.raises(UsageError, match="expected --dtype float64, got --dtype float32"):
        train(small_recipe(), out, resume=True)
    with precision(torch.float64):
        train(small_recipe(), out, resume=True)
        with pytest.raises(UsageError, match="expected --dtype float32, got --dtype float64"):
            train(small_recipe(), straight.path, resume=True)
    whole = RunFolder(tmp_path / "straight").model_path.read_bytes()
    assert RunFolder(out).model_path.read_bytes() == whole != straight.model_path.read_bytes()


def test_ctrl_c_twice_or_while_the_model_is_measured_names_the_way_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "run"

    def twice(at: Progress) -> None:
        if at.step == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match=r"stopped at once.*Go on with: headway train two-layer"):
        train(small_recipe(), out, corpus=small_corpus(), on_progress=twice)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headway.sources.trained.training._finish", stop)
    with pytest.raises(Interrupted, match=r"stopped at once.*--resume"):
        train(small_recipe(), out, resume=True)
    assert RunFolder(out).load_state(loop.initial_state(small_recipe(), small_recipe().config(0))).step == STEPS


def test_what_comes_before_training_is_told(tmp_path: Path):
    told: list[str] = []
    train(small_recipe(), tmp_path / "run", corpus=small_corpus(), on_progress=lambda at: told.append(at.doing))
    assert told[:2] == ["making a tokenizer from 6 files", "encoding the text"]
    assert told[2:] == ["training"] * STEPS


@pytest.mark.parametrize("moment", ["making a tokenizer", "encoding"])
def test_ctrl_c_before_the_first_step_leaves_nothing_and_says_so(tmp_path: Path, moment: str):
    def stop(at: Progress) -> None:
        if at.doing.startswith(moment):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"nothing to resume.*same command") as stopped:
        train(small_recipe(), tmp_path / "run", corpus=small_corpus(), on_progress=stop)
    assert stopped.value.exit_code == 130 and not (tmp_path / "run").exists()


CHILD = """
import os, resource, signal, sys
from pathlib import Path
from headway.sources.trained import run_folder
from headway.sources.trained.training import train
from support.small_runs import small_corpus, small_recipe

how, out = sys.argv[1:]
whole = run_folder.save_file

def cut(tensors, path, metadata=None):
    if "state" not in str(path):
        return whole(tensors, path, metadata)
    if how == "kill":
        whole(tensors, path, metadata)
        Path(path).write_bytes(Path(path).read_bytes()[:1000])
        os.kill(os.getpid(), signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return whole(tensors, path, metadata)

run_folder.save_file = cut
train(small_recipe(), out, resume=True)
"""


@pytest.mark.parametrize(("how", "code"), [("kill", -signal.SIGKILL), ("full", 1)])
def test_a_checkpoint_cut_short_in_another_process(straight: RunFolder, tmp_path: Path, how: str, code: int):
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(small_recipe(), out, corpus=small_corpus(), on_progress=stop_at(5))
    before = (out / "state.safetensors").read_bytes()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, how, str(out)]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == code, child.stderr
    assert ("WriteProblem" in child.stderr) == (how == "full"), child.stderr
    assert (out / "state.safetensors").read_bytes() == before
    train(small_recipe(), out, resume=True)
    assert RunFolder(out).model_path.read_bytes() == straight.model_path.read_bytes()
