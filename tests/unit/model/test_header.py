from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from headway.errors import ConfigProblem, FileProblem, NotBuilt
from headway.model.archive import save
from headway.model.header import read_header, read_safetensors_header
from support.random_models import random_weights


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return save(random_weights(norm="rms", positions="rotary"), tmp_path / "m.safetensors")


def raw(path: Path, header: Any, data: bytes = b"") -> Path:
    """A file of the safetensors layout with any header, well-formed or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def with_about(path: Path, **changes: Any) -> Path:
    """The archive with parts of its own metadata replaced; None takes a part away."""
    blob = path.read_bytes()
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + length])
    about = json.loads(header["__metadata__"]["headway"]) | changes
    header["__metadata__"]["headway"] = json.dumps({k: v for k, v in about.items() if v is not None})
    return raw(path, header, blob[8 + length :])


def test_a_header_says_everything_but_the_numbers(archive: Path):
    weights = random_weights(norm="rms", positions="rotary")
    header = read_header(archive)
    assert header.config == weights.config and header.tokenizer is None and not header.tied and header.card == {}
    assert header.provenance.weights == weights.content_hash()
    assert {n: shape for n, (_, shape) in header.tensors.items()} == {
        n: tuple(t.shape) for n, t in weights.tensors().items()
    }
    assert {dtype for dtype, _ in header.tensors.values()} == {"F64"}


def test_a_foreign_safetensors_file_is_not_an_archive(tmp_path: Path):
    save_file({"w": torch.ones(2)}, tmp_path / "x.safetensors", {"made_by": "somebody"})
    with pytest.raises(FileProblem, match=r"not a Headway archive.*made_by.*from_tensors"):
        read_header(tmp_path / "x.safetensors")
    assert read_safetensors_header(tmp_path / "x.safetensors")[0] == {"w": ("F32", (2,))}


def test_another_version_an_unknown_field_and_an_unbuilt_feature(archive: Path):
    config = random_weights(norm="rms", positions="rotary").config.to_dict()
    with pytest.raises(ConfigProblem, match="n_layer"):
        read_header(with_about(archive, config={**config, "n_layer": 2}))
    with pytest.raises(NotBuilt, match="window"):
        read_header(with_about(archive, config={**config, "window": 4}))
    with pytest.raises(FileProblem, match="expected format 1, got 9"):
        read_header(with_about(archive, format=9))


@pytest.mark.parametrize(
    "changes", [{"config": None}, {"provenance": None}, {"provenance": 3}, {"card": 5}, {"config": 1}]
)
def test_metadata_that_lacks_a_part_is_damaged(archive: Path, changes: dict[str, Any]):
    with pytest.raises(FileProblem, match="damaged `headway` metadata"):
        read_header(with_about(archive, **changes))


@pytest.mark.parametrize("about", ["[]", "nonsense", '"text"', "{}"])
def test_metadata_that_is_something_else(archive: Path, about: str):
    with pytest.raises(FileProblem, match="not a Headway archive"):
        read_header(raw(archive, {"__metadata__": {"headway": about}}))


@pytest.mark.parametrize("left", [0, 4, 8, 100, -1])
def test_a_truncated_file(archive: Path, left: int):
    archive.write_bytes(archive.read_bytes()[:left])
    with pytest.raises(FileProblem, match=f"{archive}: .*(truncated|not a whole)"):
        read_header(archive)


def test_bytes_too_many(archive: Path):
    archive.write_bytes(archive.read_bytes() + b"more")
    with pytest.raises(FileProblem, match="truncated or damaged"):
        read_header(archive)


@pytest.mark.parametrize(
    ("header", "word"),
    [
        (b"{not json", "no JSON"),
        (b"\xff\xfe\xfa", "no JSON"),
        ([1, 2], "JSON object"),
        ({"w": 5}, "damaged header entry 'w'"),
        ({"w": {"dtype": "F32", "shape": [2]}}, "damaged header entry"),
        ({"w": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, "damaged header entry"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "does not fill its bytes"),
        ({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}, "does not fill its bytes"),
        ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, "does not fill its bytes"),
        ({"w": {"dtype": "F32", "shape": "ab", "data_offsets": [0, 4]}}, "damaged header entry"),
    ],
)
def test_a_header_that_lies(tmp_path: Path, header: Any, word: str):
    with pytest.raises(FileProblem, match=word):
        read_safetensors_header(raw(tmp_path / "x.safetensors", header, b"1234"))


def test_a_header_longer_than_the_file_is_not_read(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(FileProblem, match="not a whole safetensors file"):
        read_safetensors_header(path)


def test_what_is_not_there_or_no_file(tmp_path: Path):
    with pytest.raises(FileProblem, match="no such file"):
        read_header(tmp_path / "nothing.safetensors")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(FileProblem, match="cannot be read; expected a regular file"):
            read_header(path)
