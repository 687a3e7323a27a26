"""Which text a model is studied on: the user's, the held-out text it carries, or a small packaged sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from jaxtyping import Int

from headway.errors import TextProblem, TokenProblem, UsageError
from headway.model.weights import Weights, check_weights
from headway.sources.trained.corpus import read_corpus
from headway.sources.trained.data import encode_files


@dataclass(frozen=True, eq=False)
class StudyText:
    """A row of token ids (BOS before each file, where the model has one) and what it is."""

    ids: Int[np.ndarray, " n"]
    description: str


def check_text(text: object) -> None:
    """Raise UsageError for what is no StudyText: a string, a path, a list of ids."""
    if text is not None and not isinstance(text, StudyText):
        hint = "study_text(weights, [file]) reads files; StudyText(ids, description) takes token ids"
        raise UsageError("not a text to study", expected="a StudyText", got=type(text).__name__, next_step=hint)


def study_text(weights: Weights, text: str | Path | Sequence[str | Path] | None = None) -> StudyText:
    """The text to study a model on.

    text: files or folders, or one, encoded by the model's own tokenizer. Without it: the held-out ids the model carries,
    else the packaged sample. Raises TextProblem when the text is missing, empty or not UTF-8, or when there is no
    tokenizer to read any text with, TokenProblem when the tokenizer is another model's.
    """
    check_weights(weights)
    if isinstance(text, str | Path):
        text = [text]
    if text is not None and not (isinstance(text, Sequence) and all(isinstance(part, str | Path) for part in text)):
        raise UsageError("text of a study", expected="files or folders by name", got=repr(text)[:60])
    if text is None and weights.carried is not None and weights.carried.heldout.size:
        return StudyText(weights.carried.heldout, "the held-out text the model carries")
    corpus = None if text is None else read_corpus(text)
    if weights.tokenizer is None:
        raise TextProblem(
            "this model has no tokenizer, so no text can be read",
            next_step="Pass token ids from Python: StudyText(ids, description)",
        )
    if corpus is None:
        sample = resources.files("headway.studies").joinpath("sample.txt").read_text(encoding="utf-8")
        files, description = (("sample", sample),), "the packaged sample text"
    else:
        files, description = corpus.files, corpus.description
    ids = encode_files(files, weights.tokenizer)
    if ids.size and ids.max() >= weights.config.d_vocab:
        raise TokenProblem(
            "the tokenizer gives ids the model does not know",
            expected=f"0 .. d_vocab-1={weights.config.d_vocab - 1}",
            got=int(ids.max()),
            next_step="Use the tokenizer the model was trained with",
        )
    return StudyText(ids, description)
