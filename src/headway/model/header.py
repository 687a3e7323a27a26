"""The header of a safetensors file, read without torch and without trusting it: `inspect` needs nothing else."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import FileProblem
from headway.model.config import ModelConfig
from headway.provenance import Provenance

FORMAT = 1
_LIMIT = 100_000_000  # bytes of header the safetensors format allows
# Bytes of each element; floats of 8 bits are read here, and refused as weights.
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1} | {
    "I64": 8, "I32": 4, "U16": 2, "I16": 2, "U8": 1, "I8": 1, "BOOL": 1
}  # fmt: skip


@dataclass(frozen=True)
class Header:
    """What an archive says of itself: config, provenance, card, tokenizer JSON, and dtype and shape of each tensor.

    beside: hash of what travels beside the model (see `archive`); "" in archives of before it was written.
    """

    config: ModelConfig
    provenance: Provenance
    card: Mapping[str, Any]
    tokenizer: str | None
    tied: bool
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    beside: str = ""


def read_header(path: str | Path) -> Header:
    """Header of one Headway archive. Raises FileProblem when the file is missing, truncated or something else."""
    tensors, metadata = read_safetensors_header(path)
    try:
        about = json.loads(metadata["headway"])
        version = about["format"]
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise FileProblem(
            "a safetensors file, but not a Headway archive",
            where=str(path),
            expected="`headway` metadata",
            got="metadata keys: " + (", ".join(metadata) or "none"),
            next_step="Build Weights with hw.Weights.from_tensors and save them",
        ) from error
    if version != FORMAT:
        raise FileProblem("archive of another version", where=str(path), expected=f"format {FORMAT}", got=version)
    try:
        return Header(
            config=ModelConfig.from_dict(about["config"]),
            provenance=Provenance.from_dict(about["provenance"]),
            card=dict(about.get("card", {})),
            tokenizer=_tokenizer(about, metadata),
            tied=bool(about.get("tied")),
            tensors=tensors,
            beside=str(about.get("beside", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileProblem("damaged `headway` metadata", where=str(path), got=repr(error)) from error


def _tokenizer(about: Mapping[str, Any], metadata: Mapping[str, str]) -> str | None:
    """Its JSON; early archives hold it in an entry of its own."""
    if "tokenizer" not in about:
        return metadata.get("tokenizer")
    return json.dumps(about["tokenizer"], ensure_ascii=False, separators=(",", ":"))


def read_safetensors_header(path: str | Path) -> tuple[dict[str, tuple[str, tuple[int, ...]]], dict[str, str]]:
    """(dtype and shape by tensor, metadata) of any safetensors file, with every offset checked against the file size."""
    where = str(path)
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device may never end
            raise FileProblem("cannot be read", where=where, expected="a regular file")
        size = status.st_size
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(_LIMIT, size - 8):
                raise FileProblem(
                    "not a whole safetensors file", where=where, expected="its header", got=f"{size} bytes"
                )
            header = json.loads(file.read(length))
    except FileNotFoundError as error:
        raise FileProblem("no such file", where=where) from error
    except OSError as error:
        raise FileProblem("cannot be read", where=where, got=error.strerror) from error
    except (ValueError, RecursionError, OverflowError) as error:
        raise FileProblem("not a safetensors file: its header is no JSON", where=where, got=str(error)) from error
    if not isinstance(header, dict):
        raise FileProblem("not a safetensors file", where=where, expected="a JSON object as header")
    metadata = header.pop("__metadata__", {})
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    end = 0
    for name, entry in header.items():
        dtype, shape, stop = _entry(name, entry, where)
        tensors[name] = (dtype, shape)
        end = max(end, stop)
    if size != 8 + length + end:
        raise FileProblem(
            "truncated or damaged", where=where, expected=f"{8 + length + end} bytes", got=f"{size} bytes"
        )
    return tensors, {str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {}


def _entry(name: str, entry: Any, where: str) -> tuple[str, tuple[int, ...], int]:
    """dtype, shape and end offset of one tensor, consistent with each other."""
    try:
        dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
        start, stop = (int(n) for n in entry["data_offsets"])
        whole = min(shape, default=0) >= 0 <= start and stop - start == math.prod(shape) * _SIZES[dtype]
    except (KeyError, TypeError, ValueError) as error:
        raise FileProblem(f"damaged header entry {name!r}", where=where, got=repr(entry)[:80]) from error
    if not whole:
        raise FileProblem(f"tensor {name!r} does not fill its bytes", where=where, got=repr(entry)[:80])
    return dtype, shape, stop
