"""A training run on disk: what it trains on and where it stands, written and read back. `run_paths` lists its files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from headway.errors import ConfigProblem, FileProblem, UsageError, WriteProblem
from headway.model.carried import Carried
from headway.model.weights import raw_bytes
from headway.provenance import content_hash
from headway.sources.trained.corpus import SPLITS
from headway.sources.trained.data import bigram_counts
from headway.sources.trained.loop import State
from headway.sources.trained.recipes import Recipe
from headway.sources.trained.run_paths import RunPaths
from headway.tables.atomic import check_folder, write_atomic, write_bytes_atomic

_LOST = "Put a copy back, or start a new run"


@dataclass(frozen=True)
class RunFolder(RunPaths):
    """The folder of one run, with what it takes to go on."""

    def require_empty(self) -> None:
        """Raise UsageError when the folder already holds a run or other files.

        What a start that was killed before `run.json` leaves behind is no run, and may be written over.
        """
        if not os.path.exists(self.path):  # noqa: PTH110 - Path.exists raises for a name that is too long
            return
        if not self.path.is_dir():
            raise UsageError("not a folder", where=str(self.path), next_step="Name a new folder with -o")
        others = {p.name for p in self.path.iterdir() if not p.name.endswith(".tmp")} - {"data.safetensors"}
        if others <= {"snapshots"} and not any((self.path / "snapshots").glob("*")):
            return
        hint = "Add --resume to go on with it, or name" if self.exists else "Name"
        raise UsageError("the run folder is not empty", where=str(self.path), next_step=f"{hint} another with -o")

    def check_place(self) -> None:
        """Raise WriteProblem, before any work, when the run could not be written here."""
        check_folder(self.path, "run.json", "snapshots/step-1.safetensors")

    def start(self, about: Mapping[str, Any], ids: Mapping[str, np.ndarray]) -> None:
        """Lay out a new run. Raises UsageError when the folder already holds one or other files."""
        self.require_empty()
        self.make()
        tensors = {name: torch.from_numpy(ids[name].astype(np.int32)) for name in SPLITS}
        write_atomic(self.path / "data.safetensors", lambda temp: save_file(tensors, temp))
        whole = {**about, "data": _hash(tensors)}
        whole["hash"] = _hash_of_json(whole)
        # run.json last: its presence says that everything before it is whole.
        write_bytes_atomic(self.path / "run.json", json.dumps(whole, indent=1, ensure_ascii=False).encode())

    def make(self) -> None:
        """Make what is missing of the folder itself: a run may have lost its snapshots and go on."""
        try:
            (self.path / "snapshots").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteProblem("the run folder cannot be made", where=str(self.path), got=error.strerror) from error

    def about(self) -> dict[str, Any]:
        """The contents of run.json. Raises FileProblem when it is missing or damaged."""
        try:
            about = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
            _check_hash(self.path / "run.json", about.get("hash", ""), _hash_of_json(about))
            Recipe.from_dict(about["recipe"])
            if not isinstance(about["tokenizer"], str) or not isinstance(about["corpus"], dict):
                raise TypeError("tokenizer or corpus")
            return about
        except FileNotFoundError as error:
            raise FileProblem("no training run here", where=str(self.path), expected="run.json") from error
        except (ConfigProblem, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileProblem("damaged", where=str(self.path / "run.json"), got=repr(error)[:200]) from error

    def ids(self) -> dict[str, np.ndarray]:
        """Token ids of the splits. Raises FileProblem when they are not those the run was started with."""
        tensors, _ = _read(self.path / "data.safetensors")
        _check_hash(self.path / "data.safetensors", self.about()["data"], _hash(tensors))
        return {n: t.numpy().astype(np.int64) for n, t in tensors.items()}

    def carried(self, bos: int, **card: Any) -> Carried:
        """What weights of this run take along: bigram counts, validation and held-out ids, recipe and corpus as card."""
        about, ids = self.about(), self.ids()
        recipe = Recipe.from_dict(about["recipe"])
        bigrams = bigram_counts(ids["training"], bos, recipe.d_vocab, recipe.n_ctx)
        whole = {"recipe": about["recipe"], "corpus": about["corpus"], **card}
        return Carried(bigrams, ids["validation"], ids["heldout"], whole)

    def save_state(self, state: State) -> None:
        """Replace the checkpoint; the earlier one stays intact until the new one is complete."""
        groups = {"tensor": state.tensors, "first": state.first_moments, "second": state.second_moments}
        tensors = {f"{kind}.{n}": t.contiguous() for kind, group in groups.items() for n, t in group.items()}
        # Data order and random numbers are functions of the recipe's seed, which run.json keeps, and of the step.
        stamp = {"step": str(state.step), "run": self.about()["hash"]}
        # One entry, since safetensors writes several in an order drawn anew each time.
        metadata = {"state": json.dumps({**stamp, "hash": _hash(tensors, **stamp)})}
        write_atomic(self.path / "state.safetensors", lambda temp: save_file(tensors, temp, metadata))

    def load_state(self, fresh: State) -> State:
        """The last checkpoint, laid out in memory like `fresh`, in its own dtype; `fresh` when nothing was saved yet.

        Raises FileProblem when it is damaged or belongs to another run or a model of other shapes.
        """
        path = self.path / "state.safetensors"
        if not path.exists():
            return fresh
        tensors, metadata = _read(path)
        parts: list[dict[str, torch.Tensor]] = []
        for kind, group in (
            ("tensor", fresh.tensors),
            ("first", fresh.first_moments),
            ("second", fresh.second_moments),
        ):
            # Tensors without entries (no layers) have no moments: the optimiser never sees them.
            wanted = {n: f"{kind}.{n}" for n, t in group.items() if kind == "tensor" or t.numel()}
            if any(key not in tensors or tensors[key].shape != group[n].shape for n, key in wanted.items()):
                raise FileProblem("a checkpoint of another model", where=str(path))
            parts.append(
                {n: torch.empty_like(group[n], dtype=(t := tensors[key]).dtype).copy_(t) for n, key in wanted.items()}
            )
        try:
            stamp = {n: str(text) for n, text in json.loads(metadata["state"]).items()}
            step = int(stamp["step"])
        except (KeyError, ValueError, AttributeError, RecursionError) as error:
            raise FileProblem("a checkpoint that does not say its step", where=str(path)) from error
        _check_hash(path, stamp.pop("hash", ""), _hash(tensors, **stamp))
        if stamp.get("run") != self.about()["hash"]:
            raise FileProblem("a checkpoint of another run", where=str(path), expected=self.about()["hash"])
        return State(step, *parts)

    def log(self, **entry: Any) -> None:
        """Append one line of losses; a line cut by a crash is the reader's to skip."""
        try:
            with open(self.path / "log.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise WriteProblem("the log cannot be written", where=str(self.path), got=error.strerror) from error


def _hash(tensors: Mapping[str, torch.Tensor], **stamp: str) -> str:
    return content_hash(
        [
            *((name, raw_bytes(t)) for name, t in tensors.items()),
            *((f"stamp {n}", v.encode()) for n, v in stamp.items()),
        ]
    )


def _hash_of_json(about: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in about.items() if name != "hash"}
    return content_hash([("about", json.dumps(rest, sort_keys=True).encode())])


def _check_hash(path: Path, expected: str, got: str) -> None:
    if expected != got:
        raise FileProblem(
            "damaged: its content hash differs" if expected else "without a content hash, as of an older Headway",
            where=str(path),
            expected=expected or None,
            got=got if expected else None,
            next_step=f"Nothing was trained on it. {_LOST}",
        )


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        return load_file(path), metadata
    except FileNotFoundError as error:
        raise FileProblem("missing", where=str(path), next_step=_LOST) from error
    except (SafetensorError, OSError) as error:
        raise FileProblem("truncated or damaged", where=str(path), got=str(error), next_step=_LOST) from error
