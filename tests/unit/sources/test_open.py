from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from headway.errors import FileProblem, HeadwayError, NotBuilt, UnknownName, UsageError
from headway.model.archive import save
from headway.model.carried import Carried
from headway.model.process import processed
from headway.model.weights import Weights
from headway.sources.open import inspect, load, locate
from headway.sources.trained.run_paths import RunPaths
from headway.sources.zoo import packaged
from headway.sources.zoo.packaged import ZOO, zoo_path
from headway.tables.table import Table
from headway.tokens import Tokenizer
from support.random_models import random_weights
from support.repository import SOURCE

TOKENIZER = Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}')
CARD = {"recipe": {"name": "mine", "betas": [0.9, 0.95]}, "losses": {"heldout": 1.5}, "rebuild": "headway train mine"}
CARRIED = Carried(np.array([[0, 1], [1, 12], [5, 3]]), np.arange(13), np.arange(7), CARD)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return save(random_weights(), tmp_path / "mine.safetensors")


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run with two snapshots and no finished model."""
    run = RunPaths(tmp_path / "run")
    (run.path / "snapshots").mkdir(parents=True)
    (run.path / "run.json").write_text("{}")
    for step in (9, 10):
        save(random_weights(seed=step), run.snapshot_path(step))
    (run.path / "snapshots" / ".step-11.safetensors.ab12.tmp").write_bytes(b"half")
    return run.path


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A packaged folder with two of the three models."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    for seed, name in enumerate(("zero-layer", "two-layer")):
        save(random_weights(seed=seed, n_layers=2 * seed, bos=0), folder / f"{name}.safetensors")
    monkeypatch.setattr(packaged.resources, "files", lambda _: folder)
    return folder


def same(a: Weights, b: Weights) -> bool:
    return a.content_hash() == b.content_hash()


def test_an_archive(archive: Path, monkeypatch: pytest.MonkeyPatch):
    assert same(load(archive), random_weights()) and same(load(str(archive)), random_weights())
    monkeypatch.chdir(archive.parent)
    assert same(load("mine.safetensors"), random_weights())
    monkeypatch.setenv("HOME", str(archive.parent))
    assert same(load("~/mine.safetensors"), random_weights())


def test_the_name_need_not_end_in_safetensors(archive: Path):
    assert same(load(archive.rename(archive.with_name("mine@2"))), random_weights())


def test_a_run_is_its_newest_snapshot_until_it_is_finished(run_folder: Path):
    assert same(load(run_folder), random_weights(seed=10)), "10 is newer than 9, whatever their names sort like"
    assert same(load(f"{run_folder}@9"), random_weights(seed=9))
    save(random_weights(seed=3), run_folder / "model.safetensors")
    assert same(load(run_folder), random_weights(seed=3)) and same(load(f"{run_folder}@10"), random_weights(seed=10))


@pytest.mark.parametrize("step", ["11", "", "-9", "9.0", "last"])
def test_a_step_without_snapshot(run_folder: Path, step: str):
    with pytest.raises(UnknownName, match=r"expected one of \[9, 10\]"):
        load(f"{run_folder}@{step}")


def test_a_run_without_weights(run_folder: Path):
    for step in (9, 10):
        RunPaths(run_folder).snapshot_path(step).unlink()
    with pytest.raises(FileProblem, match=r"kept no weights yet.*--resume"):
        load(run_folder)
    with pytest.raises(UnknownName, match="no snapshots kept yet"):
        load(f"{run_folder}@9")


def test_the_zoo(zoo: Path):
    assert load("zoo:two-layer").config.n_layers == 2 and zoo_path("zero-layer").parent == zoo
    with pytest.raises(FileProblem, match=r"zoo:one-layer is not in this installation.*headway train one-layer"):
        load("zoo:one-layer")
    with pytest.raises(UnknownName, match=r"'two_layers'.*Did you mean two-layer"):
        load("zoo:two_layers")
    with pytest.raises(UnknownName, match="no model ''"):
        load("zoo:")


def test_the_zoo_has_three_names():
    assert ZOO == ("zero-layer", "one-layer", "two-layer")


@pytest.mark.parametrize(
    ("ref", "hint"),
    [
        ("two-layer", "Did you mean zoo:two-layer?"),
        ("mine.safetensor", "Did you mean mine.safetensors?"),
        ("gpt2", "nothing is downloaded"),
        ("no/such/folder/x.safetensors", "There is no folder no/such/folder either"),
        ("nothing@5", "Give a path"),
    ],
)
def test_what_is_not_there_gets_a_hint(archive: Path, monkeypatch: pytest.MonkeyPatch, ref: str, hint: str):
    monkeypatch.chdir(archive.parent)
    with pytest.raises(FileProblem) as caught:
        load(ref)
    assert f"{ref}: no such model" in str(caught.value) and hint in str(caught.value)


def test_folders_that_are_no_runs(tmp_path: Path, archive: Path):
    with pytest.raises(FileProblem, match=r"no training run.*Name the file itself: .*mine.safetensors"):
        load(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileProblem, match="headway train"):
        load(tmp_path / "empty")
    with pytest.raises(FileProblem, match=r"run.json"):
        load(f"{tmp_path}@5")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotBuilt, match="Hugging Face folder"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["m.pt", "m.pth", "m.bin", "m.ckpt", "m.pkl", "m.pickle"])
def test_pickles_are_never_opened(tmp_path: Path, name: str):
    """The file would write another one if anything unpickled it."""

    class Trap:
        def __reduce__(self) -> Any:
            return Path.write_text, (tmp_path / "sprung", "x")

    torch.save({"w": Trap()}, tmp_path / name)
    torch.save({"w": Trap()}, tmp_path / "renamed.safetensors")
    for path in (tmp_path / name, tmp_path / "renamed.safetensors"):
        for door in (load, inspect):
            with pytest.raises(FileProblem, match=r"pickled checkpoint.*from_tensors"):
                door(path)
    assert not (tmp_path / "sprung").exists()


def test_gguf_is_refused_by_name_whatever_it_is_called(tmp_path: Path):
    for name in ("m.gguf", "m.safetensors"):
        (tmp_path / name).write_bytes(b"GGUF" + bytes(100))
        with pytest.raises(NotBuilt, match="GGUF"):
            load(tmp_path / name)


def test_files_of_other_kinds(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("hello there, this is a text")
    with pytest.raises(FileProblem, match=r"notes.txt"):
        load(tmp_path / "notes.txt")
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(FileProblem, match="not a Headway archive"):
        load(tmp_path / "model.safetensors")
    (tmp_path / "empty.safetensors").touch()
    with pytest.raises(FileProblem, match="not a whole safetensors file"):
        inspect(tmp_path / "empty.safetensors")


def test_an_empty_reference():
    with pytest.raises(UsageError, match="a path or zoo:NAME"):
        locate("")


def values(table: Table, section: str) -> dict[str, str]:
    return {row["name"]: row["value"] for row in table.rows() if row["section"] == section}


def notes(table: Table, section: str) -> dict[str, str]:
    return {row["name"]: row["note"] for row in table.rows() if row["section"] == section}


def test_inspect_a_plain_model(archive: Path):
    table = inspect(archive)
    model, about = values(table, "model"), values(table, "file")
    assert [model[n] for n in ("layers", "heads", "key/value heads", "d_model", "d_head", "d_vocab", "n_ctx")] == [
        *("2", "4", "2", "10", "5", "13", "16")
    ]
    assert (model["norm"], model["positions"], model["tied"], model["BOS"]) == ("none", "none", "no", "0")
    assert model["attn_scale"] == "0.7" and "not 1 / sqrt(d_head)" in notes(table, "model")["attn_scale"]
    assert model["biases"] == "b_Q, b_K, b_V, b_O, b_U"
    count = sum(t.numel() for t in random_weights().tensors().values())
    assert model["parameters"] == f"{count:,}" and table.meta["parameters"] == count
    assert (about["dtype"], about["processing"], about["tokenizer"], about["carried texts"]) == (
        *("float64", "raw"),
        *("no", "none"),
    )
    assert about["weights hash"] == random_weights().content_hash() == table.provenance.weights
    assert table.meta["config"]["d_head"] == 5 and not values(table, "card")
    assert json.loads(table.to_json("inspect"))["schema"] == "headway/inspect@1"


def test_inspect_what_travels_along(tmp_path: Path):
    weights = processed(random_weights(norm="layer", positions="learned", dtype=torch.float32), "folded")
    path = save(weights.replace(tokenizer=TOKENIZER, carried=CARRIED), tmp_path / "m.safetensors")
    table = inspect(path)
    about, card = values(table, "file"), values(table, "card")
    assert about["tokenizer"] == "yes" and about["processing"] == "norms folded + reads centred"
    assert about["carried texts"] == "13 validation ids, 7 heldout ids" and about["bigram counts"] == "2 pairs"
    assert card["losses.heldout"] == "1.5" and card["recipe.betas"] == "[0.9, 0.95]"
    assert card["rebuild"] == "headway train mine" and notes(table, "card")["losses.heldout"] == "nats a token"
    assert table.meta["parameters"] == sum(t.numel() for t in weights.tensors().values()), "what it carries left out"
    assert about["dtype"] == "float32" and "LayerNorm" in notes(table, "model")["norm"]


def test_a_tied_model_counts_its_embedding_once(tmp_path: Path):
    tied = random_weights(tied=True, biases="none")
    table = inspect(save(tied, tmp_path / "m.safetensors"))
    assert values(table, "model")["tied"] == "yes" and table.meta["tied"] is True
    assert table.meta["parameters"] == sum(t.numel() for n, t in tied.tensors().items() if n != "W_U")


@pytest.mark.parametrize(
    ("features", "applies", "not_applied"),
    [
        (
            {"n_layers": 0, "n_heads": 0, "n_kv_heads": 0},
            {},
            {"copying": "no heads", "composition": "no heads", "prefix matching": "no heads", "direct path": "counts"},
        ),
        (
            {"n_layers": 1},
            {"copying": "eigenvalues", "QK circuit without offset": "does not depend"},
            {"composition": "two layers", "induction circuits": "two layers", "prefix matching": "there are 12"},
        ),
        (
            {"positions": "rotary", "d_vocab": 40, "bos": None},
            {"QK circuit in tokens": "one offset", "composition": "stated offset", "prefix matching": "without BOS"},
            {
                "QK circuit without offset": "rotary",
                "patterns on text": "no tokenizer",
                "loss by path order": "token ids",
            },
        ),
        (
            {"positions": "learned", "d_vocab": 40},
            {"QK circuit in tokens": "content part", "induction circuits": "pairs of writer"},
            {"prefix matching": "n_ctx=16"},
        ),
        (
            {"positions": "shortformer", "d_vocab": 40},
            {"QK circuit in tokens": "sinusoids", "induction circuits": "K-composition only", "prefix matching": "25"},
            {},
        ),
    ],
    ids=str,
)
def test_which_analyses_apply_and_why(
    tmp_path: Path, features: dict[str, Any], applies: dict[str, str], not_applied: dict[str, str]
):
    table = inspect(save(random_weights(**features), tmp_path / "m.safetensors"))
    found, why = values(table, "analyses"), notes(table, "analyses")
    assert set(found.values()) <= {"yes", "no"} and all(why.values())
    for names, value in ((applies, "yes"), (not_applied, "no")):
        for name, reason in names.items():
            assert found[name] == value and reason in why[name], name
            assert table.meta["analyses"][name] == (value == "yes")


def test_carried_text_and_tokenizer_open_more(tmp_path: Path):
    table = inspect(save(random_weights().replace(carried=CARRIED), tmp_path / "m.safetensors"))
    found, why = values(table, "analyses"), notes(table, "analyses")
    assert found["direct path"] == found["loss by path order"] == found["patterns on text"] == "yes"
    assert "held-out text it carries" in why["loss by path order"]
    table = inspect(save(random_weights().replace(tokenizer=TOKENIZER), tmp_path / "m.safetensors"))
    assert "--text" in notes(table, "analyses")["patterns on text"]


def test_inspect_follows_the_same_references(run_folder: Path, zoo: Path):
    assert values(inspect(run_folder), "file")["name"] == "step-10.safetensors"
    assert values(inspect(f"{run_folder}@9"), "file")["name"] == "step-9.safetensors"
    assert values(inspect("zoo:zero-layer"), "model")["layers"] == "0"
    for ref in ("zoo:x", f"{run_folder}@5", "nowhere"):
        with pytest.raises(HeadwayError):
            inspect(ref)


def test_inspect_reads_no_tensor_and_no_torch(archive: Path, tmp_path: Path):
    """A file whose tensors are wrong but whose header is whole can be inspected, by an interpreter without torch."""
    blob = bytearray(archive.read_bytes())
    blob[-8:] = b"\xff" * 8
    archive.write_bytes(blob)
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import headway as hw; "
        f"table = hw.inspect({str(archive)!r}); print(len(table), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == [str(len(inspect(archive))), "False"]
    with pytest.raises(FileProblem, match="content hash"):
        load(archive)
