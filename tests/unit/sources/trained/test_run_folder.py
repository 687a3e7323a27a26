from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from headway.errors import FileProblem, UnknownName, UsageError, WriteProblem
from headway.sources.trained import run_folder
from headway.sources.trained.loop import State, initial_state
from headway.sources.trained.run_folder import RunFolder
from headway.sources.trained.run_paths import RunPaths
from support.small_runs import small_recipe

RECIPE = small_recipe(norm="layer")
STATE = initial_state(RECIPE, RECIPE.config(bos=0))
IDS = {"training": np.array([3, 1, 4]), "validation": np.array([1, 70_000]), "heldout": np.array([5])}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path / "run")
    found.start({"recipe": RECIPE.to_dict(), "é": "ü", "tokenizer": "{}", "corpus": {}}, IDS)
    return found


def test_what_is_laid_out_is_read_back(folder: RunFolder):
    about = folder.about()
    assert folder.exists and len(about.pop("data")) == len(about.pop("hash")) == 16
    assert about == {"recipe": RECIPE.to_dict(), "é": "ü", "tokenizer": "{}", "corpus": {}}
    found = folder.ids()
    assert {n: a.tolist() for n, a in found.items()} == {n: a.tolist() for n, a in IDS.items()}
    assert {a.dtype for a in found.values()} == {np.dtype(np.int64)}
    assert folder.snapshots() == [] and isinstance(folder, RunPaths)


def test_a_state_round_trip_keeps_values_and_memory_layout(folder: RunFolder):
    assert folder.load_state(STATE) is STATE, "nothing saved yet"
    moved = type(STATE)(
        7,
        {n: t + 1 for n, t in STATE.tensors.items()},
        {n: t + 2 for n, t in STATE.first_moments.items()},
        {n: t + 3 for n, t in STATE.second_moments.items()},
    )
    folder.save_state(moved)
    found = folder.load_state(STATE)
    assert found.step == 7
    for group in ("tensors", "first_moments", "second_moments"):
        for name, tensor in getattr(moved, group).items():
            here = getattr(found, group)[name]
            assert torch.equal(here, tensor) and here.stride() == getattr(STATE, group)[name].stride()


def test_a_state_of_another_model_or_a_damaged_one(folder: RunFolder):
    other = small_recipe("two-layer", d_model=8)
    plain = small_recipe()
    folder.save_state(initial_state(plain, plain.config(bos=0)))
    with pytest.raises(FileProblem, match="checkpoint of another model"):
        folder.load_state(STATE)
    folder.save_state(STATE)
    narrow = initial_state(other, other.config(bos=0))
    with pytest.raises(FileProblem, match="another model"):
        folder.load_state(narrow)
    path = folder.path / "state.safetensors"
    save_file({n: t.contiguous() for n, t in run_folder.load_file(path).items()}, path, {"step": "-1"})
    with pytest.raises(FileProblem, match="does not say its step"):
        folder.load_state(STATE)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FileProblem, match=r"state.safetensors: truncated or damaged"):
        folder.load_state(STATE)


def test_leftovers_of_a_killed_process_are_ignored(folder: RunFolder):
    folder.save_state(STATE)
    (folder.path / ".state.safetensors.0123456789ab.tmp").write_bytes(b"half")
    (folder.path / "snapshots" / ".step-3.safetensors.0123456789ab.tmp").write_bytes(b"half")
    assert folder.load_state(STATE).step == 0 and folder.snapshots() == []


def test_a_full_disk_leaves_the_last_state(folder: RunFolder, monkeypatch: pytest.MonkeyPatch):
    folder.save_state(STATE)
    before = (folder.path / "state.safetensors").read_bytes()

    def full(tensors: object, temp: Path, metadata: object = None) -> None:
        Path(temp).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder, "save_file", full)
    with pytest.raises(WriteProblem, match="Free some space"):
        folder.save_state(STATE)
    assert (folder.path / "state.safetensors").read_bytes() == before
    assert not list(folder.path.glob(".*.tmp"))


def test_a_folder_in_use_is_refused(folder: RunFolder, tmp_path: Path):
    with pytest.raises(UsageError, match=r"not empty.*--resume"):
        folder.start({}, IDS)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    for path in (tmp_path / "other", tmp_path / "other" / "thesis.tex"):
        with pytest.raises(UsageError, match=r"not empty|not a folder"):
            RunFolder(path).start({}, IDS)


def test_a_start_that_was_killed_may_be_started_again(folder: RunFolder):
    (folder.path / "run.json").unlink()
    folder.start({}, IDS)
    assert folder.exists


def test_an_empty_folder_will_do(tmp_path: Path):
    (tmp_path / "fresh").mkdir()
    RunFolder(tmp_path / "fresh").start({}, IDS)
    assert RunFolder(tmp_path / "fresh").exists


