"""Virtual heads of a model with one planted: it leads, and is gone with either of its parts."""

from __future__ import annotations

import pytest

from headway.sources.handmade.induction import induction_model
from headway.sources.handmade.two_back import two_back_model
from headway.studies.circuit_tables import virtual_table
from support.composed import among_others


def test_the_planted_virtual_head_leads_all_others_and_is_gone_without_a_part():
    weights = among_others(two_back_model(d_vocab=12).weights)
    rows = virtual_table(weights).rows()
    assert rows[0]["path"] == "L0H0-L1H0" and len(rows) > 3
    assert rows[0]["copying_centred"] == pytest.approx(1, abs=0.05)
    assert rows[0]["composition_z"] > 3 * max(row["composition_z"] for row in rows[1:])
    for layer in range(2):
        W_O = weights.W_O.clone()
        W_O[layer, 0] = 0
        paths = [row["path"] for row in virtual_table(weights.replace(W_O=W_O)).rows()]
        assert "L0H0-L1H0" not in paths and len(paths) > 2


def test_a_model_without_two_layers_has_none():
    one = induction_model(d_vocab=6).weights
    one = one.replace(
        config=type(one.config).from_dict(one.config.to_dict() | {"n_layers": 1}),
        **{name: getattr(one, name)[:1] for name in ("W_Q", "W_K", "W_V", "W_O")},
        b_Q=None if one.b_Q is None else one.b_Q[:1],
        b_K=None if one.b_K is None else one.b_K[:1],
    )
    table = virtual_table(one)
    assert len(table) == 0 and table.meta["empty"] == "no two heads compose"
