"""Where the packaged models lie. Each is an archive with tokenizer, bigram counts, held-out text and a card."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from headway.errors import FileProblem, UnknownName, did_you_mean

ZOO = ("zero-layer", "one-layer", "two-layer")


def zoo_path(name: str) -> Path:
    """The archive of one packaged model. Raises UnknownName for another name, FileProblem when it was not installed.

    >>> zoo_path("models")
    Traceback (most recent call last):
    headway.errors.UnknownName: no model 'models' in the zoo. Known: zero-layer, one-layer, two-layer
    """
    if name not in ZOO:
        raise UnknownName(f"no model {name!r} in the zoo", next_step=did_you_mean(name, ZOO))
    path = Path(str(resources.files("headway.sources.zoo").joinpath(f"{name}.safetensors")))
    if not path.is_file():
        raise FileProblem(
            f"zoo:{name} is not in this installation",
            where=str(path),
            next_step=f"Install headway from a wheel, or build the model: headway train {name} -o RUN",
        )
    return path
