"""Ids of any integer type give the same numbers; what is none ends in one typed sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from headway.behaviour.icl import in_context_score, loss_by_position
from headway.behaviour.repeated import induction_gain, prefix_matching_scores, repeated_tokens
from headway.behaviour.windows import text_windows, window_losses
from headway.circuits.copying import copying_scores
from headway.errors import HeadwayError, ShapeProblem, TokenProblem, UsageError
from headway.model.forward import logits, run
from headway.paths.importance import term_importance
from support.random_models import random_tokens, random_weights
from support.unchecked import as_users_run_it

WEIGHTS = random_weights(positions="learned", norm="layer")
TOKENS = random_tokens(WEIGHTS, n=10)
KEEP = torch.ones_like(TOKENS, dtype=torch.bool)
NARROW = (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_any_integer_type_is_an_id(dtype: torch.dtype):
    tokens = TOKENS.to(dtype)
    with as_users_run_it():
        assert torch.equal(logits(WEIGHTS, tokens, keep=KEEP), logits(WEIGHTS, TOKENS, keep=KEEP))
        assert torch.equal(run(WEIGHTS, tokens).logits, run(WEIGHTS, TOKENS).logits)
        assert torch.equal(window_losses(WEIGHTS, tokens), window_losses(WEIGHTS, TOKENS))
        assert term_importance(WEIGHTS, tokens).rows() == term_importance(WEIGHTS, TOKENS).rows()
        assert torch.equal(
            text_windows(tokens.repeat(1, 2)[0], WEIGHTS.config), text_windows(TOKENS.repeat(1, 2)[0], WEIGHTS.config)
        )
        assert loss_by_position(WEIGHTS, tokens).rows() == loss_by_position(WEIGHTS, TOKENS).rows()
        pool = torch.arange(1, 13).to(dtype)
        drawn = [repeated_tokens(WEIGHTS.config, length=5, copies=2, pool=p) for p in (pool, pool.long())]
        assert torch.equal(*drawn)


def test_numpy_ids_of_a_text():
    ids = np.arange(40) % 13
    wanted = text_windows(ids, WEIGHTS.config)
    for given in (ids.astype(np.uint16), ids.astype(np.int32), ids.tolist()):
        assert torch.equal(text_windows(given, WEIGHTS.config), wanted)


ROWS = TOKENS.tolist()
CASES: dict[str, tuple[Callable[[], Any], type[HeadwayError], str]] = {
    "list": (lambda: logits(WEIGHTS, ROWS), ShapeProblem, r"tokens.*got list. Make a tensor.*torch.tensor"),  # type: ignore[arg-type]
    "numpy": (lambda: run(WEIGHTS, TOKENS.numpy()), ShapeProblem, r"tokens.*got ndarray. Make a tensor"),  # type: ignore[arg-type]
    "bool": (lambda: logits(WEIGHTS, KEEP), ShapeProblem, r"tokens; expected whole-number ids \(batch, pos\)"),
    "float": (lambda: logits(WEIGHTS, TOKENS.float()), ShapeProblem, "tokens.*float32"),
    "row": (lambda: logits(WEIGHTS, TOKENS[0]), ShapeProblem, r"tokens.*\(batch, pos\), got \(10,\)"),
    "large": (lambda: logits(WEIGHTS, (TOKENS + 250).to(torch.uint8)), TokenProblem, "token ids; expected 0"),
    "keep list": (lambda: logits(WEIGHTS, TOKENS, keep=KEEP.tolist()), ShapeProblem, "keep.*bool tensor.*got list"),  # type: ignore[arg-type]
    "keep ints": (lambda: run(WEIGHTS, TOKENS, keep=KEEP.long()), ShapeProblem, "keep.*bool tensor.*int64"),
    "windows": (lambda: window_losses(WEIGHTS, ROWS), ShapeProblem, r"windows.*\(window, pos\), got list"),  # type: ignore[arg-type]
    "terms": (lambda: term_importance(WEIGHTS, ROWS), ShapeProblem, r"windows.*\(window, pos\), got list"),  # type: ignore[arg-type]
    "words": (lambda: text_windows(["a", "b"], WEIGHTS.config), ShapeProblem, "token ids of a text"),  # type: ignore[list-item]
    "half a window": (lambda: text_windows([1] * 40, WEIGHTS.config, limit=2.5), UsageError, "limit >= 1.*2.5"),  # type: ignore[arg-type]
    "half a row": (lambda: window_losses(WEIGHTS, TOKENS, rows=2.5), UsageError, "rows >= 1.*2.5"),  # type: ignore[arg-type]
    "late 3": (lambda: in_context_score(WEIGHTS, TOKENS, late=(1, 2, 3)), UsageError, "late positions"),  # type: ignore[arg-type]
    "late text": (lambda: in_context_score(WEIGHTS, TOKENS, late="x"), UsageError, "late positions.*'x'"),  # type: ignore[arg-type]
    "late half": (lambda: in_context_score(WEIGHTS, TOKENS, late=3.5), UsageError, "late positions.*3.5"),  # type: ignore[arg-type]
    "losses": (lambda: loss_by_position(WEIGHTS, TOKENS, losses=[1.0]), ShapeProblem, "losses.*got list"),  # type: ignore[arg-type]
    "pool list": (
        lambda: repeated_tokens(9, length=2, pool=[1, 2]),  # type: ignore[arg-type]
        ShapeProblem,
        r"pool of tokens.*\(pool\), got list",
    ),  # type: ignore[arg-type]
    "pool float": (lambda: repeated_tokens(9, length=2, pool=torch.ones(3)), ShapeProblem, "pool of tokens.*float32"),
    "pool small": (lambda: repeated_tokens(9, length=4, pool=torch.arange(3)), UsageError, "length is at most 3"),
    "vocabulary": (lambda: repeated_tokens(2.5), UsageError, "a vocabulary size"),  # type: ignore[arg-type]
    "seed": (lambda: repeated_tokens(9, length=2, seed=-1), UsageError, "a seed.*-1"),
    "seed gain": (lambda: induction_gain(WEIGHTS, length=5, seed=1.5), UsageError, "a seed.*1.5"),  # type: ignore[arg-type]
    "seed prefix": (lambda: prefix_matching_scores(WEIGHTS, length=3, seed=-1), UsageError, "a seed"),
    "seed copying": (lambda: copying_scores(WEIGHTS, seed="x"), UsageError, "a seed.*'x'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CASES)
def test_one_typed_sentence(name: str):
    call, kind, words = CASES[name]
    with as_users_run_it(), pytest.raises(kind, match=words):
        call()
