"""What an effect of a skip-trigram is computed for: one source in an otherwise average context, and a head's factors there.

    alpha_ba = e^{s_ba} / (e^{s_ba} + Z_b),   Z_b = e^{s_bb} + e^{s_b,BOS} + (n - 3) E_{a' ~ p} e^{s_ba'}

A context of n positions holds BOS, the destination b itself, one source a, and n - 3 tokens drawn from p. Without a BOS
its term goes and n - 2 are drawn. BOS itself is never drawn, and is neither source nor destination.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.algebra.given import real_tensor, whole_number
from headway.algebra.low_rank import LowRank
from headway.circuits.ov import ov_circuit
from headway.circuits.qk import qk_circuit
from headway.circuits.trigram_counts import TripleCounter
from headway.circuits.trigram_search import Factors, Progress, log_mean_exp
from headway.errors import BadInput, ShapeProblem, UsageError
from headway.ids import HeadId
from headway.model.config import ModelConfig
from headway.model.weights import Weights
from headway.shapes import as_tensor


@dataclass(frozen=True, eq=False)
class TrigramContext:
    """The context that effects are given for, and the text whose counts stand beside them.

    n: its length, n_ctx when left out. unigram: how often each token stands in it, [d_vocab] (any sum): the model's carried
    counts when left out, else those of `text`, else every token alike. offset: destination - source, which matters under
    rotary positions only. text: token ids, BOS before each file; the held-out ids that the model carries when left out.
    """

    n: int | None = None
    unigram: Tensor | Sequence[float] | np.ndarray | None = None
    offset: int = 1
    text: Tensor | Sequence[int] | np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Assumed:
    """A context brought to numbers for one model: n, offset, p and where it is from, counts of a text and which."""

    n: int
    offset: int
    share: Float[Tensor, " vocab"]
    share_from: str
    counter: TripleCounter | None
    text: str | None


def assumed(weights: Weights, context: TrigramContext) -> Assumed:
    """The context for this model. Raises UsageError, ShapeProblem, BadInput or TokenProblem for what it cannot be."""
    if not isinstance(context, TrigramContext):
        raise UsageError("context of skip-trigrams", expected="a TrigramContext", got=repr(context)[:60])
    c = weights.config
    taken = 2 + (c.bos is not None)
    n = whole_number(c.n_ctx if context.n is None else context.n, "length n of the context", least=taken)
    offset = whole_number(context.offset, "offset, destination minus source", least=1)
    if offset > n - taken + 1:
        raise UsageError("no source stands that far back", expected=f"an offset of 1 to {n - taken + 1}", got=offset)
    carried = weights.carried
    text, ids = ("given text", context.text) if context.text is not None else (None, None)
    if ids is None and carried is not None and carried.heldout.size:
        text, ids = "held-out text the model carries", carried.heldout
    counter = None if ids is None else TripleCounter(ids, reach=n - 1, bos=c.bos).check(c.d_vocab)
    if context.unigram is not None:
        share, share_from = _given(context.unigram, c), "given"
    elif carried is not None and carried.bigrams.size:
        counts = np.bincount(carried.bigrams[1], weights=carried.bigrams[2], minlength=c.d_vocab)
        share, share_from = torch.from_numpy(counts), "counts of the training text"
    elif counter is not None and len(counter.ids):
        share, share_from = torch.from_numpy(np.bincount(counter.ids, minlength=c.d_vocab)), f"counts of the {text}"
    else:
        share, share_from = torch.ones(c.d_vocab), "every token alike"
    return Assumed(n, offset, _without_bos(share.double(), c), share_from, counter, text)


def trigram_factors(
    weights: Weights,
    head: HeadId,
    context: Assumed,
    places: tuple[Int[Tensor, " source"], Int[Tensor, " destination"]],
    progress: Progress | None = None,
) -> Factors:
    """A head's factors over these source and destination ids, and over every out.

    The scores are of contents. The BOS of a rotary model stands at position 0, n - 1 before the destination; its other
    tokens are scored at the offset of the source.
    """
    c = weights.config
    sources, destinations = (ids.to(weights.device) for ids in places)
    left, right = qk_circuit(weights, head, offset=context.offset).pair()
    ours = left[destinations]
    parts = [qk_circuit(weights, head, offset=0).diagonal()[destinations]]
    if c.bos is not None:
        parts.append(qk_circuit(weights, head, offset=context.n - 1).columns(c.bos)[destinations])
    if (others := context.n - len(parts) - 1) > 0:
        parts.append(log_mean_exp(LowRank(ours, right), context.share, progress) + math.log(others))
    rest = torch.stack(parts).logsumexp(0)
    written, read = ov_circuit(weights, head).pair()
    ov = LowRank(written, read[:, sources])
    scale = own_scale(weights)
    return Factors(LowRank(ours, right[:, sources]), ov, rest, None if scale is None else scale[destinations].to(rest))


def own_scale(weights: Weights) -> Float[Tensor, " vocab"] | None:
    """D_b: 1/sigma of the final norm on each token's own embedding alone; None without a norm."""
    c = weights.config
    if c.norm == "none":
        return None
    stream = weights.W_E.detach().double()
    stream = stream - stream.mean(0, keepdim=True) if c.norm == "layer" else stream
    return (stream.square().mean(0) + c.norm_eps).rsqrt()


def _given(unigram: Tensor | Sequence[float] | np.ndarray, config: ModelConfig) -> Float[Tensor, " vocab"]:
    given = as_tensor(unigram, "unigram of the context")
    where = "unigram of the context"
    share = real_tensor(given if given.is_floating_point() else given.double(), where, "[d_vocab]")
    if share.shape != (config.d_vocab,):
        raise ShapeProblem(where, expected=f"(d_vocab={config.d_vocab},)", got=tuple(share.shape))
    if not bool(share.isfinite().all()) or bool((share < 0).any()):
        raise BadInput(where, expected="finite counts or shares >= 0", got=f"{float(share.min()):.4g} the least")
    return share


def _without_bos(share: Float[Tensor, " vocab"], config: ModelConfig) -> Float[Tensor, " vocab"]:
    """p without BOS, which has a term of its own, summing to one."""
    if config.bos is not None:
        share = share.clone()
        share[config.bos] = 0
    if not bool(share.sum() > 0):
        raise BadInput("unigram of the context", expected="a token other than BOS with a count above 0", got="none")
    return share / share.sum()
