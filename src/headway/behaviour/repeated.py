"""Repeated random tokens: text in which only copying what came before can predict (papers.md 2.2 and 8).

A row is BOS, where the model has one, and `length` random tokens repeated `copies` times. The tokens of a row are drawn
without replacement: each has exactly one successor, so that what induction predicts is unique.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.algebra.null import check_seed
from headway.behaviour.averages import Averages
from headway.behaviour.observed import Arrays, Observed
from headway.behaviour.windows import batches, token_losses
from headway.errors import NotFinite, ShapeProblem, TokenProblem, UsageError
from headway.model.config import ModelConfig
from headway.model.forward import logits, run
from headway.model.recording import Recording
from headway.model.weights import Weights, check_weights
from headway.shapes import whole_ids
from headway.tables.table import Column, Table

RARE_AND_COMMON = 0.04  # share of the vocabulary left out at each end, when frequencies are known
_ROWS_AT_ONCE = 8
_MOST = 1_000_000  # rows, tokens or copies: more is a slip
_POOL = "the vocabulary without BOS"

PREFIX_COLUMNS = {
    "head": Column("the head"),
    "prefix_matching": Column(
        "attention from the second copy on to the tokens right after earlier copies of the query's own token, summed over "
        "them, mean over queries",
        "probability",
        0,
        1,
    ),
    "prefix_matching_se": Column("standard error over rows of random tokens", "probability", 0),
    "n": Column("rows of random tokens", "rows", 1),
    "flag": Column("why a value of this row is missing"),
}
GAIN_COLUMNS = {
    "induction_gain": Column("loss_shuffled - loss_repeated", "nats"),
    "induction_gain_se": Column("standard error of the difference over rows, paired", "nats", 0),
    "loss_repeated": Column("loss on the second half when it repeats the first", "nats", 0),
    "loss_shuffled": Column("loss on the second half when it is the first in random order", "nats", 0),
    "n": Column("rows of random tokens", "rows", 1),
    "flag": Column("why a value of this row is missing"),
}


def token_pool(
    config: ModelConfig | int, *, exclude: Iterable[int] = (), frequencies: Arrays = None
) -> Int[Tensor, " pool"]:
    """Ids to draw random text from: the vocabulary without BOS, without `exclude`, without rare and common tokens.

    config: a model's config, or a vocabulary size where there is no BOS. frequencies: [d_vocab] counts; the int(0.04
    d_vocab) most and least frequent tokens are then left out (of equal counts the lower id counts as rarer). Raises
    TokenProblem for ids outside the vocabulary, ShapeProblem for frequencies of another length.

    >>> token_pool(7, exclude=[2]).tolist()
    [0, 1, 3, 4, 5, 6]
    """
    d_vocab, bos = _vocabulary(config)
    chosen = np.ones(d_vocab, dtype=bool)
    if frequencies is not None:
        counts = _counts(frequencies, d_vocab)
        order, n = np.argsort(counts, kind="stable"), int(RARE_AND_COMMON * d_vocab)
        chosen[order[:n]] = chosen[order[d_vocab - n :]] = False
    for token in [*_excluded(exclude), *([] if bos is None else [bos])]:
        if not 0 <= token < d_vocab:
            raise TokenProblem("token id to leave out", expected=f"0 .. d_vocab-1={d_vocab - 1}", got=token)
        chosen[token] = False
    return torch.from_numpy(chosen.nonzero()[0])


def repeated_tokens(
    config: ModelConfig | int,
    *,
    length: int = 25,
    copies: int = 4,
    rows: int = 10,
    seed: int = 0,
    pool: Int[Tensor, " pool"] | None = None,
) -> Int[Tensor, "row pos"]:
    """Rows of BOS (where there is one) and `copies` times the same random tokens, [rows, (1 +) length * copies].

    `length` tokens are drawn uniformly without replacement from `pool` (default: the vocabulary without BOS), anew for
    each row. Raises UsageError when the pool is smaller than `length`.

    >>> repeated_tokens(3, length=3, copies=2, rows=1).tolist()
    [[2, 0, 1, 2, 0, 1]]
    """
    for name, value, least in (("length", length, 1), ("copies", copies, 2), ("rows", rows, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            expected = f"a whole number >= {least}" + (f" and <= {_MOST:,}" if isinstance(value, int) else "")
            raise UsageError(f"{name} of repeated tokens", expected=expected, got=repr(value)[:40])
    check_seed(seed)
    d_vocab, bos = _vocabulary(config)
    ids = (token_pool(config) if pool is None else whole_ids(pool, "pool of tokens", "pool")).cpu().numpy()
    if ids.size and (ids.min() < 0 or ids.max() >= d_vocab):
        raise TokenProblem(
            "pool of tokens", expected=f"0 .. d_vocab-1={d_vocab - 1}", got=f"{ids.min()} .. {ids.max()}"
        )
    ids = np.unique(ids)
    if len(ids) < length:
        raise UsageError(
            "too few tokens to draw from without replacement",
            expected=f"at least length={length} of them",
            got=f"{len(ids)} ({_POOL if pool is None else 'different ids in the pool'})",
            next_step=f"length is at most {len(ids)} here" if len(ids) else "Give a pool that holds tokens",
        )
    random = np.random.Generator(np.random.PCG64(seed))
    once = torch.from_numpy(np.stack([random.choice(ids, length, replace=False) for _ in range(rows)]))
    return torch.cat((once.new_full((rows, _lead(bos)), bos or 0), once.repeat(1, copies)), dim=1)


def prefix_matching(seen: Recording | Observed, length: int) -> Float[Tensor, "layer head row"]:
    """Attention to what induction predicts, on rows of repeated tokens: for each head and row

        mean over j in copies 2, 3, ... of  sum_{m >= 1, j - m length >= start}  A[j, j - m length + 1]

    that is, to the token after each earlier copy of token j. Probability, 0 to 1; a head that has nothing to match can
    not reach 1 without a BOS to rest on in the first copy. Raises ShapeProblem when the tokens are not such rows.
    """
    seen = Observed.of(seen)
    start = _check_repeats(seen, length)
    n = seen.tokens.shape[1]
    found = []
    for pattern in seen.patterns:
        total = pattern.new_zeros(pattern.shape[:2], dtype=torch.float64)
        for back in range(length, n - start, length):
            # Entry e of this diagonal is A[i, i - back + 1] with i = e + back - 1; queries with i >= start + back count.
            total += pattern.diagonal(1 - back, dim1=-2, dim2=-1)[..., start + 1 :].double().sum(-1)
        found.append(total.T / (n - start - length))
    return torch.stack(found) if found else torch.zeros(0, 0, len(seen.tokens), dtype=torch.float64)


@torch.no_grad()
def prefix_matching_scores(
    weights: Weights,
    *,
    length: int = 25,
    copies: int = 4,
    rows: int = 10,
    seed: int = 0,
    pool: Int[Tensor, " pool"] | None = None,
) -> Table:
    """`prefix_matching` of every head on `repeated_tokens`, with standard errors over rows; one row a head.

    The defaults are the paper's (25 tokens, 4 copies, 10 examples); `pool=token_pool(config, frequencies=...)` leaves
    out rare and common tokens as the paper does.

    >>> from headway.sources.handmade import induction_model
    >>> scores = prefix_matching_scores(induction_model().weights, length=6, copies=2)
    >>> [row["head"] for row in scores.rows()]
    ['L0H0', 'L1H0']
    """
    check_weights(weights)
    tokens = repeated_tokens(weights.config, length=length, copies=copies, rows=rows, seed=seed, pool=pool)
    tokens = tokens.to(weights.device)
    parts = [prefix_matching(run(weights, tokens[part]), length) for part in batches(rows, _ROWS_AT_ONCE)]
    scores = Averages.of(torch.cat(parts, -1), torch.ones(rows))
    table = [
        {"head": head, "n": rows, "prefix_matching": m, "prefix_matching_se": se, "flag": _one_row(rows)}
        for head, m, se in zip(weights.head_ids(), scores.mean.flatten(), scores.se.flatten(), strict=True)
    ]
    origin = replace(weights.provenance, weights=weights.content_hash())
    options: dict[str, Any] = {
        "length": length,
        "copies": copies,
        "pool": _POOL if pool is None else f"{len(pool)} ids",
    }
    return Table.from_rows(table, PREFIX_COLUMNS, origin.with_options(seed=seed, **options))


@torch.no_grad()
def induction_gain(
    weights: Weights, *, length: int = 50, rows: int = 32, seed: int = 0, pool: Int[Tensor, " pool"] | None = None
) -> Table:
    """What it is worth that a text repeats: loss on the second half shuffled, minus loss on it repeating the first.

    Both texts are BOS, `length` random tokens, and then the same tokens again, in the same or in random order: copying
    that does not follow the order gains nothing. Nats a token, over the positions that predict tokens 2 .. length of the
    second half: its first token cannot be known in either text. Among `length` shuffled tokens one, on average, follows
    the same token as before. One row: `induction_gain`, its standard error over rows (paired), the two losses.
    """
    check_weights(weights)
    if isinstance(length, bool) or not isinstance(length, int) or length < 2:
        raise UsageError("length of the halves", expected="a whole number >= 2", got=repr(length))
    repeated = repeated_tokens(weights.config, length=length, copies=2, rows=rows, seed=seed, pool=pool)
    random = np.random.Generator(np.random.PCG64([seed, 1]))
    order = torch.from_numpy(np.stack([random.permutation(length) for _ in range(rows)]))
    shuffled = torch.cat((repeated[:, :-length], repeated[:, -length:].gather(1, order)), dim=1)
    losses = [_second_half(weights, tokens, length) for tokens in (repeated, shuffled)]
    averages = Averages.of(torch.stack([losses[1] - losses[0], *losses]), torch.ones(rows))
    gain, repeats, shuffles = averages.mean.tolist()
    row: dict[str, Any] = {"induction_gain": gain, "induction_gain_se": float(averages.se[0]), "loss_repeated": repeats}
    row |= {"loss_shuffled": shuffles, "n": rows, "flag": _one_row(rows)}
    origin = replace(weights.provenance, weights=weights.content_hash())
    options = {"length": length, "pool": _POOL if pool is None else f"{len(pool)} ids"}
    return Table.from_rows([row], GAIN_COLUMNS, origin.with_options(seed=seed, **options))


def _second_half(weights: Weights, tokens: Tensor, length: int) -> Float[Tensor, " row"]:
    """Mean loss over tokens 2 .. length of the second half, a row at a time."""
    means, tokens = [], tokens.to(weights.device)
    for part in batches(len(tokens), _ROWS_AT_ONCE):
        predicted = logits(weights, tokens[part, :-1])[:, 1 - length :]
        means.append(token_losses(predicted, tokens[part, 1 - length :]).mean(-1))
    return torch.cat(means)


def _check_repeats(seen: Observed, length: int) -> int:
    """The position of the first copy; ShapeProblem unless the rows are whole repeats of `length` different tokens."""
    tokens = seen.tokens
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise UsageError("length of the repeat", expected="a whole number >= 1", got=repr(length))
    start = _lead(seen.bos)
    text = tokens[:, start:]
    n = text.shape[1]
    expected = f"{'BOS and ' if start else ''}two or more copies of length={length} different tokens, without padding"
    whole = n >= 2 * length and n % length == 0 and not bool((~seen.real).any())
    if start and bool((tokens[:, 0] != seen.bos).any()):
        whole = False
    if not whole or not torch.equal(text[:, length:], text[:, :-length]):
        raise ShapeProblem("not rows of repeated tokens", expected=expected, got=f"rows of {tokens.shape[1]} tokens")
    once = text[:, :length].sort(-1).values
    if bool((once[:, 1:] == once[:, :-1]).any()):
        raise ShapeProblem(
            "a token stands twice in one copy", expected=expected, next_step="Sample without replacement"
        )
    return start


def _counts(frequencies: Arrays, d_vocab: int) -> np.ndarray:
    try:
        counts = np.asarray(frequencies, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeProblem("frequencies", expected=f"numbers (d_vocab={d_vocab},)", got=str(error)) from None
    if counts.shape != (d_vocab,):
        raise ShapeProblem("frequencies", expected=f"(d_vocab={d_vocab},)", got=counts.shape)
    if np.isnan(counts).any():
        raise NotFinite("NaN in frequencies", expected="a count for every token")
    return counts


def _excluded(exclude: Iterable[int]) -> list[int]:
    """The ids to leave out as whole numbers of Python, from any iterable of whole numbers, arrays too."""
    try:
        return [operator.index(token) for token in exclude]
    except TypeError as error:
        raise TokenProblem("token ids to leave out", expected="a list of whole numbers", got=str(error)) from None


def _vocabulary(config: ModelConfig | int) -> tuple[int, int | None]:
    if isinstance(config, ModelConfig):
        return config.d_vocab, config.bos
    if isinstance(config, bool) or not isinstance(config, int) or config < 1:
        raise UsageError("a vocabulary size", expected="a whole number >= 1", got=repr(config))
    return config, None


def _lead(bos: int | None) -> int:
    return 0 if bos is None else 1


def _one_row(rows: int) -> str | None:
    return "one row: no standard error" if rows == 1 else None
