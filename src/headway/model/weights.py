"""`Weights`: the one meeting point. Written by hand, trained here or loaded, every model becomes one of these.

Column vectors as in the paper. Frozen; a change makes a new `Weights` with a step added to its provenance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import NotFinite, ShapeProblem, TokenProblem, UnknownName, UsageError, counted, did_you_mean
from headway.ids import HeadId
from headway.model.carried import Carried
from headway.model.config import ModelConfig
from headway.model.head import Head
from headway.provenance import Provenance, content_hash
from headway.tokens.tokenizer import Tokenizer

PRECISIONS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

# Axis names of every tensor; the order is the order in archives and error messages.
AXES: dict[str, tuple[str, ...]] = {
    "W_E": ("d_model", "d_vocab"),
    "W_pos": ("d_model", "n_ctx"),
    "W_Q": ("n_layers", "n_heads", "d_head", "d_model"),
    "W_K": ("n_layers", "n_kv_heads", "d_head", "d_model"),
    "W_V": ("n_layers", "n_kv_heads", "d_head", "d_model"),
    "W_O": ("n_layers", "n_heads", "d_model", "d_head"),
    "W_U": ("d_vocab", "d_model"),
    "W_Q_pos": ("n_layers", "n_heads", "d_head", "d_model"),
    "W_K_pos": ("n_layers", "n_kv_heads", "d_head", "d_model"),
    "b_Q": ("n_layers", "n_heads", "d_head"),
    "b_K": ("n_layers", "n_kv_heads", "d_head"),
    "b_V": ("n_layers", "n_kv_heads", "d_head"),
    "b_O": ("n_layers", "d_model"),
    "b_U": ("d_vocab",),
    "norm_gain": ("n_layers", "d_model"),
    "norm_bias": ("n_layers", "d_model"),
    "final_gain": ("d_model",),
    "final_bias": ("d_model",),
}
REQUIRED = ("W_E", "W_Q", "W_K", "W_V", "W_O", "W_U")


@dataclass(frozen=True, eq=False, kw_only=True)
class Weights:
    """All tensors of one model with its config, provenance and, where known, tokenizer and carried texts.

    Shapes are those of `AXES`. An absent bias is None and means zero; an absent gain means one. norm_* belong to the
    read norm of each layer, final_* to the norm before W_U; both exist only when `config.norm` is not `none`. W_Q_pos and
    W_K_pos read shortformer sinusoids in place of W_Q and W_K: folding a norm makes them, since sinusoids join after it.
    """

    config: ModelConfig
    W_E: Float[Tensor, "d_model d_vocab"]
    W_Q: Float[Tensor, "layer head d_head d_model"]
    W_K: Float[Tensor, "layer kv_head d_head d_model"]
    W_V: Float[Tensor, "layer kv_head d_head d_model"]
    W_O: Float[Tensor, "layer head d_model d_head"]
    W_U: Float[Tensor, "d_vocab d_model"]
    W_pos: Float[Tensor, "d_model n_ctx"] | None = None
    W_Q_pos: Float[Tensor, "layer head d_head d_model"] | None = None
    W_K_pos: Float[Tensor, "layer kv_head d_head d_model"] | None = None
    b_Q: Float[Tensor, "layer head d_head"] | None = None
    b_K: Float[Tensor, "layer kv_head d_head"] | None = None
    b_V: Float[Tensor, "layer kv_head d_head"] | None = None
    b_O: Float[Tensor, "layer d_model"] | None = None
    b_U: Float[Tensor, " d_vocab"] | None = None
    norm_gain: Float[Tensor, "layer d_model"] | None = None
    norm_bias: Float[Tensor, "layer d_model"] | None = None
    final_gain: Float[Tensor, " d_model"] | None = None
    final_bias: Float[Tensor, " d_model"] | None = None
    provenance: Provenance = Provenance()
    tokenizer: Tokenizer | None = None
    carried: Carried | None = None

    def __post_init__(self) -> None:
        _check_company(self)
        for name, tensor in self.tensors().items():
            _check_shape(name, tensor, self.config)
        kinds = {(str(t.dtype), str(t.device)) for t in self.tensors().values()}
        if len(kinds) > 1:
            raise ShapeProblem("tensors of one model", expected="one dtype on one device", got=sorted(kinds))
        if (self.W_pos is None) != (self.config.positions != "learned"):
            raise ShapeProblem("W_pos goes with positions='learned'", got=f"positions={self.config.positions!r}")
        if self.config.positions != "shortformer" and (self.W_Q_pos is not None or self.W_K_pos is not None):
            got = f"positions={self.config.positions!r}"
            raise ShapeProblem("W_Q_pos and W_K_pos go with positions='shortformer'", got=got)
        if self.config.norm == "none":
            extra = [n for n in ("norm_gain", "norm_bias", "final_gain", "final_bias") if getattr(self, n) is not None]
            if extra:
                raise ShapeProblem(
                    "norm tensors without a norm", expected="norm='layer' or 'rms'", got=", ".join(extra)
                )
        if self.tokenizer is not None and self.tokenizer.d_vocab > self.config.d_vocab:
            raise TokenProblem(
                "tokenizer and model disagree",
                expected=f"at most d_vocab={self.config.d_vocab} tokens",
                got=f"{self.tokenizer.d_vocab} tokens",
                next_step="Use the tokenizer the model was trained with",
            )
        known = None if self.tokenizer is None else self.tokenizer.bos
        if known is not None and self.config.bos is not None and known != self.config.bos:
            raise TokenProblem(
                "tokenizer and model disagree about BOS", expected=f"bos={self.config.bos}", got=f"id {known}"
            )
        if self.carried is not None:
            self.carried.check_vocabulary(self.config.d_vocab)

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        *,
        convention: str = "paper",
        tokenizer: Tokenizer | None = None,
        **config: Any,
    ) -> Weights:
        """Weights from named arrays; see `headway.model.conventions.from_tensors`."""
        from headway.model.conventions import from_tensors

        return from_tensors(tensors, convention=convention, tokenizer=tokenizer, **config)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that are present, by name, in the order of `AXES`."""
        return {name: t for name in AXES if (t := getattr(self, name)) is not None}

    def replace(self, step: str | None = None, **changes: Any) -> Weights:
        """The same weights with fields replaced, and `step` recorded in the provenance.

        Raises UnknownName for what is no field.
        """
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise UnknownName(f"unknown field {name!r} of weights", next_step=did_you_mean(name, known))
        if step is not None:
            changes["provenance"] = dataclasses.replace(self.provenance.with_step(step), weights="")
        return dataclasses.replace(self, **changes)

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Weights:
        """The same weights in another precision or on another device; tied stays tied.

        Raises UsageError for what is no floating-point dtype of 16, 32 or 64 bits, or a device this machine lacks.
        """
        if dtype is not None and dtype not in PRECISIONS:
            raise UsageError("no precision of weights", expected="a dtype such as torch.float64", got=repr(dtype))
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, TypeError) as error:
            got = f"{device!r}: {str(error).splitlines()[0]}"
            raise UsageError("no such device here", expected="cpu, cuda or cuda:0 .. as built", got=got) from None
        moved: dict[str, Any] = {name: t.to(dtype=dtype, device=device) for name, t in self.tensors().items()}
        if self.tied:
            moved["W_U"] = moved["W_E"].T
        return self.replace(**moved)

    def head(self, name: str | HeadId) -> Head:
        """One head as an algebraic object; query head h reads with key/value head h // (n_heads / n_kv_heads).

        Raises UnknownName when it does not exist.

        >>> from headway.sources.handmade import induction_model
        >>> induction_model().weights.head("L1H0").ov.shape[0] > 0
        True
        """
        found = self.head_id(name)
        layer, c = found.layer, self.config
        kv = found.head // c.group

        def bias(tensor: Tensor | None, index: int) -> Tensor | None:
            return None if tensor is None else tensor[layer, index]

        return Head(
            W_Q=self.W_Q[layer, found.head],
            W_K=self.W_K[layer, kv],
            W_V=self.W_V[layer, kv],
            W_O=self.W_O[layer, found.head],
            b_Q=bias(self.b_Q, found.head),
            b_K=bias(self.b_K, kv),
            b_V=bias(self.b_V, kv),
            attn_scale=c.attn_scale,
            turns=c if c.rotary_dims else None,
            id=found,
        )

    def head_id(self, name: str | HeadId) -> HeadId:
        """The id behind a name such as `L1H3`, checked against this model."""
        found = HeadId.parse(name)
        c = self.config
        if found.layer >= c.n_layers or found.head >= c.n_heads:
            last = f"L0H0 .. L{c.n_layers - 1}H{c.n_heads - 1}" if c.n_layers and c.n_heads else "no heads: zero layers"
            raise UnknownName(f"no head {found} in this model", expected=last, got=str(found))
        return found

    def head_ids(self) -> Iterator[HeadId]:
        """Every head, layer by layer."""
        for layer in range(self.config.n_layers):
            for head in range(self.config.n_heads):
                yield HeadId(layer, head)

    @property
    def tied(self) -> bool:
        """Whether W_U is W_E transposed, in the same memory."""
        return self.W_U.data_ptr() == self.W_E.data_ptr() and self.W_U.shape == self.W_E.T.shape

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the tensors."""
        return self.W_E.dtype

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.W_E.device

    def content_hash(self) -> str:
        """Sixteen hex digits over config and tensors; equal hashes mean equal models."""
        parts = [(name, raw_bytes(t)) for name, t in self.tensors().items()]
        return content_hash([*parts, ("config", repr(self.config).encode())])

    def check_finite(self) -> Weights:
        """Return self, or raise NotFinite naming the tensor and the first bad entry."""
        for name, tensor in self.tensors().items():
            if not bool(torch.isfinite(tensor.sum())) and not bool(torch.isfinite(tensor).all()):
                index = tuple(int(i) for i in (~torch.isfinite(tensor)).nonzero()[0])
                raise NotFinite(
                    f"{name}{list(index)} is {float(tensor.detach()[index])}",
                    expected="finite weights",
                    next_step=f"Axes are ({', '.join(AXES[name])}); the file is damaged or training diverged",
                )
        return self

    def __repr__(self) -> str:
        c = self.config
        return (
            f"Weights({counted(c.n_layers, 'layer')} x {counted(c.n_heads, 'head')}, d_model={c.d_model}, "
            f"d_head={c.d_head}, d_vocab={c.d_vocab}, norm={c.norm}, positions={c.positions}, {self.provenance.processing})"
        )


def check_weights(value: object) -> None:
    """Raise UsageError for what is no model: a name, a path, a dictionary of tensors."""
    if not isinstance(value, Weights):
        got = repr(value) if isinstance(value, str) else type(value).__name__
        raise UsageError("not a model", expected="Weights", got=got, next_step="headway.load(...) gives them")


def as_read(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The same arrays, W_O laid out in memory the way the forward pass reads it, which saves a copy at every call."""
    out = dict(tensors)
    if out["W_O"].ndim == 4:
        out["W_O"] = out["W_O"].transpose(1, 2).contiguous().transpose(1, 2)
    return out


