"""Which files a training run has on disk, found without torch: `inspect` and `load` go through here.

RUN/run.json              recipe, corpus (description, hash, licence), tokenizer
RUN/data.safetensors      token ids of the three splits, so that resuming needs no text
RUN/state.safetensors     tensors and moments after the last saved step (replaced in one rename)
RUN/log.jsonl             losses
RUN/snapshots/step-N.safetensors   weights on the way
RUN/model.safetensors     the finished model with its card
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from headway.errors import FileProblem, UnknownName

_SNAPSHOT = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True)
class RunPaths:
    """The folder of one run."""

    path: Path

    @property
    def exists(self) -> bool:
        """Whether a run was ever started here."""
        return os.path.isfile(self.path / "run.json")  # noqa: PTH113 - Path.is_file raises for a name that is too long

    @property
    def model_path(self) -> Path:
        """Where the finished model lies."""
        return self.path / "model.safetensors"

    def snapshot_path(self, step: int) -> Path:
        """Where the weights after a step lie or would lie."""
        return self.path / "snapshots" / f"step-{step}.safetensors"

    def snapshots(self) -> list[int]:
        """Steps whose weights were kept, rising."""
        found = (_SNAPSHOT.fullmatch(p.name) for p in (self.path / "snapshots").glob("*.safetensors"))
        return sorted(int(m[1]) for m in found if m)

    def weights_path(self, step: str | None = None) -> Path:
        """The file behind RUN (finished model, else the newest snapshot) or RUN@STEP.

        Raises FileProblem when no weights were kept yet, UnknownName for a step that is not among the snapshots.
        """
        steps = self.snapshots()
        if step is None:
            if self.model_path.exists():
                return self.model_path
            if not steps:
                raise FileProblem(
                    "the run has kept no weights yet", where=str(self.path), next_step="Train on with --resume"
                )
            return self.snapshot_path(steps[-1])
        if not step.isdecimal() or int(step) not in steps:
            kept = f"one of {steps}" if steps else "no snapshots kept yet"
            raise UnknownName(f"no snapshot at step {step}", where=str(self.path), expected=kept)
        return self.snapshot_path(int(step))
