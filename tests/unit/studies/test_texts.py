"""Which text is studied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.errors import FileProblem, TextProblem, TokenProblem, UsageError
from headway.model.carried import Carried
from headway.model.weights import Weights
from headway.sources.handmade.induction import induction_model
from headway.sources.trained.bpe import train_bpe
from headway.studies.texts import study_text
from support.unchecked import as_users_run_it

TOKENIZER = train_bpe(["the quick brown fox " * 50, "jumps over the lazy dog " * 50], 280)


def model(*, carried: bool = False) -> Weights:
    weights = induction_model(d_vocab=280, n_ctx=16).weights.replace(tokenizer=TOKENIZER)
    held = Carried(np.zeros((3, 0), dtype=np.int64), np.array([0, 1]), np.array([0, 5, 6]))
    return weights.replace(carried=held) if carried else weights


def test_held_out_text_comes_first_and_a_users_text_before_it(tmp_path: Path) -> None:
    assert study_text(model(carried=True)).ids.tolist() == [0, 5, 6]
    (tmp_path / "a.txt").write_text("the fox", encoding="utf-8")
    ids = study_text(model(carried=True), [tmp_path / "a.txt"]).ids
    assert ids[0] == 0 and TOKENIZER.decode(ids[1:].tolist()) == "the fox"


def test_a_model_that_carries_no_text_reads_the_sample() -> None:
    found = study_text(model())
    assert "sample" in found.description and "Marrow Point" in TOKENIZER.decode(found.ids.tolist())


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", TextProblem), (b" \n", TextProblem), (b"\xff\xfe\x00bad", TextProblem), (None, FileProblem)],
)
def test_bad_text_is_refused(tmp_path: Path, content: bytes | None, error: type[Exception]) -> None:
    path = tmp_path / "t.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=r"t\.txt"):
        study_text(model(), [path])


def test_one_file_needs_no_list(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("the fox", encoding="utf-8")
    for name in (path, str(path)):
        assert study_text(model(), name).ids.tolist() == study_text(model(), [path]).ids.tolist()


@pytest.mark.parametrize("text", [3, [3], {"a.txt"}])
def test_what_names_no_file_is_refused(text: object) -> None:
    with as_users_run_it(), pytest.raises(UsageError, match="text of a study; expected files or folders"):
        study_text(model(), text)  # type: ignore[arg-type]


def test_the_tokenizer_of_another_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the quick brown fox", encoding="utf-8")
    small = induction_model(d_vocab=20, n_ctx=16).weights
    object.__setattr__(
        small, "tokenizer", TOKENIZER
    )  # a model is checked when made; this one was changed behind its back
    with pytest.raises(TokenProblem, match=r"0 \.\. d_vocab-1=19, got \d+\. Use the tokenizer"):
        study_text(small, [tmp_path / "a.txt"])
