from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from headway.errors import FileProblem, NotFinite, WriteProblem
from headway.model import archive
from headway.model.archive import load, save
from headway.model.carried import Carried
from headway.model.header import read_header
from headway.model.process import processed
from headway.model.weights import Weights
from headway.provenance import Provenance
from headway.sources.describe import description
from headway.studies import words
from headway.tokens import Tokenizer
from support.random_models import FEATURES, feature_name, random_weights

TOKENIZER = Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"é": 0, "b": 1}, "merges": []}}')
CARRIED = Carried(
    np.array([[0, 1], [1, 12], [70_000, 3]]),
    np.array([0, 4, 12]),
    np.array([0, 5]),
    {"licence": "PSF – free", "losses": {"heldout": 1.5}, "seed": 3},
)


def rich() -> Weights:
    provenance = Provenance(source="trained here", options={"step": 5}, seed=3, version="0.1.0")
    weights = random_weights(norm="layer", positions="learned").replace(provenance=provenance)
    return processed(weights, "folded").replace(tokenizer=TOKENIZER, carried=CARRIED)


@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_exact_round_trip(tmp_path: Path, features: dict[str, Any], dtype: torch.dtype):
    weights = random_weights(**features, dtype=dtype)
    path = save(weights, tmp_path / "m.safetensors")
    found = load(path)
    assert found.config == weights.config and found.dtype == dtype and found.tied == weights.tied
    assert list(found.tensors()) == list(weights.tensors())
    for name, tensor in weights.tensors().items():
        assert torch.equal(getattr(found, name), tensor), name
    assert found.content_hash() == weights.content_hash()


def test_what_travels_beside_the_tensors(tmp_path: Path):
    weights = rich()
    found = load(save(weights, tmp_path / "m.safetensors"))
    assert found.tokenizer == TOKENIZER
    assert found.carried is not None
    assert found.carried.card == CARRIED.card
    for name in ("bigrams", "validation", "heldout"):
        assert np.array_equal(getattr(found.carried, name), getattr(CARRIED, name))
        assert getattr(found.carried, name).dtype == np.int64
    assert found.provenance.steps == ("norms folded", "reads centred")
    assert (found.provenance.source, found.provenance.seed) == ("trained here", 3)
    assert found.provenance.options == {"step": 5} and found.provenance.weights == weights.content_hash()


def test_saving_again_gives_the_same_bytes(tmp_path: Path):
    first = save(rich(), tmp_path / "a.safetensors")
    second = save(load(first), tmp_path / "b.safetensors")
    assert first.read_bytes() == second.read_bytes()


def test_weights_without_a_source_are_named_after_their_file(tmp_path: Path):
    assert load(save(random_weights(), tmp_path / "mine.safetensors")).provenance.source == "mine.safetensors"


def test_a_tied_model_is_stored_once(tmp_path: Path):
    tied = random_weights(tied=True)
    path = save(tied, tmp_path / "m.safetensors")
    assert "W_U" not in load_file(path) and load(path).tied


def test_any_memory_layout_and_gradients(tmp_path: Path):
    weights = random_weights()
    odd: dict[str, Any] = {"W_E": weights.W_E.T.contiguous().T, "W_U": weights.W_U.clone().requires_grad_()}
    assert load(save(weights.replace(**odd), tmp_path / "m.safetensors")).content_hash() == weights.content_hash()


def test_every_flipped_byte_is_noticed(tmp_path: Path):
    """One byte in every tensor, carried ones too, and in tokenizer and card: refused, whatever it hits."""
    path = save(rich(), tmp_path / "m.safetensors")
    blob = bytearray(path.read_bytes())
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + length])
    places = [8 + length + entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"]
    places += [blob.index(b"PSF") + 1, blob.index(b"merges") + 1]
    assert len(places) > 15
    for place in places:
        broken = bytearray(blob)
        broken[place] ^= 1
        path.write_bytes(broken)
        with pytest.raises(FileProblem, match=r"m.safetensors"):
            load(path)
    path.write_bytes(blob)
    assert load(path).tokenizer == TOKENIZER


@pytest.mark.parametrize("keep", [0, 5, 300, 5000])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: int):
    path = save(rich(), tmp_path / "m.safetensors")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FileProblem, match=r"m.safetensors"):
        load(path)


