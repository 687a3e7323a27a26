"""The claims: rules that can go either way, measurements that see planted answers, verdicts on the packaged models."""

from __future__ import annotations

import math

import pytest
import torch

from headway.errors import UsageError
from headway.sources.handmade.induction import induction_model
from headway.sources.open import load
from headway.studies import framework
from headway.studies.claims import CANNOT_TELL, CLAIMS, DIFFERS, SUPPORTS, Claim
from headway.studies.framework import MEASUREMENTS, Models, framework_claims
from support.random_models import random_weights


def test_every_claim_is_measured_and_every_measurement_is_of_a_claim():
    assert set(MEASUREMENTS) == {claim.id for claim in CLAIMS} and len(CLAIMS) == len(MEASUREMENTS)


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.id for claim in CLAIMS])
def test_a_rule_never_says_both_and_can_fail_to_support(claim: Claim):
    values = [x / 50 for x in range(-100, 500)]
    verdicts = {claim.verdict(x) for x in values}
    assert not any(claim.supports(x) and claim.differs(x) for x in values)
    assert SUPPORTS in verdicts and verdicts & {DIFFERS, CANNOT_TELL}
    assert claim.verdict(None) == claim.verdict(math.nan) == CANNOT_TELL


def planted() -> Models:
    two = induction_model(d_vocab=20, n_ctx=64).weights
    return Models(random_weights(n_layers=0), random_weights(n_layers=1), two, 0)


def test_on_the_hand_made_induction_model_the_machinery_is_found():
    models = planted()
    models.__dict__["atlas"] = [
        {"head": "L0H0", "prefix_matching": 0.0, "previous_token": 1.0},
        {"head": "L1H0", "prefix_matching": 1.0, "previous_token": 0.0},
    ]
    assert MEASUREMENTS["previous-token-writer"](models).value == 1
    assert MEASUREMENTS["erratum-previous-token"](models).value == 1
    assert (MEASUREMENTS["k-composition-only"](models).value or 0) > 2
    assert MEASUREMENTS["positive-corner"](models).value is None  # nobody else to compare with


def test_without_its_writer_the_machinery_is_not_found():
    models = planted()
    W_O = models.two.W_O.clone()
    W_O[0] = torch.randn(W_O[0].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    models = Models(models.zero, models.one, models.two.replace(W_O=W_O), 0)
    assert MEASUREMENTS["k-composition-only"](models).value is None  # nothing composes, so nothing is largest


def test_earlier_places_are_those_up_to_the_row():
    scores = torch.tensor([[5.0, 99.0], [1.0, 3.0]], dtype=torch.float64)
    assert framework._among_earlier(scores) == pytest.approx((0 + 1) / 2)


def test_models_of_other_depths_are_refused():
    one = random_weights(n_layers=1)
    with pytest.raises(UsageError, match="a model of 0 layers in place 1"):
        framework_claims(one, one, one)


def test_the_packaged_models_by_the_page():
    zero, one, two = (load(f"zoo:{name}-layer") for name in ("zero", "one", "two"))
    models = Models(zero, one, two, 0)
    assert models.induction_heads == ["L1H4"]
    found = {name: MEASUREMENTS[name](models).value for name in ("copying-one-layer", "composition-below-chance")}
    assert found["copying-one-layer"] == 3 / 8 and 0.85 < (found["composition-below-chance"] or 0) < 0.95
