"""The full QK circuit against recorded scores, biases and offsets included, and what must not change it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.algebra.stream import centred
from headway.circuits.qk import qk_circuit
from headway.errors import UnknownName, UsageError
from headway.model.forward import run
from headway.model.process import processed
from headway.sources.handmade.skip_trigram import skip_trigram_model
from support.placeless import silent_earlier, without_positions
from support.random_models import FEATURES, feature_name, random_tokens, random_weights
from support.unchecked import as_users_run_it

WITH_HEADS = [features for features in FEATURES if features.get("n_layers") != 0]


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", WITH_HEADS, ids=feature_name)
def test_entries_are_recorded_scores_uncentred_at_every_offset(features: dict[str, Any], processing: str):
    weights = silent_earlier(without_positions(random_weights(**features)))
    layer, tokens = weights.config.n_layers - 1, random_tokens(weights)
    scores = run(weights, tokens).scores[layer]
    for number in range(weights.config.n_heads):
        for offset in range(tokens.shape[1]):
            table = qk_circuit(processed(weights, processing), f"L{layer}H{number}", offset=offset).dense()
            found = table[tokens[:, offset:], tokens[:, : tokens.shape[1] - offset]]
            recorded = scores[:, number].diagonal(-offset, dim1=-2, dim2=-1)
            assert torch.allclose(found, recorded, atol=1e-9, rtol=0)


def test_offsets_matter_under_rotary_positions_only():
    for positions, same in (("rotary", False), ("shortformer", True)):
        near, far = (qk_circuit(random_weights(positions=positions, d_head=6), "L1H1", offset=D) for D in (0, 3))
        assert torch.equal(near.dense(), far.dense()) is same


def test_the_basis_inside_d_head_does_not_matter():
    weights = random_weights(norm="layer")
    assert weights.b_Q is not None and weights.b_K is not None
    turn = torch.randn(5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    back = torch.linalg.inv(turn)
    other = weights.replace(
        W_Q=turn @ weights.W_Q, b_Q=weights.b_Q @ turn.T, W_K=back.T @ weights.W_K, b_K=weights.b_K @ back
    )
    a, b = (qk_circuit(w, "L1H2").dense() for w in (other, weights))
    assert torch.allclose(a, b, atol=1e-9, rtol=0)


def test_a_key_bias_moves_whole_rows_which_softmax_does_not_see():
    weights = random_weights()
    assert weights.b_K is not None
    moved = weights.replace(b_K=weights.b_K + torch.arange(5.0, dtype=torch.float64))
    a, b = (qk_circuit(w, "L0H3") for w in (weights, moved))
    assert not torch.allclose(a.dense(), b.dense(), atol=1e-3)
    assert torch.allclose(centred(a, 1).dense(), centred(b, 1).dense(), atol=1e-9, rtol=0)
    # A query bias is no such constant: it favours sources.
    asked = weights.replace(b_Q=None)
    assert not torch.allclose(centred(a, 1).dense(), centred(qk_circuit(asked, "L0H3"), 1).dense(), atol=1e-3)


def test_a_zero_head_gives_one_score_to_all():
    weights = random_weights(biases="none", norm="layer", affine="none")
    circuit = qk_circuit(weights.replace(W_Q=torch.zeros_like(weights.W_Q)), "L1H0")
    assert circuit.shape == (13, 13) and not circuit.dense().any()
    keyless = random_weights(norm="none")
    keyless = keyless.replace(W_K=torch.zeros_like(keyless.W_K))
    scores = qk_circuit(keyless, "L0H0")
    assert bool(scores.dense().any()) and float(centred(scores, 1).dense().abs().max()) < 1e-9


def test_a_planted_pair_is_the_largest_and_goes_with_its_part():
    model = skip_trigram_model([(3, 7, 5)], d_vocab=9).weights
    table = qk_circuit(model, "L0H0").dense()
    assert divmod(int(table.argmax()), 9) == (7, 3)
    gone = qk_circuit(model.replace(W_K=torch.zeros_like(model.W_K)), "L0H0")
    assert not centred(gone, 1).dense().any()


@pytest.mark.parametrize(
    ("odd", "error", "says"),
    [
        ({"head": "L2H0"}, UnknownName, "no head L2H0"),
        ({"head": "L0H4"}, UnknownName, "no head L0H4"),
        ({"offset": -1}, UsageError, "offset"),
        ({"offset": 0.5}, UsageError, "offset"),
    ],
)
def test_bad_input_is_one_sentence(odd: dict[str, Any], error: type[Exception], says: str):
    given: dict[str, Any] = {"head": "L0H0", **odd}
    with as_users_run_it(), pytest.raises(error, match=says):
        qk_circuit(random_weights(), **given)