def test_archives_of_before_the_second_hash_still_load(tmp_path: Path):
    path = save(rich(), tmp_path / "m.safetensors")
    rewrite(path, lambda _, about: about.pop("beside"))
    assert load(path).carried is not None


def rewrite(path: Path, change: Any) -> None:
    """The archive with its tensors and metadata changed by `change(tensors, about)`, and whole again."""
    blob = path.read_bytes()
    metadata = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])["__metadata__"]
    tensors, about = load_file(path), json.loads(metadata["headway"])
    change(tensors, about)
    save_file(tensors, path, {**metadata, "headway": json.dumps(about)})


def test_missing_and_unknown_tensors(tmp_path: Path):
    path = save(random_weights(), tmp_path / "m.safetensors")
    rewrite(path, lambda tensors, _: tensors.pop("W_V"))
    with pytest.raises(FileProblem, match="no W_V"):
        load(path)
    save(random_weights(), path)
    rewrite(path, lambda tensors, _: tensors.update(W_X=torch.ones(2)))
    with pytest.raises(FileProblem, match=r"unknown tensors.*W_X"):
        load(path)


def test_nan_weights_are_refused_by_name(tmp_path: Path):
    weights = random_weights()
    W_O = weights.W_O.clone()
    W_O[0, 1, 2, 3] = float("nan")
    path = save(weights.replace(W_O=W_O), tmp_path / "m.safetensors")
    with pytest.raises(NotFinite, match=r"W_O\[0, 1, 2, 3\] is nan"):
        load(path)


def test_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = save(random_weights(seed=1), tmp_path / "m.safetensors")

    def full_disk(tensors: Any, temp: Path, metadata: Any) -> None:
        Path(temp).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "save_file", full_disk)
    with pytest.raises(WriteProblem, match="nothing half-written"):
        save(random_weights(seed=2), path)
    assert load(path).content_hash() == random_weights(seed=1).content_hash()
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_folder_that_does_not_exist(tmp_path: Path):
    with pytest.raises(WriteProblem, match="Make the folder first"):
        save(random_weights(), tmp_path / "no" / "m.safetensors")


@pytest.mark.parametrize(
    ("field", "value"), [("steps", [1, 2]), ("steps", "folded"), ("options", 3), ("seed", "x"), ("source", None)]
)
def test_provenance_of_another_kind_is_damage(tmp_path: Path, field: str, value: Any):
    path = save(random_weights(), tmp_path / "m.safetensors")
    rewrite(path, lambda _, about: about["provenance"].update({field: value}))
    with pytest.raises(FileProblem, match=f"damaged `headway` metadata.*{field}"):
        load(path)


@pytest.mark.parametrize("card", [{"corpus": 5}, {"corpus": {}}, {"corpus": None}, {"losses": [1]}, {}])
def test_any_card_can_be_described_and_reported(tmp_path: Path, card: dict[str, Any]):
    weights = rich()
    assert weights.carried is not None
    path = save(weights.replace(carried=replace(weights.carried, card=card)), tmp_path / "m.safetensors")
    assert len(description(read_header(path), path).rows()) > 10
    assert ("trained on" in words._model(load(path))) is False


def test_tensors_of_several_dtypes_are_refused_by_file(tmp_path: Path):
    path = save(random_weights(), tmp_path / "m.safetensors")
    rewrite(path, lambda tensors, _: tensors.update(W_O=tensors["W_O"].float()))
    with pytest.raises(FileProblem, match=r"m.safetensors: tensors of several dtypes.*torch.float32, torch.float64"):
        load(path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_carried_ids_that_are_no_whole_numbers_are_refused(tmp_path: Path, dtype: torch.dtype):
    path = save(rich(), tmp_path / "m.safetensors")
    rewrite(path, lambda tensors, _: tensors.update({"carried.heldout": tensors["carried.heldout"].to(dtype)}))
    with pytest.raises(FileProblem, match=f"carried heldout; expected whole numbers, got {dtype}"):
        load(path)
