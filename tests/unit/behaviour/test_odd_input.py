"""Ids of any integer type give the same numbers; what is none ends in one typed sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from headway.behaviour.icl import in_context_score, loss_by_position
from headway.behaviour.observed import Observed
from headway.behaviour.patterns import pattern_scores
from headway.behaviour.repeated import (
    induction_gain,
    prefix_matching,
    prefix_matching_scores,
    repeated_tokens,
    token_pool,
)
from headway.behaviour.windows import text_windows, window_losses
from headway.circuits.copying import copying_scores
from headway.errors import HeadwayError, NotFinite, ShapeProblem, TokenProblem, UsageError
from headway.model.forward import logits, run
from headway.paths.expand import enumerate_paths, order_logits
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
RECORDING = run(WEIGHTS, TOKENS)
SEEN = RECORDING.patterns
NO_BOS = torch.cat((TOKENS[:1], TOKENS[1:] + (TOKENS[1:] == 0).long()))
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
    "observed bool": (lambda: Observed.from_arrays(SEEN, KEEP), ShapeProblem, "tokens.*torch.bool"),
    "observed words": (lambda: Observed.from_arrays(SEEN, [["a"]]), ShapeProblem, "tokens; expected a tensor, array"),
    "observed ragged": (
        lambda: Observed.from_arrays([[[1.0], [1.0, 2.0]]], TOKENS),
        ShapeProblem,
        "patterns of layer 0",
    ),
    "observed nothing": (lambda: Observed.from_arrays(None, TOKENS), ShapeProblem, "one array a layer, got NoneType"),
    "observed bos": (lambda: Observed.from_arrays(SEEN, TOKENS, bos=0.5), UsageError, "BOS.*0.5"),  # type: ignore[arg-type]
    "observed list": (lambda: Observed(SEEN, ROWS), ShapeProblem, "tokens.*got list"),  # type: ignore[arg-type]
    "one recording": (lambda: pattern_scores(RECORDING), UsageError, r"got Recording. Put a single one in a list"),  # type: ignore[arg-type]
    "recordings": (lambda: pattern_scores(["x"]), UsageError, "not a recording.*got str.*headway.run"),  # type: ignore[list-item]
    "no recording": (lambda: prefix_matching(None, 3), UsageError, "not a recording.*NoneType"),  # type: ignore[arg-type]
    "paths of weights": (lambda: list(enumerate_paths(WEIGHTS)), UsageError, "not a recording.*got Weights"),  # type: ignore[arg-type]
    "orders of 3": (lambda: list(order_logits(RECORDING, heads=3)), UsageError, r"heads of the paths.*L0H1"),  # type: ignore[arg-type]
    "exclude words": (lambda: token_pool(9, exclude=["x"]), TokenProblem, "leave out; expected a list"),  # type: ignore[list-item]
    "exclude half": (lambda: token_pool(9, exclude=[1.5]), TokenProblem, "leave out; expected a list"),  # type: ignore[list-item]
    "exclude 3": (lambda: token_pool(9, exclude=3), TokenProblem, "leave out; expected a list"),  # type: ignore[arg-type]
    "frequencies": (lambda: token_pool(3, frequencies=["a", "b", "c"]), ShapeProblem, r"frequencies.*d_vocab=3"),
    "NaN frequency": (lambda: token_pool(2, frequencies=[1.0, math.nan]), NotFinite, "frequencies"),
    "model name": (lambda: logits("zoo:two-layer", TOKENS), UsageError, "not a model.*headway.load"),  # type: ignore[arg-type]
    "model run": (lambda: run("zoo:two-layer", TOKENS), UsageError, "not a model.*headway.load"),  # type: ignore[arg-type]
    "model losses": (lambda: window_losses("x", TOKENS), UsageError, "not a model"),  # type: ignore[arg-type]
    "model gain": (lambda: induction_gain("x", length=5), UsageError, "not a model"),  # type: ignore[arg-type]
    "model prefix": (lambda: prefix_matching_scores("x"), UsageError, "not a model"),  # type: ignore[arg-type]
    "no BOS": (lambda: window_losses(WEIGHTS, NO_BOS), TokenProblem, "BOS, id 0.*2 of 3 windows.*text_windows"),
    "no BOS terms": (lambda: term_importance(WEIGHTS, NO_BOS), TokenProblem, "do not begin with BOS"),
    "no BOS score": (lambda: in_context_score(WEIGHTS, NO_BOS), TokenProblem, "do not begin with BOS"),
    "seed copying": (lambda: copying_scores(WEIGHTS, seed="x"), UsageError, "a seed.*'x'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CASES)
def test_one_typed_sentence(name: str):
    call, kind, words = CASES[name]
    with as_users_run_it(), pytest.raises(kind, match=words):
        call()


def test_a_model_without_bos_needs_none():
    free = random_weights(positions="learned", bos=None)
    assert window_losses(free, NO_BOS).shape == (3, 9)


def test_one_head_by_name_is_a_list_of_one():
    alone = list(order_logits(RECORDING, heads="L0H1"))
    assert all(torch.equal(a, b) for a, b in zip(alone, order_logits(RECORDING, heads=["L0H1"]), strict=True))


def test_observed_ids_are_int64_and_excluded_ids_may_be_an_array():
    assert Observed.from_arrays(SEEN, TOKENS.numpy().astype(np.uint16)).tokens.dtype == torch.int64
    with as_users_run_it():
        assert token_pool(5, exclude=np.array([1, 3])).tolist() == [0, 2, 4]  # type: ignore[arg-type]
