"""The direct path as a bigram table, against the tables that counts give.

Without heads a model is token -> logits: log softmax of W_U W_E, whose optimum is the bigram log-likelihood
(Elhage et al. 2021, "Zero-Layer Transformers"). Tables are [first, next], in nats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headway.circuits.smoothing import check_counts, check_size, first_shares, low_rank_bigrams, smoothed_bigrams
from headway.errors import ShapeProblem, TextProblem, TokenProblem
from headway.model.config import ModelConfig
from headway.model.forward import logits
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

_ROWS = 256  # first tokens at a time
COLUMNS = {
    "table": Column("whose predictions of the next token from the one before"),
    "heldout_loss": Column("mean loss on the held-out text", "nats", 0),
    "heldout_se": Column("standard error of heldout_loss over windows", "nats", 0),
    "kl_to_smoothed": Column("KL(smoothed bigrams || this), averaged by how often each first token occurs", "nats", 0),
    "flag": Column("why a value of this row is missing"),
}


@dataclass(frozen=True, eq=False)
class Windows:
    """(first, next) ids of whole windows of text, [window, pair] each."""

    first: Int[np.ndarray, "window pair"]
    next: Int[np.ndarray, "window pair"]

    @property
    def pairs(self) -> Int[np.ndarray, "2 n"]:
        """All pairs in two rows."""
        return np.stack((self.first.ravel(), self.next.ravel()))


def direct_path_log_probs(weights: Weights) -> Float[Tensor, "first next"]:
    """log softmax of W_U W_E: what the model predicts from a token when every head writes nothing, nats.

    The model's own zero-heads logits: each layer's b_O is added, as at every order of the path expansion; the final norm,
    where there is one, is applied to what is then in the stream; b_U is added. A learned position term is left out.
    The same for raw and folded weights. In the weights' precision. Raises TooLarge above 64 million elements.

    >>> from headway.sources.handmade import induction_model
    >>> direct_path_log_probs(induction_model().weights).exp().sum(1).round().unique().tolist()
    [1.0]
    """
    check_weights(weights)
    check_size(weights.config.d_vocab, "direct_path_log_probs")
    bare = without_heads(weights)
    with torch.no_grad():
        tokens = torch.arange(weights.config.d_vocab, device=weights.device)
        parts = [logits(bare, block[:, None])[:, 0].log_softmax(-1) for block in tokens.split(_ROWS)]
    return torch.cat(parts)


def without_heads(weights: Weights) -> Weights:
    """The model with no layers and no positions: b_O of every layer joined to the embedding, everything else kept.

    >>> from headway.sources.handmade import induction_model
    >>> without_heads(induction_model().weights).config.n_layers
    0
    """
    fields = weights.config.to_dict() | {"n_layers": 0, "positions": "none", "rotary_dims": 0}
    W_E = weights.W_E if weights.b_O is None else weights.W_E + weights.b_O.sum(0)[:, None]
    kept = {n: t for n, t in weights.tensors().items() if n in {"W_U", "b_U", "final_gain", "final_bias"}}
    none = {n: getattr(weights, n)[:0] for n in ("W_Q", "W_K", "W_V", "W_O")}
    origin = replace(weights.provenance.with_step("heads left out"), weights="")
    return Weights(config=ModelConfig.from_dict(fields), W_E=W_E, **kept, **none, provenance=origin)


def text_pairs(ids: Int[np.ndarray, " n"], config: ModelConfig, where: str = "text") -> Windows:
    """The pairs a model is judged on: windows of n_ctx ids that tile the text, each behind its own BOS if there is one.

    Without a BOS the first id of a window is not predicted. Ids after the last whole window are left out. Raises
    TextProblem for less than one window, TokenProblem for ids outside the vocabulary, ShapeProblem for what are no ids.

    >>> c = ModelConfig(n_layers=0, n_heads=0, d_model=1, d_head=1, d_vocab=9, n_ctx=2, bos=0)
    >>> text_pairs(np.array([5, 6, 7, 8]), c).pairs.tolist()
    [[0, 5, 0, 7], [5, 6, 7, 8]]
    """
    n = config.n_ctx
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
        got = f"{ids.shape} {ids.dtype}" if isinstance(ids, np.ndarray) else type(ids).__name__
        raise ShapeProblem(f"ids of the {where}", expected="an array of whole-number ids (n,)", got=got)
    if len(ids) < n or (config.bos is None and n < 2):
        least = max(n, 1 if config.bos is not None else 2)
        raise TextProblem("too short", where=where, expected=f"a window of n_ctx={least} tokens", got=len(ids))
    if ids.min() < 0 or ids.max() >= config.d_vocab:
        got = f"{ids.min()} .. {ids.max()}"
        raise TokenProblem(f"ids of the {where}", expected=f"0 .. d_vocab-1={config.d_vocab - 1}", got=got)
    rows = np.asarray(ids[: len(ids) // n * n], dtype=np.int64).reshape(-1, n)
    if config.bos is None:
        return Windows(rows[:, :-1], rows[:, 1:])
    lead = np.full((len(rows), 1), config.bos, dtype=np.int64)
    return Windows(np.concatenate((lead, rows[:, :-1]), axis=1), rows)


def direct_path_study(
    weights: Weights,
    counts: Float[Tensor, "first next"],
    validation: Int[np.ndarray, " v"],
    heldout: Int[np.ndarray, " h"],
) -> Table:
    """The direct path beside the best smoothed bigram table, the best one of rank d_model, and the unigram table.

    counts: pairs of the training text; validation: ids that smoothing is fitted on; heldout: ids that all four are
    judged on, over the same windows (`text_pairs`). The direct path is `direct_path_log_probs`; unigram adds one half to
    each count. Raises TooLarge, and what `text_pairs` and `smoothed_bigrams` raise.

    >>> from headway.sources.handmade import induction_model
    >>> w = induction_model().weights
    >>> v = w.config.d_vocab
    >>> ids = np.arange(2 * w.config.n_ctx) % v
    >>> table = direct_path_study(w, torch.eye(v, dtype=torch.float64).roll(1, 1), ids, ids)
    >>> [row["table"] for row in table.rows()][:2]
    ['direct path', 'smoothed bigrams']
    """
    check_weights(weights)
    c = weights.config
    check_size(c.d_vocab, "direct_path_study")
    counts = check_counts(counts)
    if len(counts) != c.d_vocab:
        raise ShapeProblem("bigram counts", expected=f"[d_vocab={c.d_vocab}, d_vocab]", got=tuple(counts.shape))
    judged = text_pairs(heldout, c, "held-out text")
    smoothed = smoothed_bigrams(counts, text_pairs(validation, c, "validation text").pairs)
    unigram = counts.sum(0) + 0.5
    tables = {
        "direct path": direct_path_log_probs(weights).to("cpu", torch.float64),
        "smoothed bigrams": smoothed.log_probs,
        f"rank-{c.d_model} bigrams": low_rank_bigrams(smoothed, counts, c.d_model),
        "unigram": (unigram / unigram.sum()).log().expand(c.d_vocab, -1),
    }
    target, share = smoothed.log_probs, first_shares(counts)
    rows = [
        {"table": name, **_heldout(log_probs, judged), "kl_to_smoothed": _kl(target, log_probs, share)}
        for name, log_probs in tables.items()
    ]
    meta = {
        "windows": len(judged.first),
        "tokens": judged.next.size,
        "smoothing": {
            "discounts": list(smoothed.discounts),
            "concentration": smoothed.concentration,
            "base": smoothed.base,
            "validation_loss": smoothed.validation_loss,
        },
        "positions": "position term of the direct path left out" if c.positions == "learned" else c.positions,
    }
    return Table.from_rows(rows, COLUMNS, replace(weights.provenance, weights=weights.content_hash()), meta)


def _heldout(log_probs: Float[Tensor, "first next"], windows: Windows) -> dict[str, float | str | None]:
    """Mean loss and its standard error over windows."""
    first, follows = torch.from_numpy(windows.first), torch.from_numpy(windows.next)
    losses = -log_probs[first, follows].mean(1)
    if len(losses) < 2:
        return {"heldout_loss": float(losses), "heldout_se": None, "flag": "heldout_se: there is only one window"}
    return {"heldout_loss": float(losses.mean()), "heldout_se": float(losses.std()) / len(losses) ** 0.5, "flag": None}


def _kl(p: Float[Tensor, "first next"], q: Float[Tensor, "first next"], share: Float[Tensor, " first"]) -> float:
    """sum_a share(a) KL(p(.|a) || q(.|a)) of log-probabilities; rounding below zero is zero."""
    return max(float((share * (p.exp() * (p - q)).sum(1)).sum()), 0.0)
