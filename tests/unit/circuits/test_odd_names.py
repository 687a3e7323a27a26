"""Arguments that are names, given what is none: an array compares with text to an array, and must not get that far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.circuits.composition import composition_scores
from headway.circuits.copying import copying_scores
from headway.circuits.ov import ov_circuit
from headway.circuits.subspaces import space_overlaps
from headway.errors import UnknownName, UsageError
from support.random_models import random_weights
from support.unchecked import as_users_run_it

ODD: list[Any] = [np.ones(3), ["K"], 3, b"K"]


@pytest.mark.parametrize("odd", ODD, ids=[type(odd).__name__ for odd in ODD])
def test_names_that_are_none(odd: Any):
    weights = random_weights()
    calls = (
        (UsageError, lambda: composition_scores(weights, via=odd), "unknown composition"),
        (UsageError, lambda: copying_scores(weights, processing=odd), "unknown processing"),
        (UnknownName, lambda: space_overlaps(weights, space=odd), "no space"),
        (UsageError, lambda: ov_circuit(weights, "L0H0", centred=odd), "centred; expected True or False"),
    )
    for kind, call, words in calls:
        with as_users_run_it(), pytest.raises(kind, match=words):
            call()
