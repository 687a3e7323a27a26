"""The full OV circuit against logits of runs in which one head looks at one source, and what must not change it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.circuits.ov import ov_circuit
from headway.errors import UnknownName
from headway.model.forward import run
from headway.model.process import processed
from headway.sources.handmade.copying import copying_model
from support.placeless import silent_earlier, without_positions
from support.random_models import FEATURES, feature_name, random_weights
from support.unchecked import as_users_run_it

WITH_HEADS = [features for features in FEATURES if features.get("n_layers") != 0]


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", WITH_HEADS, ids=feature_name)
def test_looking_at_another_source_moves_the_logits_by_a_difference_of_columns(
    features: dict[str, Any], processing: str
):
    """Norm scales frozen, one head's pattern set by hand: logits are then linear in what the head looks at."""
    weights = processed(silent_earlier(without_positions(random_weights(**features))), processing)
    layer, n = weights.config.n_layers - 1, weights.config.d_vocab
    tokens = torch.arange(n)[None]
    base = run(weights, tokens)
    scale = 1.0 if base.norm_scales is None else float(base.norm_scales[-1][0, -1])
    for number in range(weights.config.n_heads):
        name = f"L{layer}H{number}"
        logits = []
        for source in range(n):
            pattern = torch.zeros(1, n, n, dtype=torch.float64)
            pattern[:, -1, source] = 1
            edited = run(weights, tokens, freeze=base.frozen(patterns=False), edit={f"{name}.pattern": pattern})
            logits.append(edited.logits[0, -1])
        dense = torch.stack(logits, dim=1) / scale
        whole = ov_circuit(weights, name, centred=False).dense()
        assert torch.allclose(dense - dense[:, :1], whole - whole[:, :1], atol=1e-9, rtol=0)
        assert torch.allclose(ov_circuit(weights, name).dense(), whole - whole.mean(0), atol=1e-9, rtol=0)


@pytest.mark.parametrize("features", WITH_HEADS, ids=feature_name)
def test_raw_and_folded_weights_give_the_same(features: dict[str, Any]):
    weights = random_weights(**features)
    folded = processed(weights, "folded")
    for centred in (True, False):
        a, b = (ov_circuit(w, "L0H0", centred=centred).dense() for w in (weights, folded))
        assert torch.allclose(a, b, atol=1e-9, rtol=0)


def test_the_basis_inside_d_head_does_not_matter():
    weights = random_weights(norm="layer")
    turn = torch.randn(5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    other = weights.replace(
        W_V=turn @ weights.W_V,
        b_V=None if weights.b_V is None else weights.b_V @ turn.T,
        W_O=weights.W_O @ torch.linalg.inv(turn),
    )
    assert not torch.allclose(other.W_V, weights.W_V)
    assert torch.allclose(ov_circuit(other, "L1H2").dense(), ov_circuit(weights, "L1H2").dense(), atol=1e-9, rtol=0)


def test_a_constant_on_all_logits_does_not_matter_once_centred():
    weights = random_weights(norm="rms")
    lifted = weights.replace(W_U=weights.W_U + torch.arange(10.0, dtype=torch.float64))
    a, b = (ov_circuit(w, "L0H1").dense() for w in (weights, lifted))
    assert torch.allclose(a, b, atol=1e-9, rtol=0)
    a, b = (ov_circuit(w, "L0H1", centred=False).dense() for w in (weights, lifted))
    assert not torch.allclose(a, b, atol=1e-3)


def test_it_stays_factored_and_takes_a_head_by_id():
    weights = random_weights()
    id_ = weights.head_id("L1H3")
    circuit = ov_circuit(weights, id_)
    assert circuit.rank <= 5 and circuit.shape == (13, 13)
    assert torch.equal(circuit.dense(), ov_circuit(weights, "L1H3").dense())


@pytest.mark.parametrize("zero", ["W_V", "W_O"])
def test_a_zero_head_is_zero_whatever_its_biases(zero: str):
    weights = random_weights(norm="layer")
    silent: dict[str, Any] = {zero: torch.zeros_like(getattr(weights, zero))}
    assert not ov_circuit(weights.replace(**silent), "L0H0").dense().any()


def test_a_planted_copy_is_the_diagonal_and_goes_with_its_part():
    model = copying_model(d_vocab=9, bos=False).weights
    circuit = ov_circuit(model, "L0H0").dense()
    away = circuit - torch.diag(torch.full((9,), float("inf")))
    assert float(circuit.diagonal().min()) > float(away.max())
    assert not ov_circuit(model.replace(W_O=torch.zeros_like(model.W_O)), "L0H0").dense().any()


@pytest.mark.parametrize("head", ["L2H0", "L0H4"])
def test_a_head_that_does_not_exist(head: str):
    with as_users_run_it(), pytest.raises(UnknownName, match=f"no head {head}"):
        ov_circuit(random_weights(), head)
