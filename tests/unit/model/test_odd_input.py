"""What users hand over by mistake ends in one typed sentence, never in a torch traceback."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import ConfigProblem, HeadwayError, NotFinite, ShapeProblem, UnknownName, UsageError
from headway.ids import HeadId, PathId
from headway.model.config import ModelConfig
from headway.model.conventions import from_tensors
from headway.model.forward import logits, run
from headway.model.head import Head, same_head
from headway.model.process import processed
from headway.model.weights import Weights
from support.random_models import random_tokens, random_weights
from support.unchecked import as_users_run_it

WEIGHTS = random_weights(norm="layer")
TOKENS = random_tokens(WEIGHTS)
PARTS = WEIGHTS.tensors()
EYE = torch.eye(4)
HEAD = WEIGHTS.head("L0H0")
CONFIG = WEIGHTS.config.to_dict()


def edited(edit: Any) -> Any:
    return run(WEIGHTS, TOKENS, edit=edit)


def given(**changed: Any) -> Any:
    return from_tensors({**PARTS, **changed}, n_ctx=16, norm="layer")


CASES: dict[str, tuple[Callable[[], Any], type[HeadwayError], str]] = {
    "1-d W_Q": (lambda: Head(W_Q=EYE[0], W_K=EYE, W_V=EYE, W_O=EYE), ShapeProblem, r"W_Q.*\(d_head, d_model\)"),
    "list": (lambda: Head(W_Q=[[1.0]], W_K=EYE, W_V=EYE, W_O=EYE), ShapeProblem, "W_Q.*got list"),  # type: ignore[arg-type]
    "1-d W_K": (lambda: Head(W_Q=EYE, W_K=EYE[0], W_V=EYE, W_O=EYE), ShapeProblem, "W_K.*as in W_Q"),
    "mixed": (lambda: Head(W_Q=EYE, W_K=EYE.double(), W_V=EYE, W_O=EYE), ShapeProblem, "W_K.*float32 as W_Q"),
    "integers": (lambda: Head(W_Q=EYE.long(), W_K=EYE, W_V=EYE, W_O=EYE), ShapeProblem, "W_Q.*floating-point"),
    "1-d circuit": (lambda: Head.from_circuits(EYE[0], EYE, d_head=4), ShapeProblem, "W_QK.*d_model, d_model"),
    "odd circuit": (lambda: Head.from_circuits(EYE, EYE[:2], d_head=4), ShapeProblem, "W_OV.*d_model, d_model"),
    "NaN circuit": (lambda: Head.from_circuits(EYE, EYE * torch.nan, d_head=4), NotFinite, "W_OV holds NaN"),
    "d_head": (lambda: Head.from_circuits(EYE, EYE, d_head=2.5), UsageError, "d_head.*whole number"),  # type: ignore[arg-type]
    "rank": (lambda: Head.from_circuits(EYE, EYE, d_head=3), ShapeProblem, "rank of W_QK.*d_head=3, got 4"),
    "head 3": (lambda: WEIGHTS.head(3), UnknownName, "not a head.*L1H3"),  # type: ignore[arg-type]
    "head pair": (lambda: WEIGHTS.head((1, 3)), UnknownName, "not a head"),  # type: ignore[arg-type]
    "path 3": (lambda: PathId.parse(3), UnknownName, "not a path"),  # type: ignore[arg-type]
    "no config": (lambda: ModelConfig.from_dict(None), ConfigProblem, "named fields, got NoneType"),  # type: ignore[arg-type]
    "config list": (lambda: ModelConfig.from_dict([1]), ConfigProblem, "named fields, got list"),  # type: ignore[arg-type]
    "config 3": (lambda: ModelConfig.from_dict({3: 4}), ConfigProblem, "unknown config field 3"),  # type: ignore[dict-item]
    "edit list": (lambda: edited({"L0H1.pattern": [0.0]}), ShapeProblem, "edit of L0H1.pattern.*function, got list"),
    "edit none": (lambda: edited({"L0H1.pattern": lambda t: None}), ShapeProblem, "edit of L0H1.pattern.*NoneType"),
    "edit of complex": (
        lambda: edited({"L0H1.pattern": lambda t: t.to(torch.complex128)}),
        ShapeProblem,
        "edit of L0H1.pattern; expected a tensor.*complex",
    ),
    "misspelt part": (lambda: edited({"L0H1.patern": EYE}), UnknownName, r"Did you mean L0H1\.pattern\?"),
    "lower case": (lambda: edited({"l0h1.scores": EYE}), UnknownName, r"Did you mean L0H1\.scores\?"),
    "misspelt logits": (lambda: edited({"logit": EYE}), UnknownName, r"Did you mean logits\?"),
    "edits": (lambda: edited([("L0H1.pattern", EYE)]), UsageError, "edit.*got list"),
    "site": (lambda: edited({3: EYE}), UnknownName, "no such edit site"),
    "no tensors": (lambda: from_tensors(None, n_ctx=3), ShapeProblem, "arrays by name.*got NoneType"),  # type: ignore[arg-type]
    "name 3": (lambda: from_tensors({3: EYE}, n_ctx=3), UnknownName, "unknown tensor 3"),  # type: ignore[dict-item]
    "two names": (lambda: given(**{"embed.W_E": PARTS["W_E"]}), ShapeProblem, "W_E is given twice"),
    "layer twice": (lambda: given(**{"blocks.0.attn.W_Q": PARTS["W_Q"][0]}), ShapeProblem, "W_Q is given twice"),
    "tokenizer": (
        lambda: from_tensors(PARTS, n_ctx=16, norm="layer", tokenizer="gpt2"),  # type: ignore[arg-type]
        UsageError,
        "tokenizer of a model; expected a Tokenizer, got str",
    ),
    "config": (lambda: Weights(config=None, **PARTS), UsageError, "config of a model"),  # type: ignore[arg-type]
    "field": (lambda: WEIGHTS.replace(W_q=EYE), UnknownName, r"unknown field 'W_q'.*W_Q"),
    "dtype": (lambda: WEIGHTS.to("float32"), UsageError, "no precision.*'float32'"),  # type: ignore[arg-type]
    "whole dtype": (lambda: WEIGHTS.to(torch.int32), UsageError, "no precision.*int32"),
    "device": (lambda: WEIGHTS.to(device="abacus"), UsageError, "no such device here.*'abacus'"),
    "circuit list": (lambda: Head.from_circuits([[1.0]], EYE, d_head=4), ShapeProblem, "W_QK.*got list"),  # type: ignore[arg-type]
    "no circuit": (lambda: Head.from_circuits(EYE[:0, :0], EYE, d_head=4), ShapeProblem, r"W_QK.*\(0, 0\)"),
    "scale": (lambda: Head.from_circuits(EYE, EYE, d_head=4, attn_scale=math.nan), UsageError, "attn_scale.*got nan"),
    "same None": (lambda: same_head(WEIGHTS.head("L0H0"), None), UsageError, "not a head.*NoneType"),  # type: ignore[arg-type]
    "same name": (lambda: same_head("L0H0", WEIGHTS.head("L0H0")), UsageError, "not a head.*'L0H0'"),  # type: ignore[arg-type]
    "rtol": (lambda: same_head(HEAD, HEAD, rtol=math.nan), UsageError, "rtol; expected a number >= 0"),
    "model name": (lambda: processed("zoo:two-layer", "raw"), UsageError, "not a model.*'zoo:two-layer'.*headway.load"),  # type: ignore[arg-type]
    "float id": (lambda: HeadId(1.0, 0), UsageError, "layer of a head id.*got 1.0"),  # type: ignore[arg-type]
    "true id": (lambda: HeadId(0, True), UsageError, "head of a head id.*got True"),
    "huge scale": (lambda: ModelConfig.from_dict({**CONFIG, "attn_scale": 10**400}), ConfigProblem, "attn_scale"),
    "misspelt field": (lambda: ModelConfig.from_dict({**CONFIG, "n_head": 2}), ConfigProblem, "Did you mean n_heads"),
    "kv heads": (lambda: ModelConfig.from_dict({**CONFIG, "n_kv_heads": 3}), ConfigProblem, "n_kv_heads must divide"),
    "no kv heads": (
        lambda: ModelConfig.from_dict({**CONFIG, "n_kv_heads": 0}),
        ConfigProblem,
        "n_kv_heads must divide",
    ),
    "0-d": (lambda: given(W_Q=1.0), ShapeProblem, r"W_Q; expected axes \(n_layers, n_heads, d_head, d_model\)"),
    "1-d": (lambda: given(W_O=np.ones(3)), ShapeProblem, "W_O; expected axes"),
    "ragged": (lambda: given(W_V=[[1.0], [1.0, 2.0]]), ShapeProblem, "W_V; expected a tensor, array or nested"),
    "text": (lambda: given(W_E="weights"), ShapeProblem, "W_E; expected a tensor, array or nested"),
    "whole": (lambda: given(W_E=PARTS["W_E"].long()), ShapeProblem, "W_E.*floating-point"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_typed_sentence(name: str):
    call, kind, words = CASES[name]
    with as_users_run_it(), pytest.raises(kind, match=words):
        call()


def test_layers_of_different_shape_are_named():
    plain = {n: t for n, t in PARTS.items() if n != "W_Q"}
    uneven = {"blocks.0.attn.W_Q": PARTS["W_Q"][0], "blocks.1.attn.W_Q": PARTS["W_Q"][1][:2]}
    with pytest.raises(ShapeProblem, match="layers of W_Q; expected one shape"):
        from_tensors({**plain, **uneven}, n_ctx=16)


def test_layers_of_different_precision_are_named():
    plain = {n: t for n, t in PARTS.items() if n != "W_Q"}
    mixed = {"blocks.0.attn.W_Q": PARTS["W_Q"][0], "blocks.1.attn.W_Q": PARTS["W_Q"][1].float()}
    with pytest.raises(ShapeProblem, match=r"layers of W_Q.*float32"):
        from_tensors({**plain, **mixed}, n_ctx=16)


def test_ids_of_any_integer_type_are_the_same_id():
    with as_users_run_it():
        found = HeadId(np.int64(1), np.uint8(2))  # type: ignore[arg-type]
    assert found == HeadId(1, 2) and type(found.layer) is int


def test_tied_stays_tied():
    tied = random_weights(tied=True, biases="none")
    for moved in (tied.to(torch.float32), tied.to(device="cpu"), tied.to(torch.bfloat16).to(torch.float64)):
        assert moved.tied
        assert torch.equal(moved.W_U, moved.W_E.T)
    assert tied.replace(b_U=torch.ones(13, dtype=torch.float64)).tied
    assert not tied.replace(W_U=tied.W_U.clone()).tied
    assert not random_weights().to(torch.float32).tied


@pytest.mark.parametrize("scale", [-1.0, 0.0, -0.3])
def test_any_finite_scale_is_a_scale(scale: float):
    weights = random_weights(attn_scale=scale)
    assert weights.config.attn_scale == scale == ModelConfig.from_dict(weights.config.to_dict()).attn_scale
    tokens = random_tokens(weights)
    torch.testing.assert_close(logits(weights, tokens), run(weights, tokens).logits, rtol=1e-9, atol=1e-9)
    found = run(weights, tokens)
    q = torch.einsum("hqd,bpd->bhpq", weights.W_Q[0], found.streams[0]) + weights.b_Q[0][:, None]  # type: ignore[index]
    k = torch.einsum("hqd,bpd->bhpq", weights.W_K[0], found.streams[0]) + weights.b_K[0][:, None]  # type: ignore[index]
    score = scale * q @ k.repeat_interleave(2, dim=1).mT
    allowed = found.allowed[:, None].expand_as(score)
    torch.testing.assert_close(found.scores[0][allowed], score[allowed], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), "1", True])
def test_a_scale_that_is_no_number_is_refused(scale: object):
    with as_users_run_it(), pytest.raises(ConfigProblem, match="attn_scale"):
        ModelConfig.from_dict({**WEIGHTS.config.to_dict(), "attn_scale": scale})


@pytest.mark.parametrize("name", ["n_layers", "n_heads", "d_model", "d_vocab"])
@pytest.mark.parametrize("value", [-1, 2.0, True, "2", None])
def test_a_size_that_is_no_whole_number_is_refused(name: str, value: object):
    with as_users_run_it(), pytest.raises(ConfigProblem, match=name):
        ModelConfig.from_dict({**WEIGHTS.config.to_dict(), name: value})
