"""The nulls against simulations that draw whole rotations with SciPy's sampler, and against laws known by hand."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from headway.algebra.null import (
    CompositionNull,
    anisotropy,
    composition_null,
    copying_null,
    eigenvalue_ratio,
    haar_frame,
)
from headway.errors import BadInput, NotFinite, ShapeProblem, UsageError

SPECTRA = {
    "flat": lambda k: torch.ones(k, dtype=torch.float64),
    "decaying": lambda k: 0.5 ** torch.arange(k, dtype=torch.float64),
    "one direction": lambda k: torch.eye(k, dtype=torch.float64)[0],
}


def rotations(d: int, count: int, seed: int) -> Tensor:
    return torch.from_numpy(stats.ortho_group.rvs(d, size=count, random_state=seed)).reshape(count, d, d)


def with_spectrum(m: int, n: int, spectrum: str, seed: int) -> Tensor:
    k = min(m, n)
    u, v = rotations(m, 1, seed)[0, :, :k], rotations(n, 1, seed + 1)[0, :, :k]
    return u * SPECTRA[spectrum](k) @ v.T


def of_gram(gram: Tensor, d: int) -> Tensor:
    return anisotropy(gram.trace(), (gram @ gram).trace(), d)


def assert_moments(sample: Tensor, mean: float, variance: float) -> None:
    """Both within three standard errors; that of the variance is sqrt((m4 - m2^2) / n)."""
    n, centred = len(sample), sample - sample.mean()
    m2, m4 = float(centred.square().mean()), float(centred.pow(4).mean())
    assert abs(float(sample.mean()) - mean) <= 3 * math.sqrt(m2 / n)
    assert abs(m2 * n / (n - 1) - variance) <= 3 * math.sqrt((m4 - m2**2) / n)


@pytest.mark.parametrize("reader_spectrum", SPECTRA)
@pytest.mark.parametrize("writer_spectrum", SPECTRA)
def test_composition_null_against_ten_thousand_rotations(reader_spectrum: str, writer_spectrum: str):
    d = 7
    reader, writer = with_spectrum(4, d, reader_spectrum, 1), with_spectrum(d, 5, writer_spectrum, 5)
    turned = reader @ rotations(d, 10_000, 9) @ writer
    scale = torch.linalg.matrix_norm(reader) * torch.linalg.matrix_norm(writer)
    null = composition_null(of_gram(reader.T @ reader, d), of_gram(writer @ writer.T, d), d)
    assert_moments((torch.linalg.matrix_norm(turned) / scale).square(), null.mean_square, float(null.variance))


def test_centred_weights_live_in_one_dimension_less():
    """Rotations that keep the all-ones direction: the null with d - 1 fits, the one with d does not."""
    d = 6
    basis = torch.linalg.svd(torch.ones(1, d, dtype=torch.float64)).Vh[1:].T  # orthogonal to ones
    reader, writer = with_spectrum(4, d - 1, "decaying", 1) @ basis.T, basis @ with_spectrum(d - 1, 3, "decaying", 5)
    turned = reader @ basis @ rotations(d - 1, 10_000, 3) @ basis.T @ writer
    s2 = (torch.linalg.matrix_norm(turned) / torch.linalg.matrix_norm(reader) / torch.linalg.matrix_norm(writer)) ** 2
    p, s = reader.T @ reader, writer @ writer.T
    null = composition_null(of_gram(p, d - 1), of_gram(s, d - 1), d - 1)
    assert_moments(s2, null.mean_square, float(null.variance))
    with pytest.raises(AssertionError):
        assert_moments(s2, 1 / d, float(composition_null(of_gram(p, d), of_gram(s, d), d).variance))


@pytest.mark.parametrize("d", [2, 3, 10])
def test_single_directions_follow_the_beta_law(d: int):
    """cos^2 of a random angle is Beta(1/2, (d-1)/2): mean 1/d, variance 2(d-1) / (d^2 (d+2))."""
    f = anisotropy(3.0, 9.0, d)
    assert float(f) == pytest.approx(1 - 1 / d)
    null = composition_null(f, f, d)
    law = stats.beta(0.5, (d - 1) / 2)
    assert null.mean_square == pytest.approx(law.mean())
    assert float(null.variance) == pytest.approx(law.var())
    assert null.rms == pytest.approx(1 / math.sqrt(d))


def test_whole_space_read_alike_leaves_nothing_to_chance():
    """An orthogonal reader gives exactly 1/sqrt(d), so variance is 0 and z is NaN, in spite of rounding."""
    q = rotations(9, 1, 2)[0] * 0.37
    f = of_gram(q.T @ q, 9)
    assert float(f) == 0
    null = composition_null(f, 0.4, 9)
    assert float(null.variance) == 0 and bool(null.z(1 / 3).isnan())


def test_zero_matrices_are_zero_and_not_nan():
    f = anisotropy(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 4.0]), 4)
    assert f.tolist() == [0.0, 0.75]
    z = composition_null(f, 0.75, 4).z(torch.tensor([0.0, 1.0]))
    assert z.isnan().tolist() == [True, False]


def test_tiny_traces_do_not_underflow():
    t = torch.tensor(1e-30)
    assert float(anisotropy(t, torch.tensor(0.0), 4)) == 0
    assert float(anisotropy(torch.tensor(1e-18), torch.tensor(1e-36), 4)) == pytest.approx(0.75)


def test_z_is_of_the_square_and_broadcasts():
    null = CompositionNull(0.25, torch.tensor([[0.01], [0.04]], dtype=torch.float64))
    assert null.z(torch.tensor([0.5, 1.0, 0.0], dtype=torch.float64)).tolist() == pytest.approx(
        np.array([[0, 7.5, -2.5], [0, 3.75, -1.25]])
    )
    pairs = composition_null(torch.full((3, 1), 0.5), torch.full((1, 4), 0.5), 5)
    assert pairs.variance.shape == (3, 4)


def test_composition_null_refuses():
    with pytest.raises(UsageError, match=r"too few dimensions.*>= 2"):
        composition_null(0.1, 0.1, 1)
    with pytest.raises(UsageError, match=r"too few dimensions.*>= 2"):
        anisotropy(1.0, 1.0, 1)
    with pytest.raises(BadInput, match="f_writer is not an anisotropy"):
        composition_null(0.1, 1.5, 4)
    with pytest.raises(BadInput, match="f_reader is not an anisotropy"):
        composition_null(torch.tensor(math.nan), 0.5, 4)
    with pytest.raises(NotFinite):
        anisotropy(math.inf, 1.0, 4)
    for trace, square in [(-1.0, 1.0), (1.0, -1.0), (2.0, 5.0)]:
        with pytest.raises(BadInput, match="not traces of a Gram matrix"):
            anisotropy(trace, square, 4)


def test_integer_tensors_count_as_numbers():
    assert float(anisotropy(torch.tensor(2), torch.tensor(4), 4)) == 0.75


def test_eigenvalue_ratio_by_hand():
    turn = torch.tensor([3 + 4j, 3 - 4j], dtype=torch.complex128)  # sum 6, absolute values 5 and 5
    assert float(eigenvalue_ratio(turn)) == pytest.approx(0.6)
    assert eigenvalue_ratio(torch.tensor([[2.0, 1.0], [-1.0, -3.0]])).tolist() == [1.0, -1.0]
    assert bool(eigenvalue_ratio(torch.zeros(3)).isnan())


def brute_force(w_e: Tensor, w_u: Tensor, s_o: Tensor, s_v: Tensor, d_head: int, count: int) -> Tensor:
    """The ratio from the whole vocabulary x vocabulary circuit, all four frames cut from SciPy's rotations."""
    d, k = w_e.shape[0], len(s_o)
    out, into = rotations(d, count, 11)[:, :, :k], rotations(d, count, 12)[:, :, :k]
    a, b = rotations(d_head, count, 13)[:, :, :k], rotations(d_head, count, 14)[:, :, :k]
    w_o, w_v = out * s_o @ a.mT, b * s_v @ into.mT
    return eigenvalue_ratio(torch.linalg.eigvals(w_u @ w_o @ w_v @ w_e))


