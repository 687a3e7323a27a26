"""How often triples happen in a text: a somewhere before b, in the same file and within reach, and then c."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from headway.errors import TokenProblem
from headway.shapes import as_tensor, whole_ids


@dataclass(frozen=True, eq=False)
class TripleCounts:
    """Counts of triples (a, b, c), one entry each.

    triple: times that b stood with an a before it and c after it; pair: with an a before it, whatever came after;
    bigram: with c after it; single: at all, with anything after it.
    """

    triple: Int[np.ndarray, " t"]
    pair: Int[np.ndarray, " t"]
    bigram: Int[np.ndarray, " t"]
    single: Int[np.ndarray, " t"]

    @property
    def expected(self) -> np.ndarray:
        """What `triple` would be if an a before b told nothing of what follows: pair x bigram / single."""
        return self.pair * self.bigram / np.maximum(self.single, 1)


class TripleCounter:
    """Counts triples in one row of ids.

    reach: the most positions from a to b. bos: the id that starts every file; nothing is counted across it.

    >>> counter = TripleCounter([0, 5, 1, 7, 3, 0, 7, 3], reach=9, bos=0)
    >>> found = counter.count([5, 5], [7, 1], [3, 7])
    >>> found.triple.tolist(), found.bigram.tolist()
    ([1, 1], [2, 1])
    """

    def __init__(self, ids: object, *, reach: int, bos: int | None = None) -> None:
        self.ids = whole_ids(as_tensor(ids, "token ids of a text"), "token ids of a text", "pos").cpu().numpy()
        self._reach = reach
        places = np.arange(len(self.ids))
        starts = np.where(self.ids == (-1 if bos is None else bos), places, -1)
        self._file = np.maximum.accumulate(starts)  # where each position's file starts: its BOS
        self._order = np.argsort(self.ids, kind="stable")
        self._sorted = self.ids[self._order]

    def check(self, d_vocab: int) -> TripleCounter:
        """Itself, or TokenProblem when an id lies outside the vocabulary."""
        if len(self.ids) and (self.ids.min() < 0 or self.ids.max() >= d_vocab):
            raise TokenProblem(
                "token ids of a text",
                expected=f"0 .. d_vocab-1={d_vocab - 1}",
                got=f"{self.ids.min()} .. {self.ids.max()}",
                next_step="Use the tokenizer the model was trained with",
            )
        return self

    def count(self, source: object, destination: object, out: object) -> TripleCounts:
        """Counts of the triples whose ids stand at the same place of three lists."""
        a, b, c = (np.asarray(ids, dtype=np.int64) for ids in (source, destination, out))
        counts = np.zeros((4, len(a)), dtype=np.int64)
        for pair, rows in _groups(a, b):
            ends, before = self._queries(*pair)
            follows = self.ids[ends + 1]
            wanted = follows[:, None] == c[rows]
            counts[0, rows], counts[1, rows] = wanted[before].sum(0), before.sum()
            counts[2, rows], counts[3, rows] = wanted.sum(0), len(ends)
        return TripleCounts(*counts)

    def _queries(self, source: int, destination: int) -> tuple[Int[np.ndarray, " q"], Bool[np.ndarray, " q"]]:
        """Where b stands with something after it, and whether an a stands before it within reach."""
        ends, sources = self._places(destination), self._places(source)
        ends = ends[ends + 1 < len(self.ids)]
        last = np.searchsorted(sources, ends) - 1  # the last a strictly before
        nearest = np.where(last >= 0, sources[last] if len(sources) else -1, -1)
        return ends, (last >= 0) & (nearest > self._file[ends]) & (ends - nearest <= self._reach)

    def _places(self, token: int) -> Int[np.ndarray, " p"]:
        first, end = np.searchsorted(self._sorted, (token, token + 1))
        return self._order[first:end]


def _groups(
    a: Int[np.ndarray, " t"], b: Int[np.ndarray, " t"]
) -> Iterator[tuple[tuple[int, int], Int[np.ndarray, " g"]]]:
    """Each different pair (a, b) with the rows that have it."""
    order = np.lexsort((b, a))
    cuts = np.flatnonzero((np.diff(a[order]) != 0) | (np.diff(b[order]) != 0)) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            yield (int(a[rows[0]]), int(b[rows[0]])), rows
