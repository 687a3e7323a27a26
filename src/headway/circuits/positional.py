"""QK with position: what contents and what positions have to do with a head's scores, apart.

    s_ij = attn_scale (q_i + u_i) . (k_j + v_j)      q = W_Q x + b_Q,  k = W_K x + b_K   of the content x, biases included
                                                     u, v                                of the position alone

Shortformer: u_i = W_Q p_i, v_j = W_K p_j for sinusoids p, in every layer. Learned: p is in the stream, so the read norm
divides it by what token and position have together; u and v then need a token. Rotary: no u, no v; contents meet under a
rotation by the offset i - j. Terms are named destination first. (Shortformer positions: Elhage et al. 2021, "Model
Simplifications"; that biases stand with the content is our choice.)
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.low_rank import LowRank
from headway.circuits.as_read import tokens_as_read
from headway.circuits.qk import qk_circuit
from headway.errors import TextProblem, TokenProblem, UsageError
from headway.ids import HeadId
from headway.model.config import ModelConfig
from headway.model.positions import rotary_waves, rotate, sinusoids
from headway.model.process import processed
from headway.model.weights import Weights, check_weights
from headway.shapes import Tokens, whole_ids

TERMS = ("content_content", "content_position", "position_content", "position_position")
_TOKENS = 4096  # at a time, where norm scales of all tokens at all positions are averaged


@torch.no_grad()
def qk_terms(weights: Weights, head: str | HeadId, *, offset: int = 0) -> dict[str, LowRank]:
    """The QK circuit in its terms over all tokens and positions, factored: those of `TERMS` that the model has.

    content_content [vocab, vocab] is `qk_circuit` at that offset; content_position [vocab, n_ctx], position_content
    [n_ctx, vocab], position_position [n_ctx, n_ctx] exist for shortformer and learned positions. Entry [b, a] of one plus
    entries [b, j], [i, a], [i, j] of the others is the score of token b at i for token a at j, exactly in layer 0 (deeper
    heads read more than the embedding). float64 but for the first. Raises UsageError for learned positions under a norm,
    where no such sum exists (`score_terms` gives them for given tokens), UnknownName for a head that does not exist.

    >>> from headway.sources.handmade import previous_token_model
    >>> {name: term.shape for name, term in qk_terms(previous_token_model().weights, "L0H0").items()}[
    ...     "content_position"
    ... ]
    (12, 32)
    """
    check_weights(weights)
    id_, c = weights.head_id(head), weights.config
    terms = {"content_content": qk_circuit(weights, id_, offset=offset)}
    if c.positions in {"none", "rotary"}:
        return terms
    if c.positions == "learned" and c.norm != "none":
        raise UsageError(
            "the norm's scale is of token and position together, so no table of tokens and positions sums to the scores",
            where=f"{id_} under norm={c.norm!r} with learned positions",
            next_step="score_terms(weights, head, tokens) gives the terms for given tokens",
        )
    seen = processed(weights.check_finite(), "folded")
    places = _Reader(seen, id_).places(_table(seen, c.n_ctx))
    contents = _Reader(seen, id_).contents(tokens_as_read(seen, id_.layer).double().T)
    return terms | {
        name: LowRank(q, k.T) for name, (q, k) in _pairs(contents, places).items() if name != "content_content"
    }


@torch.no_grad()
def score_terms(weights: Weights, head: str | HeadId, tokens: Tokens) -> dict[str, Float[Tensor, "batch dst src"]]:
    """The scores of given tokens in their terms, those of `TERMS` that the model has; float64.

    In layer 0 they sum to `run(weights, tokens).scores[0][:, head]` wherever source <= destination (entries beyond mean
    nothing), with norms, biases, shared keys and any positions; under a norm each place keeps the scale that its token
    and position have together. A deeper head's terms are those of the embedding alone, earlier heads left out. Biases
    (b_Q, b_K and what the norm's bias adds to them) are in the content; rotary models have content_content alone, at the
    offset of each pair. Raises UnknownName for a head, TokenProblem for ids that do not exist, TextProblem for more
    tokens than learned positions.

    >>> from headway.sources.handmade import previous_token_model
    >>> terms = score_terms(previous_token_model().weights, "L0H0", torch.tensor([[0, 3, 5]]))
    >>> terms["position_position"][0, 2].argmax().item(), bool(terms["content_content"].abs().max() < 1e-9)
    (1, True)
    """
    check_weights(weights)
    id_, c = weights.head_id(head), weights.config
    tokens = _checked(tokens, c).to(weights.device)
    seen = processed(weights.check_finite(), "folded")
    reader, n = _Reader(seen, id_), tokens.shape[1]
    read = seen.W_E.T[tokens].double()
    table = None if c.positions in {"none", "rotary"} else _table(seen, n)
    scale = _scale(read if table is None or c.positions != "learned" else read + table, c)
    contents = reader.contents(read * scale)
    if c.rotary_dims:
        cos, sin = rotary_waves(torch.arange(n, device=tokens.device), c)
        q, k = (rotate(side, cos, sin, c.rotary_pairs) for side in contents)
        return {"content_content": q @ k.mT}
    if table is None:
        q, k = contents
        return {"content_content": q @ k.mT}
    places = reader.places((table * scale if c.positions == "learned" else table).expand_as(read))
    return {name: q @ k.mT for name, (q, k) in _pairs(contents, places).items()}


@torch.no_grad()
def position_scores(weights: Weights, head: str | HeadId, n: int) -> Float[Tensor, "dst src"] | None:
    """What position alone gives to the scores of n places, [destination, source], float64; None without positions.

    Shortformer: position x position, in every layer exactly. Learned: the same of the position table; under a norm each
    position is divided by its scale averaged over tokens (by the unigram the model carries, else uniformly), which makes
    it the average over independent tokens at both places. Rotary: the score of the average content, as this layer reads
    the embedding, at each offset: also the average over independent tokens. Entries with source > destination mean
    nothing.

    >>> from headway.sources.handmade import previous_token_model
    >>> position_scores(previous_token_model().weights, "L0H0", 4)[1:].argmax(-1).tolist()
    [0, 1, 2]
    """
    check_weights(weights)
    return positions_in(processed(weights.check_finite(), "folded"), weights.head_id(head), n)


@torch.no_grad()
def positions_in(folded: Weights, id_: HeadId, n: int) -> Float[Tensor, "dst src"] | None:
    """`position_scores` of weights that are folded already.

    >>> from headway.sources.handmade import copying_model
    >>> positions_in(copying_model().weights, HeadId(0, 0), 4) is None
    True
    """
    c, reader = folded.config, _Reader(folded, id_)
    if c.positions == "none":
        return None
    if c.positions == "rotary":
        read = tokens_as_read(folded, id_.layer)
        mean = (read @ token_shares(folded).to(read)).double()
        q, k = reader.contents(mean[None])
        cos, sin = rotary_waves(torch.arange(n, device=folded.device), c)
        kernel = rotate(q.expand(n, -1), cos, sin, c.rotary_pairs) @ k[0]  # q^T R_{-D} k = (R_D q) . k
        places = torch.arange(n, device=folded.device)
        return kernel[(places[:, None] - places).clamp_min(0)]
    table = _table(folded, n)
    if c.positions == "learned" and c.norm != "none":
        table = table * _mean_scale(folded, table, token_shares(folded).to(folded.device))[:, None]
    u, v = reader.places(table)
    return u @ v.T


def token_shares(weights: Weights) -> Float[Tensor, " vocab"]:
    """How often each token stands in the training text whose counts the model carries; uniform without. Sums to 1.

    >>> from headway.sources.handmade import copying_model
    >>> token_shares(copying_model(d_vocab=4).weights)
    tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
    check_weights(weights)
    counts = torch.zeros(weights.config.d_vocab, dtype=torch.float64)
    if weights.carried is not None:
        _, following, often = (torch.from_numpy(row.astype("int64")) for row in weights.carried.bigrams)
        counts.index_add_(0, following, often.double())
    return counts / counts.sum() if bool(counts.sum() > 0) else torch.full_like(counts, 1 / len(counts))


class _Reader:
    """One head's queries and keys, float64, of folded weights; the scale of scores is in the queries."""

    def __init__(self, folded: Weights, id_: HeadId) -> None:
        head, kv = folded.head(id_), id_.head // folded.config.group
        waves = folded.W_Q_pos, folded.W_K_pos
        self.scale = head.attn_scale
        self.W = tuple(W.detach().double() for W in (head.W_Q, head.W_K))
        self.b = tuple(None if b is None else b.detach().double() for b in (head.b_Q, head.b_K))
        own = tuple(
            None if W is None else W[id_.layer, at].detach().double()
            for W, at in zip(waves, (id_.head, kv), strict=True)
        )
        self.W_waves = tuple(W if other is None else other for W, other in zip(self.W, own, strict=True))

    def contents(self, read: Float[Tensor, "*row d_model"]) -> tuple[Tensor, Tensor]:
        """Queries and keys of what is read, with their biases."""
        q, k = (read @ W.T if b is None else read @ W.T + b for W, b in zip(self.W, self.b, strict=True))
        return q * self.scale, k

    def places(self, table: Float[Tensor, "*row d_model"]) -> tuple[Tensor, Tensor]:
        """What positions add to queries and keys."""
        u, v = (table @ W.T for W in self.W_waves)
        return u * self.scale, v


def _pairs(contents: tuple[Tensor, Tensor], places: tuple[Tensor, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Query and key of each term."""
    every = [(query, key) for query in (contents[0], places[0]) for key in (contents[1], places[1])]
    return dict(zip(TERMS, every, strict=True))


def _table(weights: Weights, n: int) -> Float[Tensor, "pos d_model"]:
    """The first n positions as the stream or the reading matrices get them, float64."""
    if weights.W_pos is not None:
        return weights.W_pos[:, :n].detach().double().T
    return sinusoids(torch.arange(n, device=weights.device), weights.config)


def _scale(stream: Float[Tensor, "*row d_model"], config: ModelConfig) -> Float[Tensor, "*row 1"] | float:
    """1/sigma of the read norm, 1 without."""
    if config.norm == "none":
        return 1.0
    centred = stream - stream.mean(-1, keepdim=True) if config.norm == "layer" else stream
    return (centred.square().mean(-1, keepdim=True) + config.norm_eps).rsqrt()


def _mean_scale(
    weights: Weights, table: Float[Tensor, "pos d_model"], shares: Float[Tensor, " vocab"]
) -> Float[Tensor, " pos"]:
    """Sum over tokens of share(t) / sigma(t, position): |e + p|^2 = |e|^2 + 2 e.p + |p|^2, so no [vocab, pos, d_model]."""
    c = weights.config
    if c.norm == "layer":
        table = table - table.mean(-1, keepdim=True)
    mean = table.new_zeros(len(table))
    for part in torch.arange(c.d_vocab, device=weights.device).split(_TOKENS):
        e = weights.W_E.T[part].detach().double()
        e = e - e.mean(-1, keepdim=True) if c.norm == "layer" else e
        square = e.square().sum(-1, keepdim=True) + 2 * e @ table.T + table.square().sum(-1)
        mean += shares[part] @ (square.clamp_min(0) / c.d_model + c.norm_eps).rsqrt()
    return mean


def _checked(tokens: Tokens, config: ModelConfig) -> Tokens:
    ids = whole_ids(tokens, "tokens", "batch pos")
    if not ids.numel():
        raise TextProblem("no tokens", expected="at least one row and one position", got=tuple(ids.shape))
    low, high = (int(t) for t in ids.aminmax())
    if low < 0 or high >= config.d_vocab:
        raise TokenProblem("token ids", expected=f"0 .. d_vocab-1={config.d_vocab - 1}", got=f"{low} .. {high}")
    if config.positions == "learned" and ids.shape[1] > config.n_ctx:
        raise TextProblem("more tokens than learned positions", expected=f"at most {config.n_ctx}", got=ids.shape[1])
    return ids
