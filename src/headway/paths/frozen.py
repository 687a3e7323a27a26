"""A forward pass with its patterns and norm scales held fixed: what is left is linear in what enters the stream.

    head h of layer l on a stream x:   A^h (W_OV^h N_l x) + (A^h 1) (W_O^h b_V^h + W_OV^h beta_l)
    logits of a stream x:              W_U N x + (W_U beta + b_U)

N_l x = gain * (x - mean if LayerNorm) / sigma with the recorded 1/sigma of the position, the identity without norms.
The parts in brackets do not depend on x: those of a head are scaled by the row sums of its pattern (0 for a row with
nothing to attend to), the final ones end at once. b_O of a layer enters the stream after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headway.errors import UsageError, check_kind
from headway.ids import HeadId
from headway.model.recording import Recording
from headway.shapes import Logits, Stream


@dataclass(frozen=True, eq=False)
class Frozen:
    """The linear model behind one recording; every method is exact for it, whatever stream it is given."""

    recording: Recording

    def __post_init__(self) -> None:
        check_recording(self.recording)

    def read(self, layer: int, stream: Stream) -> Stream:
        """N_l x, the linear part of a layer's read norm (n_layers = the final norm): no beta."""
        weights, scales = self.recording.weights, self.recording.norm_scales
        self._check_layer(layer, weights.config.n_layers)
        if scales is None:
            return stream
        if weights.config.norm == "layer":
            stream = stream - stream.mean(-1, keepdim=True)
        gain = _of_layer(weights.final_gain, weights.norm_gain, layer, weights.config.n_layers)
        read = stream * scales[layer][..., None]
        return read if gain is None else read * gain

    def beta(self, layer: int) -> Float[Tensor, " d_model"] | None:
        """The bias of a layer's read norm (n_layers = the final norm), or None."""
        weights = self.recording.weights
        self._check_layer(layer, weights.config.n_layers)
        return _of_layer(weights.final_bias, weights.norm_bias, layer, weights.config.n_layers)

    def through(self, at: str | HeadId, stream: Stream) -> Stream:
        """What one head writes of a stream, A W_OV N x: without its constants."""
        head, layer = self.recording.weights.head(at), self.recording.weights.head_id(at).layer
        value = self.read(layer, stream) @ head.W_V.T
        return self.recording.pattern(at) @ value @ head.W_O.T

    def row_sums(self, at: str | HeadId) -> Float[Tensor, "batch pos 1"]:
        """A 1 of one head: 1, or 0 at positions with nothing to attend to."""
        return self.recording.pattern(at).sum(-1, keepdim=True)

    def layer(self, layer: int, stream: Stream, chosen: Bool[Tensor, " head"] | None = None) -> Stream:
        """What all heads of a layer write, constants included and b_O left out. chosen: only these heads."""
        weights = self.recording.weights
        self._check_layer(layer, weights.config.n_layers - 1)
        pattern = self.recording.patterns[layer]
        beta = self.beta(layer)
        read = self.read(layer, stream)
        read = read if beta is None else read + beta
        value = torch.einsum("bpm,hdm->bhpd", read, weights.W_V[layer])
        if weights.b_V is not None:
            value = value + weights.b_V[layer][:, None]
        mixed = pattern @ value.repeat_interleave(weights.config.group, dim=1)
        if chosen is not None:
            mixed = mixed * chosen.to(mixed)[:, None, None]
        return torch.einsum("bhpd,hmd->bpm", mixed, weights.W_O[layer])

    def unembed(self, stream: Stream) -> Logits:
        """W_U N x: the logits of a part of the stream, without W_U beta + b_U."""
        weights = self.recording.weights
        return self.read(weights.config.n_layers, stream) @ weights.W_U.T

    def final_constant(self) -> Float[Tensor, " vocab"]:
        """W_U beta + b_U, added to the logits of every position once."""
        weights, beta = self.recording.weights, self.beta(self.recording.weights.config.n_layers)
        constant = weights.W_U.new_zeros(weights.config.d_vocab) if beta is None else weights.W_U @ beta
        return constant if weights.b_U is None else constant + weights.b_U

    def _check_layer(self, layer: object, last: int) -> None:
        if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer <= last:
            raise UsageError("a layer of this model", expected=f"a whole number, 0 .. {last}", got=repr(layer))


def check_recording(value: object) -> None:
    """Raise UsageError for what is no recording: None, a model, patterns alone."""
    hint = "headway.run(weights, tokens) makes one"
    check_kind(value, Recording, "not a recording", expected="a Recording", next_step=hint)


def detached(recording: Recording) -> Recording:
    """The recording with weights that ask for no gradients: everything else in it was computed without."""
    check_recording(recording)
    tensors: dict[str, Any] = {name: t.detach() for name, t in recording.weights.tensors().items()}
    return replace(recording, weights=recording.weights.replace(**tensors))


def highest_order(recording: Recording, max_order: int | None) -> int:
    """The order asked for, checked; None is all of them, one for each layer."""
    n_layers = recording.weights.config.n_layers
    if max_order is None:
        return n_layers
    if isinstance(max_order, bool) or not isinstance(max_order, int) or not 0 <= max_order <= n_layers:
        raise UsageError(
            "order of a path, the number of heads on it",
            expected=f"0 .. n_layers={n_layers}: a path takes one head of a layer at most",
            got=repr(max_order),
        )
    return max_order


def _of_layer(final: Tensor | None, by_layer: Tensor | None, layer: int, n_layers: int) -> Tensor | None:
    if layer == n_layers:
        return final
    return None if by_layer is None else by_layer[layer]
