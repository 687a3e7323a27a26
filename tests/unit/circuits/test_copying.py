"""Copying against eigenvalues of multiplied-out matrices, permutations, and heads redrawn by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.algebra.null import copying_null
from headway.circuits import copying
from headway.circuits.copying import MATRICES, copying_eigenvalues, copying_scores, token_round_trips
from headway.errors import UnknownName, UsageError
from headway.model.config import ModelConfig
from headway.model.process import processed
from headway.model.weights import Weights
from support.random_models import FEATURES, feature_name, random_weights

FEW = 3  # draws where the null is not what is tested


def dense_ratio(W_U: Tensor, W_OV: Tensor, W_E: Tensor) -> float:
    """The paper's definition on the vocabulary x vocabulary matrix."""
    values = torch.linalg.eigvals(W_U @ W_OV @ W_E)
    return float(values.sum().real / values.abs().sum())


def one_head(W_OV: Tensor, W_E: Tensor, W_U: Tensor) -> Weights:
    """A one-layer model whose only head has this OV circuit, through a random basis of d_head."""
    d = len(W_OV)
    basis = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64)).Q
    c = ModelConfig(n_layers=1, n_heads=1, d_model=d, d_head=d, d_vocab=W_E.shape[1], n_ctx=4)
    ones = torch.ones(1, 1, d, d, dtype=torch.float64)
    W_O, W_V = (W_OV @ basis)[None, None], basis.T[None, None]
    return Weights(config=c, W_E=W_E, W_U=W_U, W_Q=ones, W_K=ones, W_V=W_V, W_O=W_O)