@pytest.mark.parametrize("d, d_head", [(6, 3), (5, 1), (3, 5)], ids=str)
@pytest.mark.parametrize("tied", [False, True])
def test_copying_null_has_the_law_of_dense_draws(d: int, d_head: int, tied: bool):
    """Against vocab-sized circuits, with one dominant direction and unequal spectra; d_head above d_model too."""
    vocab, count, k = 8, 1500, min(d, d_head)
    w_e = torch.randn(d, vocab, dtype=torch.float64) + 2 * torch.ones(d, 1, dtype=torch.float64)
    w_u = w_e.T.clone() if tied else torch.randn(vocab, d, dtype=torch.float64)
    s_o = 0.6 ** torch.arange(k, dtype=torch.float64)
    s_v = 1 + torch.arange(k, dtype=torch.float64)
    expected = brute_force(w_e, w_u, s_o, s_v, d_head, count)
    found = copying_null(w_e @ w_u, s_o[None], s_v[None], draws=count, seed=1, d_head=d_head)[0]
    spread = math.sqrt(float(expected.var() + found.var()) / count)
    assert abs(float(expected.mean() - found.mean())) < 3 * spread
    if k == 1:  # the ratio is a sign, its law is the mean
        assert set(found.unique().tolist()) == {-1.0, 1.0}
    else:
        test: Any = stats.ks_2samp(expected.numpy(), found.numpy())
        assert test.pvalue > 0.01


