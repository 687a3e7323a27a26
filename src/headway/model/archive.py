"""One `.safetensors` file a model: tensors, config, tokenizer, provenance, carried texts. Exact round trip, atomic."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from headway.errors import FileProblem, check_path
from headway.model.carried import Carried
from headway.model.header import FORMAT, Header, read_header
from headway.model.weights import AXES, Weights, as_read, check_weights
from headway.provenance import content_hash
from headway.tables.atomic import write_atomic
from headway.tokens.tokenizer import Tokenizer


def save(weights: Weights, path: str | Path) -> Path:
    """Write weights to one file; complete or not at all. `load(save(w, p))` equals `w` bit for bit.

    >>> import tempfile
    >>> from headway.sources.handmade import induction_model
    >>> w = induction_model().weights
    >>> load(save(w, Path(tempfile.mkdtemp()) / "m.safetensors")).content_hash() == w.content_hash()
    True
    """
    check_weights(weights)
    tensors = {name: t.detach().cpu().contiguous() for name, t in weights.tensors().items()}
    if weights.tied:
        del tensors["W_U"]
    about: dict[str, Any] = {
        "format": FORMAT,
        "config": weights.config.to_dict(),
        "provenance": dataclasses.replace(weights.provenance, weights=weights.content_hash()).to_dict(),
        "tied": weights.tied,
    }
    if weights.carried is not None:
        tensors |= {f"carried.{name}": a for name, a in _carried_tensors(weights.carried).items()}
        about["card"] = dict(weights.carried.card)
    about["beside"] = _hash_beside(weights.tokenizer, weights.carried)
    if weights.tokenizer is not None:
        about["tokenizer"] = json.loads(weights.tokenizer.to_json())
    # One entry, since safetensors writes several in an order drawn anew each time: equal models are equal files.
    metadata = {"headway": json.dumps(about, ensure_ascii=False, separators=(",", ":"))}
    return write_atomic(path, lambda temp: save_file(tensors, temp, metadata))


def load(path: str | Path) -> Weights:
    """Read an archive exactly as it was saved; loading changes nothing.

    Raises FileProblem when the file is missing, truncated, damaged (content hashes of model, tokenizer, card and carried
    texts are checked) or something else, NotFinite when a weight is no number.
    """
    check_path(path, "an archive")
    header = read_header(path)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise FileProblem("cannot be read as safetensors", where=str(path), got=str(error)) from error
    carried = None
    parts = [n for n in ("bigrams", "validation", "heldout") if f"carried.{n}" in tensors]
    if 0 < len(parts) < 3:
        raise FileProblem("carried texts are incomplete", where=str(path), got="only " + ", ".join(parts))
    if parts:
        arrays = {n: _whole(tensors.pop(f"carried.{n}"), n, path) for n in ("bigrams", "validation", "heldout")}
        carried = Carried(**arrays, card=header.card)
    unknown = set(tensors) - set(AXES)
    if unknown:
        raise FileProblem("unknown tensors in the archive", where=str(path), got=", ".join(sorted(unknown)))
    if header.tied:
        tensors["W_U"] = tensors["W_E"].T
    if len(dtypes := {str(t.dtype) for t in tensors.values()}) > 1:
        raise FileProblem("tensors of several dtypes", where=str(path), expected="one", got=", ".join(sorted(dtypes)))
    weights = _assemble(header, tensors, carried, path)
    expected = (header.provenance.weights, header.beside)
    got = (weights.content_hash(), _hash_beside(weights.tokenizer, carried) if header.beside else "")
    if expected != got:
        raise FileProblem("damaged: its content hash differs", where=str(path), expected=expected, got=got)
    return weights.check_finite()


def _assemble(header: Header, tensors: dict[str, Tensor], carried: Carried | None, path: str | Path) -> Weights:
    missing = [n for n in ("W_E", "W_Q", "W_K", "W_V", "W_O", "W_U") if n not in tensors]
    if missing:
        raise FileProblem("tensors missing from the archive", where=str(path), got="no " + ", ".join(missing))
    tokenizer = Tokenizer.from_json(header.tokenizer, where=str(path)) if header.tokenizer else None
    provenance = dataclasses.replace(header.provenance, source=header.provenance.source or Path(path).name)
    return Weights(
        config=header.config, provenance=provenance, tokenizer=tokenizer, carried=carried, **as_read(tensors)
    )


def _carried_tensors(carried: Carried) -> dict[str, Tensor]:
    """Carried ids in the smallest integers that hold them."""
    arrays = {"bigrams": carried.bigrams, "validation": carried.validation, "heldout": carried.heldout}
    return {name: torch.from_numpy(a.astype(_smallest(a))) for name, a in arrays.items()}


def _whole(tensor: Tensor, name: str, path: str | Path) -> np.ndarray:
    """Carried ids as int64; converting anything but whole numbers would change them in silence."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise FileProblem(f"carried {name}", where=str(path), expected="whole numbers", got=tensor.dtype)
    return tensor.numpy().astype(np.int64)


def _hash_beside(tokenizer: Tokenizer | None, carried: Carried | None) -> str:
    """A hash of what travels beside the model and is not in its own hash: tokenizer, card, carried texts."""
    parts = [("tokenizer", b"" if tokenizer is None else tokenizer.to_json().encode())]
    if carried is not None:
        parts.append(("card", json.dumps(dict(carried.card), sort_keys=True).encode()))
        parts += [(n, getattr(carried, n).astype("<i8").tobytes()) for n in ("bigrams", "validation", "heldout")]
    return content_hash(parts)


def _smallest(array: np.ndarray) -> type[np.signedinteger]:
    top = int(array.max(initial=0))
    return next(t for t in (np.int16, np.int32, np.int64) if top <= np.iinfo(t).max)