def ratios(weights: Weights, name: str = "copying") -> list[float]:
    return [row[name] for row in copying_scores(weights, draws=FEW).rows()]


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_both_ratios_equal_those_of_the_dense_matrix(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    seen = processed(weights, processing)
    rows = copying_scores(weights, processing=processing, draws=FEW).rows()
    assert [row["head"] for row in rows] == [str(head) for head in weights.head_ids()]
    centred = seen.W_U - seen.W_U.mean(0)
    for row in rows:
        W_OV = seen.head(row["head"]).ov.dense()
        assert row["copying"] == pytest.approx(dense_ratio(seen.W_U, W_OV, seen.W_E), abs=1e-9)
        assert row["copying_centred"] == pytest.approx(dense_ratio(centred, W_OV, seen.W_E), abs=1e-9)
        assert row["flag"] is None


def test_a_head_that_returns_each_token_is_told_from_one_that_permutes_them():
    n = 7
    eye = torch.eye(n, dtype=torch.float64)
    shift = eye.roll(1, 0)  # token b raises b + 1
    assert ratios(one_head(eye, eye, eye)) == pytest.approx([1.0])
    assert ratios(one_head(-eye, eye, eye)) == pytest.approx([-1.0])
    # The eigenvalues of one cycle are the n-th roots of unity: they add up to 0, or without the constant vector to -1.
    assert ratios(one_head(shift, eye, eye)) == pytest.approx([0.0], abs=1e-9)
    assert ratios(one_head(shift, eye, eye), "copying_centred") == pytest.approx([-1 / (n - 1)], abs=1e-9)


def test_no_matrix_is_transposed():
    # Embedding b -> b + 1, head c -> c - 1: together every token returns to itself. With any one of the three
    # transposed the product would be a shift by two, or by minus two, of ratio 0.
    n = 7
    eye = torch.eye(n, dtype=torch.float64)
    shift = eye.roll(1, 0)
    assert ratios(one_head(shift.T, shift, eye)) == pytest.approx([1.0])
    assert ratios(one_head(shift.T, eye, shift)) == pytest.approx([1.0])
    assert ratios(one_head(shift, shift, eye)) == pytest.approx([0.0], abs=1e-9)


def test_a_change_of_basis_inside_d_head_changes_nothing():
    weights = random_weights(n_kv_heads=4)
    basis = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    moved = weights.replace(W_V=basis @ weights.W_V, W_O=weights.W_O @ torch.linalg.inv(basis))
    assert ratios(moved) == pytest.approx(ratios(weights), abs=1e-9)


def test_only_the_centred_ratio_is_blind_to_a_constant_on_all_logits():
    weights = random_weights()
    shifted = weights.replace(W_U=weights.W_U + 5 * torch.randn(10, dtype=torch.float64))
    before, after = (copying_scores(w, draws=20).rows() for w in (weights, shifted))
    for old, new in zip(before, after, strict=True):
        assert new["copying_centred"] == pytest.approx(old["copying_centred"], abs=1e-9)
        assert new["copying_centred_z"] == pytest.approx(old["copying_centred_z"], abs=1e-9)
    assert max(abs(old["copying"] - new["copying"]) for old, new in zip(before, after, strict=True)) > 0.3


def test_the_null_is_that_of_the_algebra_with_the_models_own_embedding():
    weights = random_weights()
    rows = copying_scores(weights, draws=30, seed=4).rows()
    for name, W_U in (("copying", weights.W_U), ("copying_centred", weights.W_U - weights.W_U.mean(0))):
        for i, head in enumerate(weights.head_ids()):
            h = weights.head(head)
            spectra = [torch.linalg.svdvals(m)[None] for m in (h.W_O, h.W_V)]
            null = copying_null(weights.W_E @ W_U, spectra[0], spectra[1], draws=30, seed=4)[0]
            assert rows[i][f"{name}_null_mean"] == pytest.approx(float(null.mean()), abs=1e-9)
            assert rows[i][f"{name}_null_sd"] == pytest.approx(float(null.std()), abs=1e-9)
            z = (rows[i][name] - float(null.mean())) / float(null.std())
            assert rows[i][f"{name}_z"] == pytest.approx(z, abs=1e-9)


def test_the_null_agrees_with_heads_redrawn_and_multiplied_out():
    weights = random_weights(n_layers=1, n_heads=1, n_kv_heads=1, d_model=8, d_head=4, d_vocab=9, biases="none")
    row = copying_scores(weights, draws=1000).rows()[0]
    s_O, s_V = (torch.linalg.svdvals(m[0, 0]) for m in (weights.W_O, weights.W_V))
    n = 1000

    def frames(rows: int, columns: int) -> Tensor:
        q, r = torch.linalg.qr(torch.randn(n, rows, columns, dtype=torch.float64))
        return q * torch.sign(r.diagonal(dim1=-2, dim2=-1))[:, None, :]

    W_O = (frames(8, 4) * s_O) @ frames(4, 4).mT
    W_V = frames(4, 4) @ (s_V[:, None] * frames(8, 4).mT)
    values = torch.linalg.eigvals(weights.W_U @ W_O @ W_V @ weights.W_E)
    redrawn = values.sum(-1).real / values.abs().sum(-1)
    sd = float(redrawn.std())
    # Both means and both deviations are estimates: the errors of two add up to sqrt(2) of one.
    assert abs(row["copying_null_mean"] - float(redrawn.mean())) < 3 * sd * (2 / n) ** 0.5
    assert row["copying_null_sd"] == pytest.approx(sd, rel=3 / n**0.5)


def test_random_heads_are_about_one_standard_deviation_from_chance():
    weights = random_weights(n_layers=4, n_heads=8, n_kv_heads=8, d_model=16, d_head=6, d_vocab=20)
    z = torch.tensor([row["copying_centred_z"] for row in copying_scores(weights, draws=100).rows()])
    assert abs(float(z.mean())) < 3 / len(z) ** 0.5
    assert 0.6 < float(z.std()) < 1.4


def test_zero_heads_and_heads_that_reach_no_logit_are_flagged():
    weights = random_weights(n_kv_heads=4)
    W_O, W_U = weights.W_O.clone(), weights.W_U.clone()
    W_O[0, 1] = 0
    W_U[:, 7:] = 0
    W_O[1, 2, :7] = 0  # writes only where W_U does not read
    rows = {row["head"]: row for row in copying_scores(weights.replace(W_O=W_O, W_U=W_U), draws=FEW).rows()}
    scores = ("copying", "copying_null_mean", "copying_null_sd", "copying_z", "copying_centred", "copying_centred_z")
    for head in ("L0H1", "L1H2"):
        assert all(rows[head][name] is None for name in scores)
    assert rows["L0H1"]["flag"] == "zero circuit: L0H1 OV"
    assert rows["L1H2"]["flag"].startswith("copying: W_U W_OV W_E takes no token to any logit")
    assert all(row["flag"] is None for head, row in rows.items() if head not in {"L0H1", "L1H2"})


def test_a_null_that_does_not_vary_gives_no_z():
    # In one dimension the ratio is a sign, and two draws have the same one for about half of the seeds.
    weights = random_weights(d_model=1, d_head=1, biases="none")
    rows = [row for seed in range(8) for row in copying_scores(weights, draws=2, seed=seed).rows()]
    still = [row for row in rows if row["copying_null_sd"] == 0]
    assert 0 < len(still) < len(rows)
    for row in rows:
        assert (row["copying_z"] is None) == (row["copying_null_sd"] == 0)
        assert ("copying_z: the null does not vary" in (row["flag"] or "")) == (row["copying_z"] is None)


def test_blocks_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch):
    weights = random_weights()
    whole = copying_scores(weights, draws=10)
    monkeypatch.setattr(copying, "_BLOCK", 3)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    parts = copying_scores(weights, draws=10)
    for a, b in zip(whole.rows(), parts.rows(), strict=True):
        assert list(a.values())[1:-1] == pytest.approx(list(b.values())[1:-1], abs=1e-9)


