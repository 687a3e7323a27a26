"""From a corpus to windows: which tokens stand in which window is a function of (seed, step) alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headway.errors import TextProblem
from headway.tokens.tokenizer import Tokenizer


def encode_files(files: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> Int[np.ndarray, " n"]:
    """All files in one row of ids, BOS before each."""
    bos = tokenizer.bos
    lead = [] if bos is None else [bos]
    rows = [lead + ids for ids in tokenizer.encode_many([text for _, text in files])]
    return np.fromiter((i for row in rows for i in row), dtype=np.int64)


def bigram_counts(ids: Int[np.ndarray, " n"], bos: int, d_vocab: int, n_ctx: int) -> Int[np.ndarray, "3 m"]:
    """(first, next, count) as a model sees them: every pair of the row, and BOS before each window of n_ctx tokens."""
    starts = ids[::n_ctx]
    pairs = np.concatenate((ids[:-1] * d_vocab + ids[1:], bos * d_vocab + starts[starts != bos]))
    codes, counts = np.unique(pairs, return_counts=True)
    return np.stack((codes // d_vocab, codes % d_vocab, counts))


@dataclass(frozen=True)
class Windows:
    """Windows of n_ctx tokens from one row of ids, each behind its own BOS, in an order drawn anew every epoch."""

    ids: Int[np.ndarray, " n"]
    n_ctx: int
    bos: int
    seed: int

    def __post_init__(self) -> None:
        if len(self) < 1:
            raise TextProblem(
                "text too short",
                expected=f"more than n_ctx={self.n_ctx} tokens",
                got=len(self.ids),
                next_step="Give more text",
            )

    def __len__(self) -> int:
        return max((len(self.ids) - 1) // self.n_ctx - 1, 0)

    def batch(self, step: int, rows: int) -> tuple[Int[Tensor, "rows n_ctx"], Int[Tensor, "rows n_ctx"]]:
        """(inputs, targets) of one step: row r is window step * rows + r of the endless shuffled sequence."""
        numbers = [self._start(step * rows + r) for r in range(rows)]
        targets = torch.from_numpy(np.stack([self.ids[a : a + self.n_ctx] for a in numbers]))
        inputs = torch.cat((torch.full((rows, 1), self.bos), targets[:, :-1]), dim=1)
        return inputs, targets

    def _start(self, number: int) -> int:
        epoch, index = divmod(number, len(self))
        order, shift = _order(self.seed, epoch, len(self), self.n_ctx)
        return int(order[index]) * self.n_ctx + shift


_orders: dict[tuple[int, int, int, int], tuple[np.ndarray, int]] = {}


def _order(seed: int, epoch: int, n: int, n_ctx: int) -> tuple[np.ndarray, int]:
    """Shuffled window numbers of an epoch, and the shift that moves the windows' edges between epochs."""
    key = (seed, epoch, n, n_ctx)
    if key not in _orders:
        _orders.clear()  # one epoch at a time is enough
        random = np.random.Generator(np.random.PCG64([seed, epoch]))
        _orders[key] = random.permutation(n), int(random.integers(n_ctx))
    return _orders[key]
