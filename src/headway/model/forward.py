"""The only forward pass: `logits` (fast, nothing recorded) and `run` (everything recorded, frozen or edited).

s_ij = attn_scale * x~_i^T [W_Q b_Q]^T R_{j-i} [W_K b_K] x~_j,   x~ = (stream after the read norm, plus p if shortformer; 1)
pattern = softmax over allowed j <= i (masks are -inf; a row with nothing to attend to gives zeros)
result_h = pattern_h (W_O W_V x + W_O b_V),   stream += sum_h result_h + b_O
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headway.errors import ShapeProblem, TextProblem, TokenProblem
from headway.model.config import ModelConfig
from headway.model.positions import rotary_waves, rotate, sinusoids
from headway.model.recording import Change, Edits, Freeze, Recording, apply
from headway.model.room import room
from headway.model.weights import Weights, check_weights
from headway.shapes import Keep, Logits, Pattern, Stream, Tokens, whole_ids


def logits(weights: Weights, tokens: Tokens, *, keep: Keep | None = None) -> Logits:
    """Next-token logits, by fused attention; differentiable, nothing recorded. Equals `run(...).logits`.

    tokens: whole-number ids [batch, pos]. keep: bool [batch, pos], True at real tokens, for rows padded on either side:
    a padded row gives at its real positions what the row alone gives. Raises ShapeProblem, TextProblem for no tokens,
    TokenProblem for ids outside the vocabulary.
    """
    tokens = _checked_tokens(weights, tokens, keep)
    c = weights.config
    places = _Places(weights, tokens, keep)
    mask, empty = places.fused_mask()
    stream = _embed(weights, tokens, places)
    # unbind: its gradient is one stack, where indexing would make a zero tensor of all layers for each layer.
    layers = zip(*(getattr(weights, n).unbind(0) for n in ("W_Q", "W_K", "W_V", "W_O")), strict=True)
    for layer, (W_Q, W_K, W_V, W_O) in enumerate(layers):
        read = _norm(weights, layer, stream)[0]
        q, k, v = _qkv(weights, layer, (W_Q, W_K, W_V), read, places)
        scale = c.attn_scale
        if scale < 1e-6:  # the fused kernel scales after masking, and no scale <= 0 keeps -inf what it is
            q, scale = q * scale, 1.0
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)
        if empty is not None:
            z = z.masked_fill(empty, 0)
        stream = stream + _merge(z, W_O, weights.b_O, layer)
    return _unembed(weights, _norm(weights, c.n_layers, stream)[0])


@torch.no_grad()
def run(
    weights: Weights,
    tokens: Tokens,
    *,
    keep: Keep | None = None,
    freeze: Recording | Freeze | None = None,
    edit: Mapping[str, Change] | None = None,
    results: bool = False,
) -> Recording:
    """One recorded forward pass: patterns, pre-softmax scores, streams, norm scales, logits.

    freeze: a Recording (its patterns and norm scales are used instead of computed ones) or a Freeze naming which.
    edit: {site: tensor or function of the current tensor}; sites are `L1H3.pattern`, `L1H3.scores`, `L1H3.result`
    (before b_O), `L1H3.Q`, `L1H3.K`, `L1H3.V` (the stream that one reader reads, before its norm) and `logits`
    (the stream the final norm reads). results: keep each head's result, [batch, head, pos, d_model] a layer.

    >>> from headway.sources.handmade import induction_model
    >>> model = induction_model()
    >>> run(model.weights, torch.tensor([[0, 1, 2, 1]])).patterns[0].shape[1]
    1
    """
    tokens = _checked_tokens(weights, tokens, keep)
    c = weights.config
    edits = Edits.parse({} if edit is None else edit, weights)
    frozen = Freeze.of(freeze)
    frozen.check(c, tokens, edits)
    places = _Places(weights, tokens, keep)
    stream = _embed(weights, tokens, places)
    streams, scores, patterns = [stream], list[Tensor](), list[Tensor]()
    scales, kept = list[Tensor | None](), list[Tensor | None]()
    for layer in range(c.n_layers):
        read, scale = _norm(weights, layer, stream, frozen.scale(layer))
        q, k, v = _qkv(weights, layer, _matrices(weights, layer), read, places)
        _edit_readers(weights, layer, edits, (q, k, v), (stream, frozen.scale(layer), places))
        score = _scores(q, k, places, layer, edits)
        pattern = frozen.pattern(layer)
        if pattern is None:
            pattern = softmax_rows(score, places.may_be_empty or edits.touches_scores(layer))
        pattern = _edited_pattern(pattern, layer, edits)
        added, result = _write(weights, layer, pattern @ v, edits, results)
        stream = stream + added
        streams.append(stream)
        scores.append(score)
        patterns.append(pattern)
        scales.append(scale)
        kept.append(result)
    final = apply(edits.final, stream, "logits") if edits.final is not None else stream
    read, scale = _norm(weights, c.n_layers, final, frozen.scale(c.n_layers))
    return Recording(
        weights=weights,
        tokens=tokens,
        keep=keep,
        allowed=places.allowed,
        streams=tuple(streams),
        norm_scales=_all_or_none([*scales, scale]),
        scores=tuple(scores),
        patterns=tuple(patterns),
        results=_all_or_none(kept) if results else None,
        logits=_unembed(weights, read),
    )


def _all_or_none(parts: list[Tensor | None]) -> tuple[Tensor, ...] | None:
    there = tuple(part for part in parts if part is not None)
    return there if len(there) == len(parts) else None


def softmax_rows(scores: Float[Tensor, "*batch dst src"], may_be_empty: bool = True) -> Float[Tensor, "*batch dst src"]:
    """Softmax over sources; a row that is -inf throughout has nothing to attend to and gives zeros.

    >>> softmax_rows(torch.tensor([[0.0, -math.inf], [-math.inf, -math.inf]])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    pattern = room(tuple(scores.shape), scores.dtype, scores.device)
    torch.softmax(scores, -1, out=pattern)
    if may_be_empty:
        pattern = pattern.masked_fill(scores.isneginf().all(-1, keepdim=True), 0)
    return pattern


class _Places:
    """Where each token stands and what it may see: positions, causal and padding mask, sinusoids, rotations."""

    def __init__(self, weights: Weights, tokens: Tokens, keep: Keep | None) -> None:
        c, n = weights.config, tokens.shape[1]
        self.config, self.keep, self.n = c, keep, n
        self.device, self.dtype = tokens.device, weights.dtype
        self.positions = torch.arange(n, device=tokens.device)
        if keep is not None:
            self.positions = (keep.cumsum(-1) - 1).clamp_min(0)
        self.waves = None
        if c.positions == "shortformer":
            plain = keep is None
            self.waves = (
                _waves(n, c, weights.dtype, tokens.device) if plain else sinusoids(self.positions, c).to(self.dtype)
            )
        self.may_be_empty = keep is not None
        self._rotary: tuple[Tensor, Tensor] | None = None
        if c.rotary_dims:
            cos, sin = (w.to(weights.dtype) for w in rotary_waves(self.positions, c))
            self._rotary = (cos[:, None], sin[:, None]) if keep is not None else (cos, sin)

    @cached_property
    def allowed(self) -> Tensor:
        """[batch or 1, dst, src]: True where attention is allowed."""
        causal = torch.ones(self.n, self.n, dtype=torch.bool, device=self.device).tril()
        return causal[None] if self.keep is None else causal & self.keep[:, None, :] & self.keep[:, :, None]

    def fused_mask(self) -> tuple[Tensor | None, Tensor | None]:
        """For the fused kernel: a mask in which no row is empty, and the rows that must become zero after it."""
        if self.keep is None:
            return None, None
        allowed = self.allowed[:, None]
        empty = ~allowed.any(-1, keepdim=True)
        return allowed | empty, empty

    @cached_property
    def bias(self) -> Tensor:
        """[batch or 1, 1, dst, src]: 0 where allowed, -inf elsewhere."""
        zero = torch.zeros((), dtype=self.dtype, device=self.device)
        return torch.where(self.allowed[:, None], zero, -math.inf)

    def turn(self, x: Float[Tensor, "batch head pos d_head"]) -> Float[Tensor, "batch head pos d_head"]:
        """Rotate queries or keys to their positions; nothing without rotary."""
        return x if self._rotary is None else rotate(x, *self._rotary, self.config.rotary_pairs)


@lru_cache(maxsize=8)
def _waves(n: int, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "pos d_model"]:
    """Sinusoids of unpadded rows, kept between passes: a training step would spend a twentieth of its time on them."""
    return sinusoids(torch.arange(n, device=device), config).to(dtype)


def _checked_tokens(weights: Weights, tokens: Tokens, keep: Keep | None) -> Tokens:
    check_weights(weights)
    config = weights.config
    tokens = whole_ids(tokens, "tokens", "batch pos")
    if tokens.numel() == 0:
        raise TextProblem("no tokens", expected="at least one row and one position", got=tuple(tokens.shape))
    if keep is not None and (not isinstance(keep, Tensor) or keep.shape != tokens.shape or keep.dtype != torch.bool):
        got = f"{keep.dtype} {tuple(keep.shape)}" if isinstance(keep, Tensor) else type(keep).__name__
        raise ShapeProblem("keep", expected=f"a bool tensor {tuple(tokens.shape)} like tokens", got=got)
    low, high = (int(t) for t in tokens.aminmax())
    if low < 0 or high >= config.d_vocab:
        raise TokenProblem("token ids", expected=f"0 .. d_vocab-1={config.d_vocab - 1}", got=f"{low} .. {high}")
    if config.positions == "learned" and tokens.shape[1] > config.n_ctx:
        raise TextProblem(
            "text longer than the position table",
            expected=f"at most n_ctx={config.n_ctx} tokens",
            got=tokens.shape[1],
            next_step="Cut it into windows",
        )
    return tokens


def _embed(weights: Weights, tokens: Tokens, places: _Places) -> Stream:
    stream = F.embedding(tokens, weights.W_E.T)
    if weights.W_pos is not None:
        stream = stream + F.embedding(places.positions, weights.W_pos.T)
    return stream


def _norm(weights: Weights, layer: int, stream: Stream, scale: Tensor | None = None) -> tuple[Stream, Tensor | None]:
    """The read norm of a layer (n_layers = the final norm): (normed stream, 1/sigma). A given scale is used as it is."""
    c = weights.config
    if c.norm == "none":
        return stream, None
    last = layer == c.n_layers
    gain = weights.final_gain if last else None if weights.norm_gain is None else weights.norm_gain[layer]
    bias = weights.final_bias if last else None if weights.norm_bias is None else weights.norm_bias[layer]
    if scale is None and c.norm == "layer":  # one fused pass, which gives 1/sigma too
        read, _, scale = torch.native_layer_norm(stream, (c.d_model,), gain, bias, c.norm_eps)
        return read, scale[..., 0]
    centred = stream - stream.mean(-1, keepdim=True) if c.norm == "layer" else stream
    if scale is None:
        scale = (centred.square().mean(-1) + c.norm_eps).rsqrt()
    read = centred * scale[..., None]
    if gain is not None:
        read = read * gain
    return (read if bias is None else read + bias), scale


def _project(read: Stream, W: Tensor, b: Tensor | None, layer: int) -> Float[Tensor, "batch head pos d_head"]:
    flat = F.linear(read, W.flatten(0, 1), None if b is None else b[layer].flatten())
    return flat.view(*read.shape[:2], *W.shape[:2]).transpose(1, 2)


def _qkv(
    weights: Weights, layer: int, matrices: tuple[Tensor, Tensor, Tensor], read: Stream, places: _Places
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values per query head; rotary applied; key/value heads repeated for their groups."""
    W_Q, W_K, W_V = matrices
    where = read if places.waves is None else read + places.waves
    q = _project(read if weights.W_Q_pos is not None else where, W_Q, weights.b_Q, layer)
    k = _project(read if weights.W_K_pos is not None else where, W_K, weights.b_K, layer)
    if places.waves is not None:
        waves = places.waves.expand_as(read)
        q = q if weights.W_Q_pos is None else q + _project(waves, weights.W_Q_pos[layer], None, layer)
        k = k if weights.W_K_pos is None else k + _project(waves, weights.W_K_pos[layer], None, layer)
    q, k, v = places.turn(q), places.turn(k), _project(read, W_V, weights.b_V, layer)
    if (group := weights.config.group) > 1:
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    return q, k, v


def _matrices(weights: Weights, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    return weights.W_Q[layer], weights.W_K[layer], weights.W_V[layer]


def _edit_readers(
    weights: Weights,
    layer: int,
    edits: Edits,
    own: tuple[Tensor, Tensor, Tensor],
    read: tuple[Stream, Tensor | None, _Places],
) -> None:
    """Recompute q, k or v of single heads from the stream that was put in place of what they read."""
    stream, scale, places = read
    for at, part in enumerate("QKV"):
        for head, change in edits.at(layer, part):
            other = apply(change, stream, f"L{layer}H{head}.{part}")
            normed, _ = _norm(weights, layer, other, scale)
            own[at][:, head] = _qkv(weights, layer, _matrices(weights, layer), normed, places)[at][:, head]


def _edited_pattern(pattern: Pattern, layer: int, edits: Edits) -> Pattern:
    changes = edits.at(layer, "pattern")
    if changes:
        pattern = pattern.clone()  # a frozen pattern belongs to its recording
    for head, change in changes:
        pattern[:, head] = apply(change, pattern[:, head], f"L{layer}H{head}.pattern")
    return pattern


def _scores(q: Tensor, k: Tensor, places: _Places, layer: int, edits: Edits) -> Pattern:
    """Pre-softmax scores with -inf where attention is not allowed."""
    # The scale goes to q, the mask is added in place: one pass over [dst, src] fewer than scaling and filling.
    score = room((*q.shape[:-1], k.shape[-2]), q.dtype, q.device)
    torch.matmul(q * places.config.attn_scale, k.transpose(-1, -2), out=score)
    score += places.bias
    for head, change in edits.at(layer, "scores"):
        new = apply(change, score[:, head], f"L{layer}H{head}.scores")
        score[:, head] = new.masked_fill(~places.allowed, -math.inf)
    return score


def _write(
    weights: Weights, layer: int, z: Float[Tensor, "batch head pos d_head"], edits: Edits, results: bool
) -> tuple[Stream, Tensor | None]:
    """What the layer adds to the stream, and each head's part (before b_O) when asked for or edited."""
    changes = edits.at(layer, "result")
    if not results and not changes:
        return _merge(z, weights.W_O[layer], weights.b_O, layer), None
    result = z @ weights.W_O[layer].transpose(1, 2)
    for head, change in changes:
        result[:, head] = apply(change, result[:, head], f"L{layer}H{head}.result")
    added = result.sum(1)
    return (added if weights.b_O is None else added + weights.b_O[layer]), result


def _merge(z: Tensor, W_O: Float[Tensor, "head d_model d_head"], b_O: Tensor | None, layer: int) -> Stream:
    flat = z.transpose(1, 2).flatten(2)
    W = W_O.transpose(0, 1).reshape(W_O.shape[1], -1)
    return F.linear(flat, W, None if b_O is None else b_O[layer])


def _unembed(weights: Weights, read: Stream) -> Logits:
    return F.linear(read, weights.W_U, weights.b_U)