def test_round_trips_are_products_with_the_embedding_first():
    weights = random_weights(dtype=torch.float32)
    raw, centred = token_round_trips(weights)
    # Up to scale: each factor over its largest entry.
    W_E, W_U = (t.double() / float(t.abs().max()) for t in (weights.W_E, weights.W_U))
    assert torch.allclose(raw, W_E @ W_U, atol=1e-12)
    assert torch.allclose(centred, W_E @ (W_U - W_U.mean(0)), atol=1e-12)


def test_the_same_seed_gives_the_same_table_and_it_says_so():
    weights = random_weights(norm="layer")
    table = copying_scores(weights, draws=5, seed=3)
    assert table == copying_scores(weights, draws=5, seed=3) != copying_scores(weights, draws=5, seed=4)
    assert table.provenance.seed == 3 and table.provenance.options == {"draws": 5}
    assert table.provenance.weights == weights.content_hash()
    assert table.provenance.processing == "norms folded + reads centred"


@pytest.mark.parametrize("options", [{"draws": 1}, {"draws": -2}, {"draws": True}, {"processing": "clean"}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]):
    with pytest.raises(UsageError):
        copying_scores(random_weights(), **options)


def test_without_draws_the_ratios_are_the_same_and_the_null_is_missing():
    weights = random_weights(norm="layer")
    for bare, full in zip(
        copying_scores(weights, draws=0).rows(), copying_scores(weights, draws=FEW).rows(), strict=True
    ):
        assert [bare[name] for name in ("copying", "copying_centred")] == [full["copying"], full["copying_centred"]]
        assert all(bare[f"copying_{name}"] is None for name in ("null_mean", "null_sd", "z", "centred_z"))
        assert bare["flag"] == "no null was drawn"


def spectrum(weights: Weights, head: str, matrix: str, **options: Any) -> list[complex]:
    rows = copying_eigenvalues(weights, head, **options).rows()
    return [complex(row["real"], row["imag"]) for row in rows if row["matrix"] == matrix]


@pytest.mark.parametrize("processing", ["raw", "folded"])
@pytest.mark.parametrize("features", [f for f in FEATURES if f.get("n_layers") != 0], ids=feature_name)
def test_eigenvalues_are_those_of_the_dense_matrix(features: dict[str, Any], processing: str):
    weights = random_weights(**features)
    seen = processed(weights, processing)
    for head in ("L0H0", f"L{seen.config.n_layers - 1}H{seen.config.n_heads - 1}"):
        for matrix, W_U in zip(MATRICES, (seen.W_U, seen.W_U - seen.W_U.mean(0)), strict=True):
            found = spectrum(weights, head, matrix, processing=processing)
            assert len(found) == min(seen.config.d_head, *seen.W_E.shape)
            assert [abs(v) for v in found] == sorted((abs(v) for v in found), reverse=True)
            dense = W_U @ seen.head(head).ov.dense() @ seen.W_E
            every = sorted(torch.linalg.eigvals(dense).tolist(), key=abs)
            # All others are 0; the same numbers have the same power sums, in whatever order two tools give them.
            assert all(abs(v) < 1e-9 for v in every[: -len(found)])
            for power in range(1, len(found) + 1):
                trace = float(torch.linalg.matrix_power(dense, power).trace())
                assert sum(v**power for v in found) == pytest.approx(trace, rel=1e-9, abs=1e-9)


