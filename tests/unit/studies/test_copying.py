"""All measures of copying side by side: each as its own function gives it, words by the stated rule, and disagreement."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.behaviour.olsson import olsson_copying_scores
from headway.circuits.copying import copying_eigenvalues, copying_scores
from headway.circuits.copying_tokens import copying_token_scores
from headway.errors import UnknownName, UsageError
from headway.model.config import ModelConfig
from headway.model.weights import Weights
from headway.sources.handmade import copying_model, skip_trigram_model
from headway.studies import copying
from headway.studies.copying import MEASURES, copying_compared, eigenvalue_plane, says
from support.random_models import random_weights
from support.unchecked import as_users_run_it

COPIES = {
    "eigenvalues": {"copying": 0.5, "copying_z": 2.0},
    "eigenvalues centred": {"copying_centred": 0.5, "copying_centred_z": 2.0},
    "diagonal": {"diagonal_in_sd": 1.0},
    "top 5": {"top5": 0.5, "bottom5": 0.0},
    "Olsson": {"copying_olsson": 0.0, "copying_olsson_null": -0.9},
}
LOWERS = {
    "eigenvalues": {"copying": -0.5, "copying_z": -2.0},
    "eigenvalues centred": {"copying_centred": -0.5, "copying_centred_z": -2.0},
    "diagonal": {"diagonal_in_sd": -1.0},
    "top 5": {"top5": 0.0, "bottom5": 0.5},
    "Olsson": {"copying_olsson": -0.875, "copying_olsson_null": -0.5},
}


@pytest.mark.parametrize("measure", MEASURES)
def test_a_word_begins_at_its_threshold(measure: str):
    for word, cases, inwards in (("copies", COPIES, -1e-6), ("lowers", LOWERS, 1e-6)):
        case: dict[str, float] = cases[measure]
        assert says(case) == {measure: word}
        name = "bottom5" if (word, measure) == ("lowers", "top 5") else next(iter(case))
        step = -1e-6 if name == "bottom5" else inwards
        assert says(case | {name: case[name] + step}) == {measure: "neither"}


def test_a_ratio_within_chance_says_neither_and_missing_values_say_nothing():
    assert says({"copying": 1.0, "copying_z": 1.9}) == {"eigenvalues": "neither"}
    assert says({"copying": 1.0, "copying_z": None, "top5": None, "bottom5": None, "copying_olsson": None}) == {}
    # In a vocabulary of less than ten tokens half of them are among either five.
    assert says({"top5": 0.9, "bottom5": 0.8}) == {"top 5": "neither"}


def test_every_column_is_that_of_its_own_function():
    weights = random_weights(norm="layer", d_vocab=17)
    rows = {row["head"]: row for row in copying_compared(weights, draws=5, rows=3, seed=2).rows()}
    olsson = olsson_copying_scores(weights, length=15, rows=3, seed=2)  # n_ctx is 16, BOS takes one
    for table in (copying_scores(weights, draws=5, seed=2), copying_token_scores(weights), olsson):
        for row in table.rows():
            shared = {name: value for name, value in row.items() if name in copying.COLUMNS and name != "flag"}
            assert len(shared) > 3
            assert {name: rows[row["head"]][name] for name in shared} == shared


def test_a_planted_copying_head_copies_by_every_measure_and_without_it_nothing_does():
    weights = copying_model(d_vocab=30).weights
    (row,) = copying_compared(weights, draws=50).rows()
    assert (row["agree"], row["verdict"]) == (True, "copies")
    (gone,) = copying_compared(weights.replace(W_O=torch.zeros_like(weights.W_O)), draws=50).rows()
    assert (gone["agree"], gone["verdict"], gone["flag"]) == (None, None, "zero circuit: L0H0 OV")
    (rule,) = copying_compared(skip_trigram_model([(3, 5, 7), (9, 5, 8)], d_vocab=30).weights, draws=50).rows()
    assert not any(word == "copies" for word in says(rule).values())


def one_head(W_OV: torch.Tensor) -> Weights:
    """Unit embeddings and attention to all positions alike."""
    d = len(W_OV)
    eye, zero = torch.eye(d, dtype=torch.float64), torch.zeros(1, 1, d, d, dtype=torch.float64)
    c = ModelConfig(n_layers=1, n_heads=1, d_model=d, d_head=d, d_vocab=d, n_ctx=40)
    return Weights(config=c, W_E=eye, W_U=eye, W_Q=zero, W_K=zero, W_V=eye[None, None], W_O=W_OV[None, None])


def test_a_head_that_lowers_what_it_sees_lowers_by_every_measure():
    (row,) = copying_compared(one_head(-torch.eye(30, dtype=torch.float64)), draws=50).rows()
    assert (row["agree"], row["verdict"]) == (True, "lowers")


def test_where_measures_differ_the_words_say_which():
    # Triangular with a small positive diagonal: all eigenvalues are positive, but most tokens raise others far more.
    n = 40
    W_OV = 0.1 * torch.eye(n, dtype=torch.float64) + torch.triu(torch.randn(n, n, dtype=torch.float64), 1)
    (row,) = copying_compared(one_head(W_OV), draws=50).rows()
    assert row["copying"] == pytest.approx(1, abs=1e-6) and row["copying_z"] > 2
    assert row["agree"] is False
    assert row["verdict"].startswith("copies: eigenvalues") and "neither: " in row["verdict"]
    assert row["top5"] < 0.5 and "top 5" in row["verdict"].partition("neither: ")[2]


def test_rules_seed_and_options_stand_beside_the_table():
    weights = random_weights(d_vocab=17)
    table = copying_compared(weights, draws=3, rows=2, seed=7)
    assert set(table.meta["rules"]) == {*MEASURES, "agree"}
    assert table.provenance.seed == 7 and table.provenance.weights == weights.content_hash()
    assert table.provenance.options == {"draws": 3, "random_tokens": "2 rows of 15"}
    assert table == copying_compared(weights, draws=3, rows=2, seed=7)


def test_a_context_too_short_for_random_tokens_leaves_olsson_out():
    rows = copying_compared(random_weights(n_ctx=2), draws=3).rows()
    assert all(row["copying_olsson"] is None and "too short a context" in row["flag"] for row in rows)
    assert all(row["top5"] is not None for row in rows)


def test_a_model_without_heads_and_odd_input():
    bare = copying_compared(random_weights(n_layers=0, n_heads=0, n_kv_heads=0), draws=3)
    assert bare.rows() == [] and bare.meta["empty"] == "the model has no heads"
    with pytest.raises(UsageError, match="too few draws"):
        copying_compared(random_weights(), draws=1)
    with as_users_run_it(), pytest.raises(UsageError, match="not a model"):
        copying_compared("zoo:one-layer")  # type: ignore[arg-type]


def test_the_eigenvalue_plane_keeps_angles_and_shows_moduli_in_decades():
    # A cycle of three times 100, and 1 and 1e-6 on the diagonal: four decades are shown, the last is in the middle.
    W_OV = torch.block_diag(100 * torch.eye(3).roll(1, 0), torch.tensor([[1.0]]), torch.tensor([[1e-6]])).double()
    table = copying_eigenvalues(one_head(W_OV))
    plane = eigenvalue_plane(table, head="L0H0")
    points = sorted(zip(plane.x.tolist(), plane.y.tolist(), strict=True))
    half, root = -4 / 2, 4 * 3**0.5 / 2
    wanted = [(half, -root), (half, root), (0.0, 0.0), (2.0, 0.0), (4.0, 0.0)]
    for found, point in zip(points, wanted, strict=True):
        assert found == pytest.approx(point, abs=1e-9)
    assert "0.01 logits" in plane.x_axis and "1e-06" in plane.labels
    assert "centred" in eigenvalue_plane(table, head="L0H0", matrix="centred").caption


def test_a_zero_head_is_a_point_in_the_middle():
    plane = eigenvalue_plane(copying_eigenvalues(one_head(torch.zeros(4, 4, dtype=torch.float64))), head="L0H0")
    assert plane.x.tolist() == plane.y.tolist() == [0.0] * 4


@pytest.mark.parametrize("options", [{"head": "L0H7"}, {"head": "L0H0", "matrix": "folded"}])
def test_a_plane_of_what_is_not_in_the_table_is_refused(options: dict[str, Any]):
    table = copying_eigenvalues(random_weights())
    with pytest.raises(UnknownName):
        eigenvalue_plane(table, **options)


def test_a_plane_of_another_table_is_refused():
    with pytest.raises(UsageError, match="not a table of eigenvalues"):
        eigenvalue_plane(copying_scores(random_weights(), draws=0), head="L0H0")
