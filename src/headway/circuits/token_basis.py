"""Composition in the basis of tokens: the same score whatever basis the residual stream is written in.

Without norms a model may be rewritten by any invertible T of its stream, W_E -> T W_E, W_U -> W_U T^-1,
W_Q, W_K, W_V -> W T^-1, W_O -> T W_O, and computes the same; the Frobenius norms of composition are not the same then.
With L L^T = W_E W_E^T the circuits L^T W_QK L and L^-1 W_OV L are, up to a rotation that no norm sees:

    K: ||L^T W_QK W_OV L|| / (||L^T W_QK L|| ||L^-1 W_OV L||)     Q: W_QK^T for W_QK
    V: ||L^-1 W_OV(reader) W_OV(writer) L|| / (||L^-1 W_OV(reader) L|| ||L^-1 W_OV(writer) L||)

L^-1 W_E has orthonormal rows: in these coordinates no direction of the stream is more usual than another, over the
vocabulary with every token once. That is what the null's rotation supposes, and what an arbitrary basis does not give.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headway.circuits.absorbed import readers, writers
from headway.circuits.composition import COLUMNS, NOTES
from headway.circuits.pairs import Pairs, pair_frame, scored
from headway.errors import BadInput
from headway.ids import HeadId
from headway.model.config import ModelConfig
from headway.model.weights import Weights
from headway.tables.table import Column, Table

_TOKENS = 8192  # at a time: W_E is never whole in float64

TOKEN_BASIS_COLUMNS = COLUMNS | {
    "score": Column(
        "||reader circuit x writer's W_OV|| over the product of both norms, Frobenius, in the basis of tokens",
        "dimensionless",
        0,
        1,
    )
}
_UNCHANGED = "Unchanged by any change of the stream's basis, which is a symmetry of the model only without norms."


def token_basis_composition_scores(
    weights: Weights,
    *,
    via: str | None = None,
    reader: str | HeadId | None = None,
    processing: str = "folded",
    offset: int = 0,
) -> Table:
    """Composition in the basis of tokens, one row for reader, writer and via; largest first.

    Formula and null: see the module; the null's rotation stands in coordinates in which W_E W_E^T is the identity, where
    E[score^2] = 1/d again. Where reads are centred, the direction they are blind to is left out of the rotation, as in
    `composition_scores`, whose arguments, order of rows, flags and errors these are. float64. meta: `condition` of W_E,
    its largest over its smallest singular value. Raises BadInput where W_E W_E^T is singular, within the rounding of the
    weights: some direction of the stream is then none that tokens can write, and the score does not exist.

    >>> from headway.model.config import ModelConfig
    >>> w = torch.eye(4).reshape(1, 1, 4, 4).repeat(2, 1, 1, 1)
    >>> c = ModelConfig(n_layers=2, n_heads=1, d_model=4, d_head=4, d_vocab=4, n_ctx=2)
    >>> model = Weights(config=c, W_E=torch.eye(4), W_Q=w, W_K=w, W_V=w, W_O=w, W_U=torch.eye(4))
    >>> token_basis_composition_scores(model, via="V").rows()[0]["score"]
    0.5
    """
    pairs = Pairs.of(weights, via, reader, (processing, offset))
    L, condition = token_factor(pairs.seen)
    heads = _in_token_basis(pairs.seen, L)
    unread = None
    if pairs.centred:
        unread = torch.linalg.solve_triangular(L, torch.ones_like(L[:, :1]), upper=False)[:, 0]
        unread = unread / unread.norm()
    sides = None
    if len(pairs.r):
        reads = [readers(heads, v, offset, pairs.d) for v in pairs.vias]
        sides = reads, writers(heads, pairs.centred, unread=unread)
    frames = [pair_frame(pairs, v, both, scores) for v, both, scores in scored(pairs, sides)]
    meta = {
        "dtype": "float64",
        "null": pairs.null_text + ", in coordinates in which W_E W_E^T = 1",
        "condition": condition,
        "notes": (*NOTES, _UNCHANGED),
    }
    return pairs.table(frames, TOKEN_BASIS_COLUMNS, meta)


def token_factor(weights: Weights) -> tuple[Float[Tensor, "d_model d_model"], float]:
    """Lower triangular L with L L^T = W_E W_E^T, float64, and the ratio of the largest to the smallest singular value.

    By QR of W_E^T block by block, which does not square that ratio as W_E W_E^T would. Raises BadInput when it exceeds
    what the weights' precision can tell from infinity.

    >>> W_E = torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    >>> c = ModelConfig(n_layers=0, n_heads=0, d_model=2, d_head=1, d_vocab=3, n_ctx=2)
    >>> none = torch.zeros(0, 0, 1, 2)
    >>> w = Weights(config=c, W_E=W_E, W_U=W_E.T, W_Q=none, W_K=none, W_V=none, W_O=none.mT)
    >>> token_factor(w)[0].abs().diagonal().tolist()
    [3.0, 4.0]
    """
    d, n = weights.W_E.shape
    upper = torch.zeros(0, d, dtype=torch.float64, device=weights.device)
    for part in weights.W_E.detach().T.split(_TOKENS):
        upper = torch.linalg.qr(torch.cat((upper, part.double())), mode="r").R
    sizes = torch.linalg.svdvals(upper)
    least = d * torch.finfo(weights.dtype).eps
    if n < d or not float(sizes[-1]) > least * float(sizes[0]):
        rank = int((sizes > least * sizes[0]).sum())
        raise BadInput(
            "the basis of tokens is singular: tokens do not write every direction of the stream",
            where="W_E W_E^T",
            expected=f"rank d_model={d}",
            got=f"rank {rank} from d_vocab={n} tokens",
            next_step="Score in the residual basis: composition_scores",
        )
    return upper.T.contiguous(), float(sizes[0] / sizes[-1])


def _in_token_basis(seen: Weights, L: Float[Tensor, "d_model d_model"]) -> Weights:
    """The heads alone, in float64 and the coordinates L^-1 x of the stream; everything else of the model left out."""
    c = seen.config
    kept = ("n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "n_ctx", "attn_scale", "position_base")
    fields = {name: getattr(c, name) for name in kept} | {"d_vocab": 1}
    if c.rotary_dims:
        fields |= {"positions": "rotary", "rotary_dims": c.rotary_dims, "rotary_pairs": c.rotary_pairs}
    reads = {name: getattr(seen, name).detach().double() @ L for name in ("W_Q", "W_K", "W_V")}
    W_O = torch.linalg.solve_triangular(L, seen.W_O.detach().double(), upper=False)
    none = L.new_zeros(c.d_model, 1)
    return Weights(config=ModelConfig.from_dict(fields), W_E=none, W_U=none.T, W_O=W_O, **reads)