def test_a_cycle_has_roots_of_unity_and_angles_that_say_so():
    n = 5
    eye = torch.eye(n, dtype=torch.float64)
    rows = copying_eigenvalues(one_head(3 * eye.roll(1, 0), eye, eye)).rows()
    raw, centred = ([row for row in rows if row["matrix"] == matrix] for matrix in MATRICES)
    assert [row["modulus"] for row in raw] == pytest.approx([3.0] * n)
    turn = 2 * math.pi / n
    assert sorted(row["angle"] for row in raw) == pytest.approx([-2 * turn, -turn, 0, turn, 2 * turn])
    # Centred, the constant vector goes: its eigenvalue is 0, and says that it has no angle.
    assert [row["flag"] for row in centred] == [None] * 4 + ["within rounding of 0: no angle"]
    assert centred[-1]["modulus"] == pytest.approx(0, abs=1e-12) and centred[-1]["angle"] is None


def test_the_ratio_is_what_the_eigenvalues_say():
    weights = random_weights(norm="rms")
    scores = copying_scores(weights, draws=FEW).rows()
    rows = copying_eigenvalues(weights).rows()
    for score in scores:
        for matrix, name in zip(MATRICES, ("copying", "copying_centred"), strict=True):
            own = [row for row in rows if (row["head"], row["matrix"]) == (score["head"], matrix)]
            ratio = sum(row["real"] for row in own) / sum(row["modulus"] for row in own)
            assert ratio == pytest.approx(score[name], abs=1e-9)


def test_eigenvalues_keep_the_scale_of_the_weights():
    weights = random_weights()
    scaled = weights.replace(W_O=weights.W_O * 1e90, W_V=weights.W_V * 1e90, W_E=weights.W_E * 1e90)
    for found, wanted in zip(copying_eigenvalues(scaled).rows(), copying_eigenvalues(weights).rows(), strict=True):
        assert found["modulus"] == pytest.approx(1e270 * wanted["modulus"], rel=1e-9)
        assert found["angle"] == pytest.approx(wanted["angle"], abs=1e-9)
    beyond = copying_eigenvalues(scaled.replace(W_U=weights.W_U * 1e90), "L0H0").rows()[0]
    assert beyond["modulus"] is None and "modulus is not finite" in beyond["flag"]


def test_a_zero_head_has_eigenvalues_of_zero_that_are_flagged():
    weights = random_weights()
    W_O = weights.W_O.clone()
    W_O[1, 2] = 0
    rows = copying_eigenvalues(weights.replace(W_O=W_O)).rows()
    dead = [row for row in rows if row["head"] == "L1H2"]
    assert len(dead) == 10 and all(row["modulus"] == 0 and row["angle"] is None for row in dead)
    assert {row["flag"] for row in dead} == {"zero circuit: L1H2 OV"}
    assert {row["flag"] for row in rows if row["head"] != "L1H2"} == {None}


def test_eigenvalues_of_heads_that_do_not_exist():
    with pytest.raises(UnknownName, match="L2H0"):
        copying_eigenvalues(random_weights(), "L2H0")
    bare = copying_eigenvalues(random_weights(n_heads=0, n_kv_heads=0))
    assert bare.rows() == [] and "2 layers of 0" in bare.meta["empty"]


def test_one_head_alone_gives_the_same_rows_and_says_so():
    weights = random_weights()
    table = copying_eigenvalues(weights, "L1H1")
    assert table.rows() == [row for row in copying_eigenvalues(weights).rows() if row["head"] == "L1H1"]
    assert table.provenance.options == {"head": "L1H1"}