def test_a_place_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteProblem, match="cannot be made"):
        RunFolder(tmp_path / "file" / "run").start({}, IDS)


def test_what_is_missing_or_damaged(tmp_path: Path, folder: RunFolder):
    with pytest.raises(FileProblem, match="no training run here"):
        RunFolder(tmp_path / "none").about()
    (folder.path / "run.json").write_text("{half")
    with pytest.raises(FileProblem, match=r"run.json: damaged"):
        folder.about()
    (folder.path / "data.safetensors").unlink()
    with pytest.raises(FileProblem, match=r"data.safetensors: missing. Put a copy back"):
        folder.ids()


def test_the_log_is_lines(folder: RunFolder):
    folder.log(step=1, training=2.5)
    folder.log(step=2, validation=2.25)
    assert (folder.path / "log.jsonl").read_text().splitlines() == [
        '{"step": 1, "training": 2.5}',
        '{"step": 2, "validation": 2.25}',
    ]
    with pytest.raises(WriteProblem, match="log cannot be written"):
        RunFolder(folder.path / "nowhere").log(step=1)


def test_snapshots_in_the_order_of_their_numbers(folder: RunFolder):
    for step in (100, 20, 3):
        folder.snapshot_path(step).touch()
    (folder.path / "snapshots" / "step-x.safetensors").touch()
    assert folder.snapshots() == [3, 20, 100]
    assert folder.weights_path() == folder.snapshot_path(100) and folder.weights_path("20") == folder.snapshot_path(20)
    folder.model_path.touch()
    assert folder.weights_path() == folder.model_path
    with pytest.raises(UnknownName, match=r"\[3, 20, 100\]"):
        folder.weights_path("4")


def read_all(folder: RunFolder) -> None:
    folder.ids()
    folder.load_state(STATE)


@pytest.mark.parametrize("name", ["state.safetensors", "data.safetensors", "run.json"])
def test_one_flipped_bit_is_never_trained_on(folder: RunFolder, name: str):
    folder.save_state(STATE)
    path = folder.path / name
    whole = path.read_bytes()
    places = range(len(whole) - 9, len(whole), 4) if name != "run.json" else (whole.index(b"d_head") + 9,)
    for at in places:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(FileProblem, match=r"content hash differs.*Put a copy back"):
            read_all(folder)
    path.write_bytes(whole)
    assert folder.load_state(STATE).step == STATE.step


@pytest.mark.parametrize("name", ["state.safetensors", "run.json"])
def test_a_run_of_before_content_hashes_is_refused(folder: RunFolder, name: str):
    folder.save_state(STATE)
    path = folder.path / name
    if name == "run.json":
        path.write_text(json.dumps({n: v for n, v in folder.about().items() if n != "hash"}))
    else:
        stamp = json.dumps({"step": "0", "run": folder.about()["hash"]})
        save_file(run_folder.load_file(path), path, {"state": stamp})
    with pytest.raises(FileProblem, match=f"{name}: without a content hash.*start a new run"):
        read_all(folder)


def test_a_checkpoint_keeps_its_own_precision(folder: RunFolder):
    groups = (STATE.tensors, STATE.first_moments, STATE.second_moments)
    third = State(3, *({n: t.double() + 1 / 3 for n, t in group.items()} for group in groups))
    folder.save_state(third)
    found = folder.load_state(STATE)
    assert all(torch.equal(found.tensors[n], t) for n, t in third.tensors.items())
    assert all(torch.equal(found.second_moments[n], t) for n, t in third.second_moments.items() if t.numel())


def test_a_step_that_was_changed_is_damage(folder: RunFolder):
    folder.save_state(STATE)
    path = folder.path / "state.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'\\"step\\": \\"0\\"', b'\\"step\\": \\"9\\"'))
    assert path.read_bytes() != whole
    with pytest.raises(FileProblem, match="content hash differs"):
        folder.load_state(STATE)


def test_checkpoint_and_text_of_another_run_are_refused(folder: RunFolder, tmp_path: Path):
    other = RunFolder(tmp_path / "other")
    other.start(
        {"recipe": RECIPE.to_dict(), "tokenizer": "{}", "corpus": {"hash": "x"}}, {**IDS, "heldout": np.array([6])}
    )
    other.save_state(STATE)
    for name, expected in (("state.safetensors", "checkpoint of another run"), ("data.safetensors", "content hash")):
        kept = (folder.path / name).read_bytes() if (folder.path / name).exists() else None
        (folder.path / name).write_bytes((other.path / name).read_bytes())
        with pytest.raises(FileProblem, match=expected):
            read_all(folder)
        (folder.path / name).unlink()
        if kept is not None:
            (folder.path / name).write_bytes(kept)
