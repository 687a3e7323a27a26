"""Virtual heads: a sequence of heads through rising layers, seen as one head with an OV circuit and a pattern of its own.

    W_OV of L0H2-L1H3 = W_OV(L1H3) W_OV(L0H2)         pattern = A(L1H3) D A(L0H2) D,  D = 1/sigma of each read norm

What it adds to the stream is its pattern times its W_OV times the embedding, as for any head; only that its pattern comes
of two. (Elhage et al. 2021, "Virtual Attention Heads".)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from jaxtyping import Float
from torch import Tensor

from headway.algebra.low_rank import LowRank
from headway.circuits.copying import copying_scores
from headway.errors import CannotCompose, ShapeProblem, check_kind
from headway.ids import PathId
from headway.model.head import Head
from headway.model.process import processed
from headway.model.recording import Recording
from headway.model.weights import Weights, check_weights
from headway.tables.table import Table


@dataclass(frozen=True, eq=False)
class VirtualHead:
    """A path of two or more heads as one. weights: the model with its norms folded in, which the circuit is of."""

    id: PathId
    weights: Weights

    @property
    def ov(self) -> LowRank:
        """W_OV of the last head ... times W_OV of the first, [written d_model, read d_model]; norms folded in."""
        return reduce(lambda product, head: self.weights.head(head).ov @ product, self.id.heads[1:], self._first.ov)

    @property
    def rank(self) -> int:
        """How many singular values of W_OV are above rounding: at most d_head, 0 when nothing is passed on."""
        values = self.ov.to(torch.float64).svd().S
        parts = [self.weights.head(head).ov.to(torch.float64).spectral_norm() for head in self.id.heads]
        size = float(torch.stack(parts).prod())
        return int((values > max(self.ov.shape) * torch.finfo(self.weights.dtype).eps * size).sum())

    @cached_property
    def alone(self) -> Weights:
        """A one-layer model with this W_OV as the one head, L0H0, so that all that is asked of heads can be asked of it.

        Its W_Q and W_K are zero: a virtual head has no QK circuit, its pattern is a product of patterns.
        """
        w, first = self.weights, self._first
        written = reduce(lambda W, head: w.head(head).W_O @ (w.head(head).W_V @ W), self.id.heads[1:], first.W_O)
        one = {"n_layers": 1, "n_heads": 1, "n_kv_heads": 1}
        config = type(w.config).from_dict(w.config.to_dict() | one)
        none = dict.fromkeys(("b_Q", "b_K", "b_V", "b_O", "norm_gain", "norm_bias", "W_Q_pos", "W_K_pos"))
        zero = torch.zeros_like(first.W_V)[None, None]
        tensors = {"W_Q": zero, "W_K": zero, "W_V": first.W_V[None, None], "W_O": written[None, None]}
        return w.replace(f"{self.id} alone", config=config, **tensors, **none)

    def copying(self, *, draws: int = 200, seed: int = 0) -> Table:
        """`copying_scores` of this W_OV, one row: eigenvalue ratio raw and centred, each with its null."""
        table = copying_scores(self.alone, draws=draws, seed=seed)
        frame = table.frame.with_columns(head=table.frame["head"].replace("L0H0", str(self.id)))
        return Table(frame, table.columns, table.provenance, table.meta)

    @torch.no_grad()
    def pattern(self, recording: Recording) -> Float[Tensor, "batch dst src"]:
        """A_last D_last ... A_first D_first of a recording, [batch, destination, source].

        Without norms rows sum to one, as those of any head; with norms the scales 1/sigma are in it, for those of the
        first head belong to its sources and those of later ones stand between. Raises ShapeProblem for a recording of a
        model of other sizes.
        """
        hint = "headway.run(weights, tokens) makes one"
        check_kind(recording, Recording, "not a recording", expected="a Recording", next_step=hint)
        here, there = self.weights.config, recording.weights.config
        if (here.n_layers, here.n_heads) != (there.n_layers, there.n_heads):
            expected, got = (f"{c.n_layers} layers of {c.n_heads} heads" for c in (here, there))
            raise ShapeProblem(f"recording for {self.id}", expected=expected, got=got)
        scales = recording.norm_scales
        parts = [
            recording.pattern(head) if scales is None else recording.pattern(head) * scales[head.layer][:, None, :]
            for head in self.id.heads
        ]
        return reduce(lambda product, pattern: pattern @ product, parts[1:], parts[0])

    @property
    def _first(self) -> Head:
        return self.weights.head(self.id.heads[0])


def virtual(weights: Weights, path: str | PathId) -> VirtualHead:
    """The virtual head of a path such as `L0H2-L1H3`, lowest layer first.

    Its `.ov`, `.rank` and `.copying()` are of weights with their norms folded in; `.pattern(recording)` is what it attends
    to; `.alone` is a model with it as the only head. Raises UnknownName for a head that does not exist, CannotCompose for a
    path that does not rise through the layers, or of one head alone.

    >>> from headway.sources.handmade import two_back_model
    >>> one = virtual(two_back_model().weights, "L0H0-L1H0")
    >>> one.ov.shape == one.weights.head("L0H0").ov.shape, one.rank
    (True, 11)
    """
    check_weights(weights)
    id_ = PathId.parse(path)
    if id_.order < 2:
        hint = "weights.head('L1H3') is a head by itself"
        raise CannotCompose(
            "a virtual head is of two heads or more", expected="L0H2-L1H3", got=str(id_), next_step=hint
        )
    heads = tuple(weights.head_id(head) for head in id_.heads)
    return VirtualHead(PathId(heads), processed(weights.check_finite(), "folded"))