def test_copying_null_is_seeded_scale_free_and_the_same_on_any_number_of_threads():
    g, s = torch.randn(6, 6), torch.rand(4, 3) + 0.1
    first = copying_null(g, s, s, draws=7, seed=3)
    assert first.shape == (4, 7) and first.dtype == torch.float64
    assert torch.equal(first, copying_null(g, s, s, draws=7, seed=3))
    assert not torch.equal(first, copying_null(g, s, s, draws=7, seed=4))
    torch.testing.assert_close(first, copying_null(g * 5, s * 7, s * 0.1, draws=7, seed=3), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(first[:, :3], copying_null(g, s, s, draws=3, seed=3))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        torch.testing.assert_close(first, copying_null(g, s, s, draws=7, seed=3), rtol=0, atol=1e-12)
    finally:
        torch.set_num_threads(threads)


def test_copying_null_does_not_touch_the_global_generator():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    copying_null(torch.eye(4), torch.ones(1, 2), torch.ones(1, 2), draws=2, seed=0)
    assert torch.equal(before, torch.get_rng_state())


def test_zero_heads_give_nan_and_leave_the_others_alone():
    s = torch.tensor([[0.0, 0.0], [1.0, 0.5]])
    found = copying_null(torch.randn(5, 5), s, torch.ones(2, 2), draws=6, seed=0)
    assert bool(found[0].isnan().all()) and bool(found[1].isfinite().all())


def test_copying_null_refuses():
    bare, g, s = inspect.unwrap(copying_null), torch.eye(4), torch.ones(2, 3)
    with pytest.raises(ShapeProblem, match="not square"):
        bare(torch.ones(4, 5), s, s, seed=0)
    with pytest.raises(ShapeProblem, match="equal shape"):
        bare(g, s, torch.ones(2, 2), seed=0)
    with pytest.raises(ShapeProblem, match="equal shape"):
        bare(g, s[0], s[0], seed=0)
    with pytest.raises(ShapeProblem, match=r"min\(d_head, d_model\) = 4, got 5"):
        bare(g, torch.ones(2, 5), torch.ones(2, 5), seed=0)
    with pytest.raises(ShapeProblem, match=r"min\(d_head, d_model\) = 2, got 3"):
        bare(g, s, s, seed=0, d_head=2)
    with pytest.raises(UsageError, match="draws"):
        bare(g, s, s, draws=0, seed=0)
    with pytest.raises(NotFinite):
        bare(g * math.nan, s, s, seed=0)
    with pytest.raises(BadInput, match="negative singular values"):
        bare(g, s, -s, seed=0)


def test_haar_frames_are_uniform():
    """Entries of a uniform frame: mean 0 (LAPACK's raw Q always fails this), square 1/d, fourth power 3/(d(d+2))."""
    d, count, generator = 5, 4000, torch.Generator().manual_seed(0)
    q = torch.stack([haar_frame(d, 2, generator) for _ in range(count)])
    torch.testing.assert_close(q.mT @ q, torch.eye(2, dtype=q.dtype).expand(count, 2, 2), rtol=0, atol=1e-12)
    for power, expected in ((1, 0.0), (2, 1 / d), (4, 3 / (d * (d + 2)))):
        values = q**power
        z = (values.mean(0) - expected) / (values.std(0) / math.sqrt(count))
        assert float(z.abs().max()) < 4
    with pytest.raises(UsageError, match="0 <= k <= d"):
        haar_frame(3, 4, generator)