def _check_company(weights: Weights) -> None:
    """What stands beside the tensors is of its kind."""
    for name, kind in (("config", ModelConfig), ("tokenizer", Tokenizer), ("carried", Carried)):
        value = getattr(weights, name)
        if not isinstance(value, kind) and (value is not None or name == "config"):
            raise UsageError(f"{name} of a model", expected=f"a {kind.__name__}", got=type(value).__name__)


def _check_shape(name: str, tensor: Tensor, config: ModelConfig) -> None:
    axes = AXES[name]
    expected = tuple(getattr(config, axis) for axis in axes)
    if not isinstance(tensor, Tensor) or tensor.dtype not in PRECISIONS:
        got = str(tensor.dtype) if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ShapeProblem(name, expected="a floating-point torch tensor of 16, 32 or 64 bits", got=got)
    if tuple(tensor.shape) != expected:
        words = ", ".join(f"{axis}={size}" for axis, size in zip(axes, expected, strict=True))
        shape = tuple(tensor.shape)
        swapped = len(shape) >= 2 and (*shape[:-2], shape[-1], shape[-2]) == expected
        hint = "Was it stored transposed? convention='transformer-lens' reads row-vector weights" if swapped else None
        raise ShapeProblem(name, expected=f"({words})", got=shape, next_step=hint)


def raw_bytes(tensor: Tensor) -> bytes:
    """The entries of a tensor as they lie in memory, in the order of its indices: what content hashes are over."""
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
