"""A model in half precision: every score is that of the same rounded numbers in float64, to float32's rounding."""

from __future__ import annotations

import pytest
import torch

from headway.algebra.low_rank import LowRank
from headway.algebra.subspace import column_basis, overlap, principal_angles
from headway.circuits.bigrams import direct_path_log_probs, direct_path_study
from headway.circuits.composition import composition_score, composition_scores
from headway.circuits.copying import copying_scores, token_round_trips
from headway.model.head import Head, same_head
from support.random_models import random_weights

HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
MODELS = pytest.mark.parametrize(
    "features", [{"norm": "layer"}, {"positions": "rotary", "rotary_dims": 4, "norm": "rms"}], ids=str
)


@HALF
@MODELS
def test_head_algebra(dtype: torch.dtype, features: dict[str, object]):
    weights = random_weights(**features).to(dtype)  # pyright: ignore[reportArgumentType]
    exact = weights.to(torch.float64)
    for name in ("L0H1", "L1H3"):
        head, oracle = weights.head(name), exact.head(name)
        pairs = [(head.ov, oracle.ov), (head.qk(3), oracle.qk(3)), (head.qk(2, biases=True), oracle.qk(2, biases=True))]
        for found, wanted in pairs:
            assert found.factors[0].dtype == torch.float32
            torch.testing.assert_close(found.norm().double(), wanted.norm(), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(found.svd().S.double(), wanted.svd().S, rtol=1e-4, atol=1e-5)
        sizes = [m.eigenvalues().abs().double().sort().values for m in (head.ov, oracle.ov)]
        torch.testing.assert_close(sizes[0], sizes[1], rtol=1e-3, atol=1e-4)
        fixed = head.canonical()
        assert fixed.W_Q.dtype == fixed.W_O.dtype == dtype
        assert same_head(head, head) and same_head(fixed, head, rtol=0.05) and not same_head(head, weights.head("L0H0"))


@HALF
def test_scores_of_whole_models(dtype: torch.dtype):
    weights = random_weights(norm="none", n_layers=3).to(dtype)
    exact = weights.to(torch.float64)
    found, wanted = (
        {(row["reader"], row["writer"], row["via"]): row["score"] for row in composition_scores(w).rows()}
        for w in (weights, exact)
    )
    assert found == pytest.approx(wanted, abs=1e-5)
    one = composition_score(weights.head("L2H0"), weights.head("L0H1"), "Q")
    assert one == pytest.approx(wanted["L2H0", "L0H1", "Q"], abs=1e-5)
    copying = [[row["copying"] for row in copying_scores(w, draws=4).rows()] for w in (weights, exact)]
    assert copying[0] == pytest.approx(copying[1], abs=1e-9)
    assert float((direct_path_log_probs(weights).double() - direct_path_log_probs(exact)).abs().max()) < 0.2


@HALF
def test_subspaces(dtype: torch.dtype):
    columns = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    basis = column_basis(columns)
    assert basis.dtype == torch.float32 and basis.shape == (9, 3)
    axes = torch.eye(4, dtype=dtype)
    assert float(overlap(axes[:, :2], axes[:, 1:])) == 1
    assert principal_angles(axes[:, :2], axes[:, 1:2]).tolist() == [0]


@HALF
def test_every_part_of_a_product(dtype: torch.dtype):
    random = torch.Generator().manual_seed(0)
    L, R = (torch.randn(shape, generator=random).to(dtype) for shape in ((6, 3), (3, 6)))
    M, oracle = LowRank(L, R), LowRank(L.double(), R.double())
    column = torch.ones(6, dtype=dtype)
    pairs = [
        (M.dense(), oracle.dense()),
        (M.trace(), oracle.trace()),
        (M.diagonal(), oracle.diagonal()),
        (M.spectral_norm(), oracle.spectral_norm()),
        (M.rows([0, 2]), oracle.rows([0, 2])),
        (M.columns(1), oracle.columns(1)),
        (M @ column, oracle @ column.double()),
        (column @ M, column.double() @ oracle),
        ((M @ L).dense(), (oracle @ L.double()).dense()),
        ((M + 0.5 * M.T).dense(), (oracle + 0.5 * oracle.T).dense()),
    ]
    for found, wanted in pairs:
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


@HALF
def test_the_study_of_the_direct_path(dtype: torch.dtype):
    weights = random_weights(norm="layer").to(dtype)
    ids = torch.randint(13, (200,), generator=torch.Generator().manual_seed(0)).numpy()
    counts = torch.ones(13, 13, dtype=dtype)
    found, wanted = (direct_path_study(w, counts, ids, ids).rows() for w in (weights, weights.to(torch.float64)))
    for row, other in zip(found, wanted, strict=True):
        assert row["heldout_loss"] == pytest.approx(other["heldout_loss"], abs=0.02)
    for a, b in zip(token_round_trips(weights), token_round_trips(weights.to(torch.float64)), strict=True):
        assert torch.equal(a, b)


@HALF
def test_a_head_from_circuits(dtype: torch.dtype):
    circuit = torch.eye(4, dtype=dtype)
    torch.testing.assert_close(Head.from_circuits(circuit, 2 * circuit, d_head=4).ov.dense(), 2 * torch.eye(4))
