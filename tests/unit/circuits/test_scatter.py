"""The induction scatter: terms beside copying, the planted pair in the corner."""

from __future__ import annotations

import pytest

from headway.circuits.copying import copying_scores
from headway.circuits.scatter import COLUMNS, induction_scatter
from headway.circuits.token_terms import Draws, token_term_scores
from headway.errors import UsageError
from headway.sources.handmade import copying_model, induction_model
from support.composed import among_others
from support.random_models import random_weights


def test_it_joins_the_term_of_the_pair_and_copying_of_the_reader():
    weights = random_weights(norm="layer", n_layers=3)
    terms = {(r["reader"], r["writer"]): r for r in token_term_scores(weights, via="K", draws=Draws(5)).rows()}
    copying = {r["head"]: r for r in copying_scores(weights, draws=5).rows()}
    rows = induction_scatter(weights, draws=Draws(5)).rows()
    assert len(rows) == len(terms)
    for row in rows:
        term, copy = terms[row["reader"], row["writer"]], copying[row["reader"]]
        assert (row["qk"], row["qk_z"], row["qk_centred"]) == (
            term["positivity"],
            term["positivity_z"],
            term["positivity_centred"],
        )
        assert (row["ov"], row["ov_z"], row["ov_centred"]) == (
            copy["copying"],
            copy["copying_z"],
            copy["copying_centred"],
        )
        assert row["corner"] == min(row["qk"], row["ov"])
    corners = [row["corner"] for row in rows]
    assert corners == sorted(corners, reverse=True)


def test_a_planted_induction_head_lies_in_the_corner_and_leaves_it_without_its_writer():
    weights = among_others(induction_model(d_vocab=9, n_ctx=16).weights)
    first, second = induction_scatter(weights, draws=Draws(10)).rows()[:2]
    assert (first["reader"], first["writer"]) == ("L1H0", "L0H0") and first["corner"] == pytest.approx(1)
    assert second["corner"] < 0.9
    W_O = weights.W_O.clone()
    W_O[0, 0] = 0
    rows = induction_scatter(weights.replace(W_O=W_O), draws=Draws(0)).rows()
    (gone,) = (row for row in rows if (row["reader"], row["writer"]) == ("L1H0", "L0H0"))
    assert gone["corner"] is None and "zero circuit: L0H0 OV" in gone["flag"]


def test_models_without_pairs_and_bad_input():
    empty = induction_scatter(copying_model(d_vocab=5).weights)
    assert len(empty) == 0 and list(empty.columns) == list(COLUMNS) and "1 layer of 1 head" in empty.meta["empty"]
    with pytest.raises(UsageError):
        induction_scatter(random_weights(), processing="clean")
