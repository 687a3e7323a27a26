from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from headway.errors import TextProblem
from headway.sources.trained.bpe import train_bpe
from headway.sources.trained.data import Windows, bigram_counts, encode_files
from headway.tokens import Tokenizer
from support.small_runs import small_text

IDS = np.arange(1, 84)


def test_files_are_joined_behind_bos():
    tokenizer = train_bpe([small_text(1)], 270)
    files = [("a", "the cat"), ("b", ""), ("c", "sat")]
    found = encode_files(files, tokenizer)
    assert found.tolist() == [0, *tokenizer.encode("the cat"), 0, 0, *tokenizer.encode("sat")]
    assert found.dtype == np.int64
    plain = Tokenizer.from_json('{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}')
    assert encode_files([("a", "ab"), ("b", "a")], plain).tolist() == [0, 1, 0]
    assert len(encode_files([], tokenizer)) == 0


def test_windows_are_a_function_of_seed_and_step():
    one, again, other = Windows(IDS, 8, 0, 5), Windows(IDS, 8, 0, 5), Windows(IDS, 8, 0, 6)
    order = [3, 0, 11, 3, 7]  # any order, across epochs
    found = [one.batch(step, 3) for step in order]
    for step, (inputs, targets) in zip(reversed(order), reversed(found), strict=True):
        assert torch.equal(again.batch(step, 3)[0], inputs) and torch.equal(again.batch(step, 3)[1], targets)
    assert any(not torch.equal(other.batch(s, 3)[1], one.batch(s, 3)[1]) for s in range(3))


def test_a_window_is_bos_and_the_tokens_before_its_targets():
    inputs, targets = Windows(IDS, 8, 0, 1).batch(2, 4)
    assert inputs.shape == targets.shape == (4, 8) and inputs.dtype == targets.dtype == torch.int64
    assert bool((inputs[:, 0] == 0).all()) and torch.equal(inputs[:, 1:], targets[:, :-1])
    assert bool((targets[:, 1:] - targets[:, :-1] == 1).all()), "a run of the text"


def test_an_epoch_reads_every_window_once_and_edges_move_between_epochs():
    windows = Windows(IDS, 8, 0, 1)
    n = len(windows)
    assert n == (83 - 1) // 8 - 1
    shifts: set[int] = set()
    for epoch in range(6):
        starts = [int(windows.batch(epoch * n + i, 1)[1][0, 0]) - 1 for i in range(n)]
        shift = min(starts)
        assert 0 <= shift < 8 and sorted(starts) == [shift + 8 * i for i in range(n)]
        assert starts != sorted(starts)
        shifts.add(shift)
    assert len(shifts) > 1


def test_rows_of_a_step_are_consecutive_windows():
    windows = Windows(IDS, 8, 0, 1)
    singles = torch.cat([windows.batch(i, 1)[1] for i in range(12)])
    assert torch.equal(torch.cat([windows.batch(i, 4)[1] for i in range(3)]), singles)


@pytest.mark.parametrize("n", [0, 5, 8, 16])
def test_a_text_shorter_than_two_windows_is_refused(n: int):
    with pytest.raises(TextProblem, match="n_ctx=8"):
        Windows(IDS[:n], 8, 0, 1)
    assert len(Windows(IDS[:17], 8, 0, 1)) == 1


@pytest.mark.parametrize("n_ctx", [3, 7, 50])
def test_bigram_counts_by_brute_force(n_ctx: int):
    ids = np.random.default_rng(2).integers(0, 6, 40)
    wanted = Counter(zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True))
    wanted.update((0, int(ids[a])) for a in range(0, 40, n_ctx) if ids[a] != 0)
    found = bigram_counts(ids, 0, 6, n_ctx)
    assert {(a, b): n for a, b, n in found.T.tolist()} == dict(wanted)
