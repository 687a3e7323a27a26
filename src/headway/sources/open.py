"""Which door a reference goes through: `load` opens it, `inspect` reads what the file says of itself, without torch.

zoo:NAME              a packaged model                PATH.safetensors     an archive of ours
RUN or RUN@STEP       a training run                  anything else        refused by name, with the next step
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import FileProblem, NotBuilt, UsageError, did_you_mean
from headway.sources.trained.run_paths import RunPaths
from headway.sources.zoo.packaged import ZOO, zoo_path
from headway.tables.table import Table

if TYPE_CHECKING:
    from headway.model.weights import Weights

_PICKLES = {".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle"}
_PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_ENTRIES_READ = 1000  # of a folder, when looking for a near name


def load(ref: str | Path) -> Weights:
    """The model behind a reference, exactly as it was stored: nothing is folded, centred or downloaded.

    ref: `zoo:two-layer`, the path of an archive, a training RUN (its finished model, else its newest snapshot) or
    `RUN@STEP`, whose weights take along the texts of the run. Raises FileProblem for what is missing, damaged or
    foreign, UnknownName for a name that does not exist, NotBuilt for formats known but not read by this version.

    >>> load("zoo:three-layer")
    Traceback (most recent call last):
    headway.errors.UnknownName: no model 'three-layer' in the zoo. Did you mean two-layer or one-layer or zero-layer?
    """
    path = locate(ref)
    from headway.model.archive import load as load_archive

    weights = load_archive(path)
    run = path.parent.parent
    if weights.carried is None and path.parent.name == "snapshots" and (run / "data.safetensors").is_file():
        from headway.sources.trained.run_folder import RunFolder

        weights = weights.replace(carried=RunFolder(run).carried(weights.config.bos or 0))
    return weights


def inspect(ref: str | Path) -> Table:
    """What a model is and which analyses apply to it and why, from the header of its file: no tensor is read.

    One row a property (`section`, `name`, `value`, `note`); the section `analyses` has the value yes or no and the reason
    as its note. `meta` holds config and card for programs. References and errors as for `load`.
    """
    path = locate(ref)
    from headway.model.header import read_header
    from headway.sources.describe import description

    return description(read_header(path), path)


def locate(ref: str | Path) -> Path:
    """The archive behind a reference. Raises as `load`; whether the file is whole is not looked at yet."""
    if not isinstance(ref, str | Path) or not str(ref):
        raise UsageError("not a model", expected="a path or zoo:NAME", got=repr(ref))
    text = str(ref)
    try:
        return _located(ref, text)
    except (OSError, ValueError) as error:
        raise FileProblem(
            "cannot be looked for", where=text[:80], got=getattr(error, "strerror", None) or error
        ) from error


def _located(ref: str | Path, text: str) -> Path:
    if text.startswith("zoo:"):
        return zoo_path(text.removeprefix("zoo:"))
    path = Path(ref).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        return _checked_file(path)
    folder, at, step = text.rpartition("@")
    if at and Path(folder).expanduser().is_dir():
        return _run(Path(folder).expanduser()).weights_path(step)
    if at and Path(folder).expanduser().is_file():
        raise FileProblem("no such model", where=text, next_step=f"Only a training run has steps: leave out @{step}")
    raise FileProblem("no such model", where=text, next_step=_nearby(text, path))


def _in_folder(path: Path) -> Path:
    if (path / "run.json").is_file():
        return RunPaths(path).weights_path()
    if (path / "config.json").is_file():
        raise NotBuilt(
            "a Hugging Face folder, which this version does not read yet",
            where=str(path),
            next_step="Build it from its arrays: hw.Weights.from_tensors(tensors, convention=...)",
        )
    return _run(path).weights_path()


def _run(path: Path) -> RunPaths:
    run = RunPaths(path)
    if not run.exists:
        archives = sorted(p.name for p in path.glob("*.safetensors"))[:3]
        hint = (
            f"Name the file itself: {path / archives[0]}" if archives else "Train one: headway train two-layer -o RUN"
        )
        raise FileProblem("a folder, but no training run", where=str(path), expected="run.json in it", next_step=hint)
    return run


def _checked_file(path: Path) -> Path:
    """The file itself, unless its name or first bytes say that it is of a kind never opened, or not yet."""
    if not path.is_file():
        raise FileProblem("not a regular file", where=str(path), expected="an archive or a training run")
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        raise FileProblem("cannot be read", where=str(path), got=error.strerror) from error
    if path.suffix == ".gguf" or start == b"GGUF":
        raise NotBuilt(
            "a GGUF file, which this version does not read yet",
            where=str(path),
            next_step="Build it from its arrays: hw.Weights.from_tensors(tensors, convention=...)",
        )
    if path.suffix in _PICKLES or start.startswith(_PICKLE_STARTS):
        raise FileProblem(
            "a pickled checkpoint: opening one can run any program, so Headway never does",
            where=str(path),
            expected="safetensors",
            next_step="In a place you trust, read its tensors and pass them to hw.Weights.from_tensors",
        )
    return path


def _nearby(text: str, path: Path) -> str:
    """The nearest thing that does exist: a zoo name without `zoo:`, or a neighbour in the same folder."""
    if text in ZOO:
        return f"Did you mean zoo:{text}?"
    parent = path.parent
    if not parent.is_dir():
        return f"There is no folder {parent} either"
    names: list[str] = []
    try:
        for entry in parent.iterdir():
            names.append(entry.name)
            if len(names) == _ENTRIES_READ:
                break
    except OSError:
        return "Its folder cannot be read"
    zoo = [f"zoo:{name}" for name in ZOO]
    near = did_you_mean(path.name, names) if names else ""
    if not near.startswith("Did"):
        near = did_you_mean(text, zoo)
    return near if near.startswith("Did") else f"Give a path, or one of {', '.join(zoo)}; nothing is downloaded"
