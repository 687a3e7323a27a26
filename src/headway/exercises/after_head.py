"""A second head behind a hard previous-token head: its keys hold two tokens, and neighbours share one of them.

After the first head position j >= 1 holds x_j + W_OV1 x_{j-1}; position 0 attends to itself and holds x_0 + W_OV1 x_0.
A state of the stream is (own token w, token before s). The proof is over every sequence: target and rival keys are
free of each other unless they stand side by side, where the earlier one's own token is the later one's token before;
the key at i is the query itself, and the key at i - 1 has the query's token before as its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from headway.exercises.givens import Given
from headway.exercises.proof import TIE, Proof, Worst, concluded
from headway.exercises.scoring import Head, sharpened, turned
from headway.exercises.verdict import Counterexample

_INF = torch.inf


@dataclass(frozen=True, eq=False)
class AfterPrevious:
    """The stream that a second head reads, for one W_OV1, and the proof of induction on it."""

    given: Given
    W_OV1: Float[Tensor, "d_model d_model"]

    @cached_property
    def states(self) -> Float[Tensor, "n own before d_model"]:
        """x at [position, own token, token before]; at position 0 the token before is the own one."""
        x = self.given.streams()
        moved = x @ self.W_OV1.T
        out = x[1:, :, None] + moved[:-1, None, :]
        first = (x[0] + moved[0])[:, None].expand(-1, x.shape[1], -1)
        return torch.cat((first[None], out))

    def _rows(self, W: Tensor) -> Float[Tensor, "n own before d_head"]:
        rows = self.states @ W.T
        if "theta" not in self.given.extra:
            return rows
        return turned(rows.flatten(1, 2), self.given.theta).view(rows.shape)

    def prove(self, head: Head) -> Proof:
        """Every key whose token before is the query's token beats every other key; position 0 is left out as a rival when
        its own token is the query's (exercises.md C4), queries without a target are left out.
        """
        found: list[Worst] = []
        by_query: list[float] = [_INF]
        spread = largest = 0.0
        for i, scores in self._by_query(head):
            spread = max(spread, float((scores.amax((2, 3, 4)) - scores.amin((2, 3, 4))).max()))
            largest = max(largest, float(scores.abs().max()))
            worst = _worst_at(scores, i)
            by_query.append(worst.margin if worst else _INF)
            found += [worst] if worst else []
        return concluded(found, by_query, spread, largest)

    def _by_query(self, head: Head, first: int = 1) -> Iterator[tuple[int, Float[Tensor, "t u j own before"]]]:
        """Query positions from `first` on, each with the scores of every query (t, u) against every key."""
        Q, K = self._rows(head.W_Q), self._rows(head.W_K)
        for i in range(first, len(Q)):
            yield i, torch.einsum("tuh,jwsh->tujws", Q[i], K[: i + 1])

    def counterexample(self, head: Head, proof: Proof, sizes: tuple[float, float]) -> Counterexample | None:
        """The shortest failing sequence, with the attention row of its query. One whose token 0 is not the query's goes
        before, since position 0 would share in the attention there, which is not held against the head (C4).
        """
        if proof.first is None:
            return None
        vocab = self.given.n_tokens
        limit = TIE * proof.range
        apart = (_worst_at(scores, i, apart=True) for i, scores in self._by_query(head, proof.first.query[0]))
        worst = next((w for w in apart if w is not None and w.margin <= limit), proof.first)
        i, query = worst.query
        t, u = divmod(query, vocab)
        tokens: dict[int, int] = {i: t, i - 1: u}
        for place, state in (worst.target, worst.rival):
            own, before = divmod(state, vocab)
            tokens[place] = own
            if place:
                tokens[place - 1] = before
        others = [token for token in range(vocab) if token not in {t, u}]
        chosen = [tokens.get(m, others[m % len(others)]) for m in range(i + 1)]
        row = self.scores(head, chosen)
        attention, by = sharpened(row)
        target = tuple(j for j in range(1, i + 1) if chosen[j - 1] == t)
        return Counterexample(tuple(chosen), i, target, tuple(attention.tolist()), by / sizes[0] / sizes[1])

    def scores(self, head: Head, tokens: Sequence[int]) -> Float[Tensor, "key_pos"]:
        """Scores of the last position of one sequence over all its keys."""
        before = [tokens[0], *tokens[:-1]]
        places = torch.arange(len(tokens))
        Q, K = self._rows(head.W_Q), self._rows(head.W_K)
        return K[places, list(tokens), before] @ Q[len(tokens) - 1, tokens[-1], before[-1]]


def _worst_at(scores: Float[Tensor, "t u j own before"], i: int, *, apart: bool = False) -> Worst | None:
    """The query state at i, and the pair of keys, with the smallest margin of target over rival. apart: only of sequences
    whose token 0 is not the query's.
    """
    vocab = scores.shape[0]
    hit, miss = _keys(scores, i, apart=apart)
    gaps = _gaps(hit, miss, i)
    flat = int(gaps.argmin())
    margin = float(gaps.flatten()[flat])
    if margin == _INF:
        return None
    width = i + 1
    query, j, k = flat // width**2, flat // width % width, flat % width
    t, u = divmod(query, vocab)
    target, rival = _labels(hit[t, u], miss[t, u], j, k, margin)
    return Worst(margin, (i, query), (j, target), (k, rival))


def _keys(scores: Tensor, i: int, *, apart: bool) -> tuple[Tensor, Tensor]:
    """Scores of possible targets (others +inf) and possible rivals (others -inf), both [t, u, j, own, before]."""
    vocab = scores.shape[0]
    token = torch.arange(vocab)
    t, u = token[:, None, None, None, None], token[None, :, None, None, None]
    own, before = token[None, None, None, :, None], token[None, None, None, None, :]
    j = torch.arange(i + 1)[None, None, :, None, None]
    possible = ((j != i) | ((own == t) & (before == u))) & ((j != i - 1) | (own == u)) & ((j != 0) | (before == own))
    if apart:  # the token at 0 is the own one there, and the one before at 1
        possible &= ((j != 0) | (own != t)) & ((j != 1) | (before != t))
    matches = (before == t) & (j > 0)
    hit = scores.masked_fill(~(possible & matches), _INF)
    miss = scores.masked_fill(~possible | (before == t), -_INF)  # at 0 `before` is the own token: C4 leaves it out
    return hit, miss


def _gaps(hit: Tensor, miss: Tensor, i: int) -> Float[Tensor, "t u target rival"]:
    """Least margin for each pair of key positions; +inf where no sequence holds such a pair."""
    low, high = hit.amin((3, 4)), miss.amax((3, 4))
    gaps = low[..., :, None] - high[..., None, :]
    gaps.diagonal(dim1=2, dim2=3).fill_(_INF)
    if i >= 1:
        # Neighbours, target first: its own token is the rival's token before.
        after = hit[:, :, :-1].amin(4) - miss[:, :, 1:].amax(3)  # [t, u, j, own = before]
        gaps.diagonal(offset=1, dim1=2, dim2=3).copy_(after.amin(-1))
        # Rival first: its own token is the target's token before, which is the query's token t.
        vocab = hit.shape[0]
        pick = torch.arange(vocab)
        rival = miss[:, :, :-1].amax(4)[pick, :, :, pick]  # [t, u, j] with own = t
        gaps.diagonal(offset=-1, dim1=2, dim2=3).copy_(low[:, :, 1:] - rival)
    return gaps


def _labels(hit: Tensor, miss: Tensor, j: int, k: int, margin: float) -> tuple[int, int]:
    """States (own * vocab + before) of the target at j and the rival at k that give the margin."""
    vocab = hit.shape[-1]
    every = hit[j].reshape(-1, 1) - miss[k].reshape(1, -1)
    label = torch.arange(vocab * vocab)
    own, before = label // vocab, label % vocab
    if k == j + 1:
        every = every.masked_fill(own[:, None] != before[None, :], _INF)
    if k == j - 1:
        every = every.masked_fill(before[:, None] != own[None, :], _INF)
    place = int((every - margin).abs().nan_to_num(_INF).argmin())
    return place // (vocab * vocab), place % (vocab * vocab)
