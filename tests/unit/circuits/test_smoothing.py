"""Smoothed and low-rank bigram tables against textbook formulas, loops, and a Markov chain of known entropy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.circuits.smoothing import (
    BigramTable,
    _base,  # pyright: ignore[reportPrivateUsage]
    _kinds,  # pyright: ignore[reportPrivateUsage]
    _smooth,  # pyright: ignore[reportPrivateUsage]
    check_counts,
    check_size,
    first_shares,
    low_rank_bigrams,
    smoothed_bigrams,
)
from headway.errors import BadInput, NotFinite, ShapeProblem, TextProblem, TokenProblem, TooLarge, UsageError
from support.unchecked import as_users_run_it

V = 30


@pytest.fixture(scope="module")
def chain() -> Tensor:
    """Transition probabilities [first, next] of a sparse Markov chain."""
    random = torch.Generator().manual_seed(0)
    logits = 2.5 * torch.randn(V, V, dtype=torch.float64, generator=random)
    return logits.softmax(1)


def walk(chain: Tensor, n: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    steps, ids = chain.cumsum(1).numpy(), [0]
    for u in random.random(n - 1):
        ids.append(min(int(np.searchsorted(steps[ids[-1]], u)), V - 1))
    return np.array(ids)


def pairs_of(ids: np.ndarray) -> np.ndarray:
    return np.stack((ids[:-1], ids[1:]))


def counts_of(ids: np.ndarray) -> Tensor:
    counts = torch.zeros(V, V, dtype=torch.float64)
    for a, b in itertools.pairwise(ids):
        counts[a, b] += 1
    return counts


def loss_of(log_probs: Tensor, pairs: np.ndarray) -> float:
    return -float(log_probs[pairs[0], pairs[1]].mean())


def entropy_rate(chain: Tensor) -> float:
    """Sum of stationary probability times row entropy, nats."""
    stationary = torch.linalg.matrix_power(chain, 500)[0]
    return -float((stationary * (chain * chain.log()).sum(1)).sum())


def test_the_formula_is_the_one_stated_cell_by_cell(chain: Tensor):
    counts = counts_of(walk(chain, 400, 1))
    table = smoothed_bigrams(counts, pairs_of(walk(chain, 300, 2)))
    tally = counts if table.base == "unigram" else (counts > 0).double()
    base = (tally.sum(0) + 0.5) / (tally.sum() + 0.5 * V)
    for a in range(V):
        n, seen = float(counts[a].sum()), [int(c) for c in counts[a] if c > 0]
        discount = {c: table.discounts[min(c, 3) - 1] for c in seen} | {0: 0.0}
        spare = sum(discount[c] for c in seen) + table.concentration
        for b in range(V):
            kept = float(counts[a, b]) - discount[int(counts[a, b])]
            p = (kept + spare * float(base[b])) / (n + table.concentration)
            assert float(table.log_probs[a, b]) == pytest.approx(np.log(p), abs=1e-12)


@pytest.mark.parametrize(("base", "d"), list(itertools.product(["unigram", "continuation"], [0.3, 0.75, 1.0])))
def test_equal_discounts_are_plain_absolute_discounting(chain: Tensor, base: str, d: float):
    """With concentration 0: max(c - d, 0) / n + d k / n base, with k kinds after first (Kneser and Ney 1995)."""
    counts = counts_of(walk(chain, 2000, 1))
    share = _base(counts, base)
    parts = counts, counts.sum(1)[:, None], _kinds(counts)[:, None], share
    found = _smooth(parts, torch.full((3,), d, dtype=torch.float64), torch.zeros((), dtype=torch.float64))
    kinds = (counts > 0).double().sum(1, keepdim=True)
    wanted = ((counts - d).clamp_min(0) + d * kinds * share) / counts.sum(1, keepdim=True)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)


def test_every_row_is_a_distribution_even_of_tokens_never_seen(chain: Tensor):
    counts = counts_of(walk(chain, 500, 1))
    counts[4] = 0
    table = smoothed_bigrams(counts, pairs_of(walk(chain, 300, 2)))
    assert torch.allclose(table.log_probs.exp().sum(1), torch.ones(V, dtype=torch.float64), atol=1e-12)
    assert bool(table.log_probs.isfinite().all())


def test_it_is_better_than_every_textbook_smoothing_on_the_text_it_is_fitted_on(chain: Tensor):
    counts, validation = counts_of(walk(chain, 2000, 1)), pairs_of(walk(chain, 2000, 2))
    table = smoothed_bigrams(counts, validation)
    assert table.validation_loss == pytest.approx(loss_of(table.log_probs, validation), abs=1e-12)
    n, kinds = counts.sum(1, keepdim=True), (counts > 0).double().sum(1, keepdim=True)
    unigram = (counts.sum(0) + 0.5) / (counts + 0.5 / V).sum()
    follows = ((counts > 0).double().sum(0) + 0.5) / ((counts > 0).double() + 0.5 / V).sum()
    others = [(counts + 1) / (n + V)]
    others += [(counts + size * unigram) / (n + size) for size in (0.1, 1.0, 5.0, 20.0)]  # Dirichlet
    others += [  # absolute discounting, and Kneser-Ney
        ((counts - discount).clamp_min(0) + discount * kinds * base) / n
        for discount in (0.1, 0.3, 0.5, 0.75, 0.9)
        for base in (unigram, follows)
    ]
    # Modified Kneser-Ney, with the closed-form discounts of Chen and Goodman from how many pairs occur once, twice, ...
    of = [float((counts == c).sum()) for c in (1, 2, 3, 4)]
    closed = [c - (c + 1) * of[0] / (of[0] + 2 * of[1]) * of[c] / of[c - 1] for c in (1, 2, 3)]
    levels = [counts == 1, counts == 2, counts > 2]
    taken = torch.stack([level.double() * discount for level, discount in zip(levels, closed, strict=True)]).sum(0)
    others.append((counts - taken + taken.sum(1, keepdim=True) * follows) / n)
    assert table.validation_loss < min(loss_of(p.log(), validation) for p in others)


def test_no_point_of_a_fine_grid_is_better(chain: Tensor):
    counts, validation = counts_of(walk(chain, 1500, 1)), pairs_of(walk(chain, 1500, 2))
    table = smoothed_bigrams(counts, validation)
    n = counts.sum(1, keepdim=True)
    ones, twos, more = (counts == 1).double(), (counts == 2).double(), (counts > 2).double()
    for tally in (counts, (counts > 0).double()):
        base = (tally.sum(0) + 0.5) / (tally.sum() + 0.5 * V)
        for d in itertools.product((0, 0.4, 0.7, 0.95), (0, 0.7, 1.2, 1.7), (0, 0.7, 1.3, 2.0)):
            taken = d[0] * ones + d[1] * twos + d[2] * more
            for size in np.logspace(-3, 3, 9):
                p = (counts - taken + (taken.sum(1, keepdim=True) + size) * base) / (n + size)
                assert loss_of(p.log(), validation) >= table.validation_loss - 1e-7


def test_with_much_text_the_held_out_loss_is_the_entropy_of_the_chain(chain: Tensor):
    counts = counts_of(walk(chain, 30_000, 1))
    heldout = pairs_of(walk(chain, 10_000, 3))
    table = smoothed_bigrams(counts, pairs_of(walk(chain, 5000, 2)))
    losses = -table.log_probs[heldout[0], heldout[1]]
    error = float(losses.std()) / len(losses) ** 0.5
    # About V^2 / (2 n) nats are lost to estimating the table.
    assert abs(float(losses.mean()) - entropy_rate(chain)) < 3 * error + V**2 / 30_000


def test_it_needs_no_luck(chain: Tensor):
    counts, validation = counts_of(walk(chain, 1000, 1)), pairs_of(walk(chain, 1000, 2))
    first, again = (smoothed_bigrams(counts, validation) for _ in range(2))
    assert torch.equal(first.log_probs, again.log_probs)


def kl(p: Tensor, q: Tensor, share: Tensor) -> float:
    return float((share[:, None] * p.exp() * (p - q)).sum())


def exact_table(rank: int) -> tuple[BigramTable, Tensor]:
    """A table whose logits have exactly this rank, and counts that are about what it predicts."""
    random = torch.Generator().manual_seed(1)
    left, right = (torch.randn(V, rank, dtype=torch.float64, generator=random) for _ in range(2))
    log_probs = (left @ right.T).log_softmax(1)
    often = torch.rand(V, 1, dtype=torch.float64, generator=random) ** 3
    return BigramTable(log_probs, (0.0, 0.0, 0.0), 1.0, "unigram", 0.0), (3000 * often * log_probs.exp()).round()


def test_a_table_of_the_rank_asked_for_is_recovered():
    table, counts = exact_table(4)
    share = first_shares(counts)
    found = low_rank_bigrams(table, counts, 4, iterations=600)
    assert kl(table.log_probs, found, share) < 2e-4
    assert kl(table.log_probs, low_rank_bigrams(table, counts, 3), share) > 0.02


def test_the_result_has_the_rank_asked_for_and_rows_that_are_distributions():
    table, counts = exact_table(9)
    found = low_rank_bigrams(table, counts, 3)
    assert torch.allclose(found.exp().sum(1), torch.ones(V, dtype=torch.float64), atol=1e-12)
    # log softmax takes a constant off each row: one rank more at most.
    values = torch.linalg.svdvals(found)
    assert float(values[4]) < 1e-9 * float(values[0])


def test_more_rank_is_never_worse_and_all_of_it_is_exact():
    table, counts = exact_table(9)
    share = first_shares(counts)
    lost = [kl(table.log_probs, low_rank_bigrams(table, counts, rank, iterations=400), share) for rank in (1, 3, 6, V)]
    assert lost == sorted(lost, reverse=True)
    assert lost[-1] == pytest.approx(0, abs=1e-6)


def test_it_is_better_than_the_truncated_svd_of_the_log_table():
    table, counts = exact_table(9)
    share = first_shares(counts)
    u, s, vh = torch.linalg.svd(table.log_probs)
    cut = ((u[:, :4] * s[:4]) @ vh[:4]).log_softmax(1)
    assert kl(table.log_probs, low_rank_bigrams(table, counts, 4), share) < kl(table.log_probs, cut, share)


def test_the_gradient_of_the_fit_vanishes_where_it_stops():
    table, counts = exact_table(6)
    share = first_shares(counts)[:, None] * table.log_probs.exp()

    def gradients(log_probs: Tensor) -> float:
        logits = log_probs - log_probs.mean(1, keepdim=True)
        u, s, vh = torch.linalg.svd(logits)
        E, U = ((t * s[:3].sqrt()).requires_grad_() for t in (u[:, :3], vh[:3].T))
        loss = -(share * (E @ U.T).log_softmax(1)).sum()
        return float(torch.cat(torch.autograd.grad(loss, (E, U))).norm())

    # Where the SVD starts, and where the descent ends.
    start, end = (low_rank_bigrams(table, counts, 3, iterations=n) for n in (1, 600))
    assert gradients(end) < 0.02 * gradients(start)


def test_low_rank_is_deterministic():
    table, counts = exact_table(5)
    assert torch.equal(low_rank_bigrams(table, counts, 2), low_rank_bigrams(table, counts, 2))


@pytest.mark.parametrize("rank", [0, -1, True])
def test_impossible_ranks_are_refused(rank: int):
    table, counts = exact_table(2)
    with pytest.raises(UsageError):
        low_rank_bigrams(table, counts, rank)


def test_a_table_of_another_vocabulary_is_refused():
    table, _ = exact_table(2)
    with pytest.raises(ShapeProblem):
        low_rank_bigrams(table, torch.ones(V + 1, V + 1), 2)


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        (torch.ones(2, 3), ShapeProblem),
        (torch.ones(4), ShapeProblem),
        (torch.tensor([[1.0, float("nan")], [0.0, 1.0]]), NotFinite),
        (torch.tensor([[1.0, -1.0], [0.0, 1.0]]), BadInput),
        (torch.tensor([[0.5, 1.0], [0.0, 1.0]]), BadInput),
        (torch.zeros(2, 2), BadInput),
        (torch.ones(2, 2, dtype=torch.complex64), ShapeProblem),
        ([[1.0]], ShapeProblem),
    ],
)
def test_what_is_not_a_table_of_counts_is_refused(counts: Tensor, error: type[Exception]):
    with as_users_run_it(), pytest.raises(error):
        check_counts(counts)


def test_tables_above_the_guard_are_refused():
    assert check_size(8000, "here") is None
    with pytest.raises(TooLarge, match="d_vocab=8001"):
        check_size(8001, "here")


def test_pairs_are_checked():
    with pytest.raises(TextProblem):
        smoothed_bigrams(torch.ones(3, 3), np.zeros((2, 0), dtype=np.int64))
    for bad in ([[0, 3], [1, 1]], [[0, 1], [-1, 1]]):
        with pytest.raises(TokenProblem):
            smoothed_bigrams(torch.ones(3, 3), np.array(bad))


@pytest.mark.parametrize(
    "pairs", [[[0, 1], [1, 0]], np.array([0, 1]), np.zeros((3, 4), dtype=int), np.array([[0.0, 1.0], [1.0, 0.0]])]
)
def test_what_is_no_pair_of_id_rows_is_refused(pairs: object):
    with as_users_run_it(), pytest.raises(ShapeProblem, match="pairs of tokens"):
        smoothed_bigrams(torch.ones(3, 3), pairs)  # type: ignore[arg-type]


def test_ids_past_int64_are_named_as_they_are():
    with as_users_run_it(), pytest.raises(TokenProblem, match="9223372036854775808"):
        smoothed_bigrams(torch.ones(2, 2), np.array([[2**63], [0]], dtype=np.uint64))


def test_what_is_no_table_or_no_number_of_steps_is_refused():
    table, counts = exact_table(2)
    with as_users_run_it():
        with pytest.raises(UsageError, match=r"no smoothed table.*got dict"):
            low_rank_bigrams({}, counts, 2)  # type: ignore[arg-type]
        for steps in ("9", 0, 2.0, True):
            with pytest.raises(UsageError, match="iterations"):
                low_rank_bigrams(table, counts, 2, iterations=steps)  # type: ignore[arg-type]


def test_narrow_unsigned_ids_do_not_wrap():
    wide = np.random.default_rng(0).integers(0, 300, (2, 500))
    counts = torch.ones(300, 300)
    with as_users_run_it():
        found = [smoothed_bigrams(counts, wide.astype(kind)).validation_loss for kind in (np.int64, np.uint16)]
    assert found[0] == found[1]
