"""A training run on disk: what it trains on, where it stands, and the weights it has left behind.

RUN/run.json              recipe, corpus (description, hash, licence), tokenizer
RUN/data.safetensors      token ids of the three splits, so that resuming needs no text
RUN/state.safetensors     tensors and moments after the last saved step (replaced in one rename)
RUN/log.jsonl             losses
RUN/snapshots/step-N.safetensors   weights on the way
RUN/model.safetensors     the finished model with its card
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from headway.errors import FileProblem, UnknownName, UsageError, WriteProblem
from headway.sources.trained.corpus import SPLITS
from headway.sources.trained.loop import State
from headway.sources.trained.recipes import Recipe
from headway.tables.atomic import write_atomic, write_bytes_atomic

_SNAPSHOT = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def exists(self) -> bool:
        """Whether a run was ever started here."""
        return (self.path / "run.json").is_file()

    @property
    def model_path(self) -> Path:
        """Where the finished model lies."""
        return self.path / "model.safetensors"

    def start(self, about: Mapping[str, Any], ids: Mapping[str, np.ndarray]) -> None:
        """Lay out a new run. Raises UsageError when the folder already holds one or other files."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise UsageError(
                "the run folder is not empty",
                where=str(self.path),
                next_step="Add --resume to go on with it, or name another with -o",
            )
        try:
            (self.path / "snapshots").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteProblem("the run folder cannot be made", where=str(self.path), got=error.strerror) from error
        tensors = {name: torch.from_numpy(ids[name].astype(np.int32)) for name in SPLITS}
        write_atomic(self.path / "data.safetensors", lambda temp: save_file(tensors, temp))
        # run.json last: its presence says that everything before it is whole.
        write_bytes_atomic(self.path / "run.json", json.dumps(about, indent=1, ensure_ascii=False).encode())

    def about(self) -> dict[str, Any]:
        """The contents of run.json. Raises FileProblem when it is missing or damaged."""
        try:
            return json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise FileProblem("no training run here", where=str(self.path), expected="run.json") from error
        except ValueError as error:
            raise FileProblem("damaged", where=str(self.path / "run.json"), got=str(error)) from error

    def ids(self) -> dict[str, np.ndarray]:
        """Token ids of the splits."""
        return {n: t.numpy().astype(np.int64) for n, t in _read(self.path / "data.safetensors")[0].items()}

    def save_state(self, state: State, recipe: Recipe) -> None:
        """Replace the checkpoint; the earlier one stays intact until the new one is complete."""
        groups = {"tensor": state.tensors, "first": state.first_moments, "second": state.second_moments}
        tensors = {f"{kind}.{n}": t.contiguous() for kind, group in groups.items() for n, t in group.items()}
        # Data order and random numbers are functions of (seed, step): these two numbers are the generator's whole state.
        metadata = {"step": str(state.step), "seed": str(recipe.seed)}
        write_atomic(self.path / "state.safetensors", lambda temp: save_file(tensors, temp, metadata))

    def load_state(self, fresh: State) -> State:
        """The last checkpoint, laid out in memory like `fresh`; `fresh` itself when nothing was saved yet."""
        if not (self.path / "state.safetensors").exists():
            return fresh
        tensors, metadata = _read(self.path / "state.safetensors")
        parts: list[dict[str, torch.Tensor]] = []
        for kind, group in (
            ("tensor", fresh.tensors),
            ("first", fresh.first_moments),
            ("second", fresh.second_moments),
        ):
            wanted = {n: f"{kind}.{n}" for n in group if f"{kind}.{n}" in tensors}
            parts.append({n: torch.empty_like(group[n]).copy_(tensors[key]) for n, key in wanted.items()})
        if set(parts[0]) != set(fresh.tensors) or "step" not in metadata:
            raise FileProblem("a checkpoint of another model", where=str(self.path / "state.safetensors"))
        return State(int(metadata["step"]), *parts)

    def log(self, **entry: Any) -> None:
        """Append one line of losses; a line cut by a crash is the reader's to skip."""
        try:
            with open(self.path / "log.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise WriteProblem("the log cannot be written", where=str(self.path), got=error.strerror) from error

    def snapshot_path(self, step: int) -> Path:
        """Where the weights after a step lie or would lie."""
        return self.path / "snapshots" / f"step-{step}.safetensors"

    def snapshots(self) -> list[int]:
        """Steps whose weights were kept, rising."""
        found = (_SNAPSHOT.fullmatch(p.name) for p in (self.path / "snapshots").glob("*.safetensors"))
        return sorted(int(m[1]) for m in found if m)

    def weights_path(self, step: str | None = None) -> Path:
        """The file behind RUN (finished model, else the newest snapshot) or RUN@STEP."""
        steps = self.snapshots()
        if step is None:
            if self.model_path.exists():
                return self.model_path
            if not steps:
                raise FileProblem(
                    "the run has kept no weights yet", where=str(self.path), next_step="Train on with --resume"
                )
            return self.snapshot_path(steps[-1])
        if not step.isdigit() or int(step) not in steps:
            raise UnknownName(f"no snapshot at step {step}", where=str(self.path), expected=f"one of {steps}")
        return self.snapshot_path(int(step))


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        return load_file(path), metadata
    except FileNotFoundError as error:
        raise FileProblem("missing", where=str(path)) from error
    except (SafetensorError, OSError) as error:
        raise FileProblem("truncated or damaged", where=str(path), got=str(error)) from error
