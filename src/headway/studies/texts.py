"""Which text a model is studied on: the user's, the held-out text it carries, or a small packaged sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from jaxtyping import Int

from headway.errors import TextProblem, TokenProblem
from headway.model.weights import Weights
from headway.sources.trained.corpus import read_corpus
from headway.sources.trained.data import encode_files


@dataclass(frozen=True, eq=False)
class StudyText:
    """A row of token ids (BOS before each file, where the model has one) and what it is."""

    ids: Int[np.ndarray, " n"]
    description: str


def study_text(weights: Weights, text: Sequence[str | Path] | None = None) -> StudyText:
    """The text to study a model on.

    text: files or folders, encoded by the model's own tokenizer. Without it: the held-out ids the model carries, else
    the packaged sample. Raises TextProblem when the text is missing, empty or not UTF-8, or when there is no tokenizer
    to read any text with.
    """
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
        raise TokenProblem("the tokenizer gives ids the model does not know", expected=f"< {weights.config.d_vocab}")
    return StudyText(ids, description)
