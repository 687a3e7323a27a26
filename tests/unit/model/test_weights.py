from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import NotFinite, ShapeProblem, TokenProblem, UnknownName
from headway.ids import HeadId
from headway.model.carried import Carried
from headway.model.weights import AXES
from headway.provenance import Provenance
from headway.tokens import Tokenizer
from support.random_models import random_weights
from support.unchecked import as_users_run_it

RICH = random_weights(norm="layer", positions="learned")


@pytest.mark.parametrize("name", list(RICH.tensors()))
def test_every_tensor_is_checked(name: str):
    tensor = getattr(RICH, name)
    for wrong in (tensor[..., :-1], tensor[None]):
        with as_users_run_it(), pytest.raises(ShapeProblem, match=rf"{name}; expected \(.*{AXES[name][-1]}="):
            RICH.replace(**{name: wrong})
    with as_users_run_it(), pytest.raises(ShapeProblem, match="floating-point"):
        RICH.replace(**{name: tensor.long()})


@pytest.mark.parametrize("name", ["W_E", "W_Q", "W_K", "W_V", "W_O", "W_U"])
def test_a_transposed_matrix_gets_a_hint(name: str):
    with as_users_run_it(), pytest.raises(ShapeProblem, match="stored transposed"):
        RICH.replace(**{name: getattr(RICH, name).mT})


def test_position_tables_and_norms_go_with_the_config():
    with pytest.raises(ShapeProblem, match="W_pos goes with"):
        RICH.replace(W_pos=None)
    plain = random_weights()
    with pytest.raises(ShapeProblem, match="W_pos goes with"):
        plain.replace(W_pos=RICH.W_pos)
    with pytest.raises(ShapeProblem, match=r"norm tensors without a norm.*final_gain"):
        plain.replace(final_gain=RICH.final_gain)
    with pytest.raises(ShapeProblem, match="shortformer"):
        plain.replace(W_Q_pos=plain.W_Q)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_found_and_placed(bad: float):
    W_K = RICH.W_K.clone()
    W_K[1, 0, 2, 3] = bad
    with pytest.raises(NotFinite, match=rf"W_K\[1, 0, 2, 3\] is {bad}.*n_layers, n_kv_heads"):
        RICH.replace(W_K=W_K).check_finite()
    assert RICH.check_finite() is RICH


def test_an_overflowing_sum_of_finite_numbers_is_finite():
    weights = random_weights(dtype=torch.float32)
    huge = weights.replace(W_U=torch.full_like(weights.W_U, 3e38))
    assert huge.check_finite() is huge


def test_tokenizer_and_carried_ids_must_fit_the_vocabulary():
    words = ", ".join(f'"{chr(97 + i)}": {i}' for i in range(14))
    tokenizer = Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {' + words + '}, "merges": []}}')
    with pytest.raises(TokenProblem, match="d_vocab=13"):
        RICH.replace(tokenizer=tokenizer)
    ids = np.array([0, 13])
    with pytest.raises(TokenProblem, match="heldout ids"):
        RICH.replace(carried=Carried(np.zeros((3, 0), dtype=np.int64), ids[:1], ids))


def test_heads_are_named_and_checked():
    assert [str(h) for h in RICH.head_ids()] == [f"L{i}H{j}" for i in range(2) for j in range(4)]
    assert RICH.head_id("l1h3") == HeadId(1, 3)
    for name in ("L2H0", "L0H4", "5.0"):
        with pytest.raises(UnknownName, match=r"L0H0 .. L1H3"):
            RICH.head(name)
    with pytest.raises(UnknownName, match="no heads"):
        random_weights(n_layers=0, n_heads=0, n_kv_heads=0).head("L0H0")


def test_a_head_takes_its_own_matrices_and_its_groups_keys_and_values():
    head = RICH.head("L1H3")
    assert torch.equal(head.W_Q, RICH.W_Q[1, 3]) and torch.equal(head.W_O, RICH.W_O[1, 3])
    assert torch.equal(head.W_K, RICH.W_K[1, 1]) and torch.equal(head.W_V, RICH.W_V[1, 1])
    assert head.attn_scale == 0.7 and head.id == HeadId(1, 3) and head.turns is None
    assert head.b_Q is not None and RICH.b_Q is not None and torch.equal(head.b_Q, RICH.b_Q[1, 3])
    assert head.b_V is not None and RICH.b_V is not None and torch.equal(head.b_V, RICH.b_V[1, 1])
    assert random_weights(biases="none").head("L0H0").b_K is None


def test_replace_records_its_step_and_forgets_the_old_hash():
    weights = RICH.replace(provenance=Provenance(weights="abc", source="here"))
    stepped = weights.replace("reads centred", W_U=weights.W_U * 2)
    assert stepped.provenance.steps == ("reads centred",) and stepped.provenance.weights == ""
    assert stepped.provenance.source == "here" and weights.provenance.steps == ()
    assert weights.replace(W_U=weights.W_U).provenance.processing == "raw"


def test_the_hash_sees_every_number_and_the_config():
    one = RICH.content_hash()
    assert one == random_weights(norm="layer", positions="learned").content_hash() and len(one) == 16
    for name, tensor in RICH.tensors().items():
        changed = tensor.clone().contiguous()
        changed.view(-1)[-1] += 1e-12
        nudged: dict[str, Any] = {name: changed}
        assert RICH.replace(**nudged).content_hash() != one, name
    config = dataclasses.replace(RICH.config, attn_scale=0.71)
    assert RICH.replace(config=config).content_hash() != one
    assert RICH.replace(W_E=RICH.W_E.T.contiguous().T).content_hash() == one, "memory layout does not matter"


def test_tied_means_the_same_memory():
    tied = random_weights(tied=True)
    assert tied.tied and not RICH.tied
    assert not tied.replace(W_U=tied.W_U.clone()).tied


def test_to_moves_every_tensor():
    low = RICH.to(torch.float32)
    assert low.dtype == torch.float32 and {t.dtype for t in low.tensors().values()} == {torch.float32}
    assert low.device.type == "cpu" and low.config == RICH.config


def test_it_is_frozen_and_describes_itself():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RICH.W_E = RICH.W_E  # type: ignore[misc]
    assert repr(RICH) == (
        "Weights(2 layers x 4 heads, d_model=10, d_head=5, d_vocab=13, norm=layer, positions=learned, raw)"
    )


def test_from_tensors_is_the_door_for_arrays():
    tensors: dict[str, Any] = RICH.tensors()
    found = type(RICH).from_tensors(tensors, n_ctx=16, attn_scale=0.7, position_base=50.0, norm="layer", bos=0)
    assert found.content_hash() == RICH.content_hash()
