"""The previous-token head under absolute positions (exercise 2c): sinusoids in the stream, and one rotation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headway.errors import UsageError
from headway.model.head import Head
from headway.provenance import Provenance
from headway.sources.handmade.built import Built, assemble, contents
from headway.sources.handmade.sharpness import sharpness_for
from headway.sources.handmade.subspaces import Space


def octaves(n_ctx: int) -> tuple[float, ...]:
    """Angles a token, pi, pi/2, pi/4, ...: the fewest octaves with which no wrong offset of n_ctx tokens is near.

    With k of them every offset 0 < |D| < 2^k has gap >= 2/k. Proof: write D = 2^a odd with a < k. Pair a turns by
    pi odd, so its term 1 - cos is 2; the other terms are not negative, and each pair weighs 1/k.

    >>> [round(math.pi / angle) for angle in octaves(64)]
    [1, 2, 4, 8, 16, 32]
    """
    if n_ctx < 2:
        raise UsageError("n_ctx", expected="at least 2, so that there is a previous token", got=n_ctx)
    return tuple(math.pi / 2**f for f in range(max(1, math.ceil(math.log2(n_ctx - 1)))))


def kernel_gap(frequencies: Sequence[float], n_ctx: int) -> float:
    """How far the best wrong offset stays below the previous token: min over D of mean_f (1 - cos(alpha_f D)).

    D = i - j - 1 runs over what a causal query can reach within n_ctx tokens: -1 (itself) and 1 .. n_ctx - 2, never 0.
    Between 0 and 2; 0 (or rounding) means that some wrong position ties, so that no scale helps.
    """
    reachable = torch.arange(1, max(n_ctx - 1, 2), dtype=torch.float64)  # cos is even: D = -1 counts as 1
    angles = torch.tensor(list(frequencies), dtype=torch.float64)[:, None] * reachable
    return float((1 - angles.cos()).mean(0).min())


def position_table(space: Space, frequencies: Sequence[float], n_ctx: int) -> Float[Tensor, "d_model n_ctx"]:
    """W_pos: position m is (cos alpha_f m, sin alpha_f m) / sqrt(k) for each of k pairs, in `position`: unit length."""
    waves = _waves(frequencies, n_ctx).to(space.write("position"))
    return space.write("position") @ waves


# Why it works.  Position m of the stream holds the unit vector  p_m = (cos a_f m, sin a_f m)_f / sqrt(k)  in `position`.
#   key      k_j = p_j                              W_K reads `position`
#   query    q_i = T R(-a) p_i = T p_{i-1}          turning every pair back by its angle is one step back in the text
#   score    s_ij = q_i . k_j = (T/k) sum_f cos(a_f (i - j - 1))
# The cosines are all 1 exactly at j = i - 1, and every other reachable j scores at least T gap less, so T >=
# log((n-1)(1-leak)/leak) / gap leaves at most `leak` to all of them together (kernel_gap, sharpness_for).
# The sign matters: R(+a) on the query would point at j = i + 1, which the causal mask hides, and the head would look
# wherever the kernel is next highest: at itself, when all pairs turn slowly.
# Position 0 has no previous token: it attends to itself.
# Contents take no part: W_Q and W_K read dual rows of `position`, which vanish on every other subspace.
# OV reads `source` and writes the same coordinates to `target`, so position i receives
#   sum_j A_ij content_j = (1 - leak_i) content_{i-1} + leak_i (an average of the others),   leak_i <= leak.
def previous_token_head(
    space: Space,
    frequencies: Sequence[float],
    *,
    sharpness: float,
    source: str = "content",
    target: str = "previous",
) -> Head:
    """A head that attends to position i - 1 and copies `source` there to `target` here; scale 1, no biases.

    W_QK = T P diag(R(+a_f)) P^+ and W_OV = target source^+, where P are the columns of `position` and ^+ dual rows.
    d_head = max(2 pairs, size of source). Needs `position_table` in the stream. Raises UsageError when the sizes of the
    subspaces do not fit.
    """
    pairs, size = len(frequencies), space.write(source).shape[1]
    if space.write("position").shape[1] != 2 * pairs or space.write(target).shape[1] != size:
        expected = f"position {2 * pairs} (two a frequency), {target} {size} (as {source})"
        raise UsageError("subspaces of a previous-token head", expected=expected, got=repr(space))
    d_head = max(2 * pairs, size)
    read, keep = space.read("position"), space.read(source)
    back = torch.block_diag(*(_turn(-angle) for angle in frequencies)).to(read)
    W_Q, W_K, W_V = (read.new_zeros(d_head, space.d_model) for _ in range(3))
    W_O = read.new_zeros(space.d_model, d_head)
    W_Q[: 2 * pairs], W_K[: 2 * pairs] = sharpness * back @ read, read
    W_V[:size], W_O[:, :size] = keep, space.write(target)
    return Head(W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O, attn_scale=1.0)


def previous_token_model(
    *,
    d_vocab: int = 12,
    n_ctx: int = 32,
    leak: float = 1e-3,
    bos: bool = True,
    seed: int | None = 0,
    dtype: torch.dtype = torch.float64,
) -> Built:
    """One layer, one head: position i says the token at i - 1.

    Known: the pattern has at least 1 - leak on the previous token at every position but 0; the direct path is exactly
    uniform (W_U reads `out` alone, which embeddings do not write); the token at i - 1 has probability at least 1 - leak.
    bos: token 0 is BOS, without content, so that after it (position 1) all logits are near 0. seed: of the contents and
    of the stream's rotation; None leaves subspaces on the axes. notes: gap, sharpness (of the scores), logit_scale.

    >>> from headway.model.forward import logits
    >>> logits(previous_token_model().weights, torch.tensor([[0, 3, 5, 7]])).argmax(-1)[0, 2:].tolist()
    [3, 5]
    """
    frequencies = octaves(n_ctx)
    table = contents(d_vocab, bos=bos, seed=seed or 0, dtype=dtype)
    sizes = {"content": len(table), "position": 2 * len(frequencies), "out": len(table)}
    space = Space.allocate(sizes, seed=seed, dtype=dtype)
    gap = kernel_gap(frequencies, n_ctx)
    sharpness = sharpness_for(leak, gap=gap, rivals=n_ctx - 1)
    # The right coordinate of `out` is at least 1 - leak, any other at most leak: logits differ by U (1 - 2 leak).
    scale = sharpness_for(leak, gap=1 - 2 * leak, rivals=d_vocab - 1)
    weights = assemble(
        [[previous_token_head(space, frequencies, sharpness=sharpness, target="out")]],
        {
            "W_E": space.write("content") @ table,
            "W_pos": position_table(space, frequencies, n_ctx),
            "W_U": scale * table.T @ space.read("out"),
        },
        n_ctx=n_ctx,
        bos=0 if bos else None,
        provenance=Provenance(source="handmade previous_token_model", options={"leak": leak}, seed=seed),
    )
    return Built(weights, space, {"gap": gap, "sharpness": sharpness, "logit_scale": scale, "leak": leak})


def _waves(frequencies: Sequence[float], n_ctx: int) -> Float[Tensor, "two_k n_ctx"]:
    angles = torch.tensor(list(frequencies), dtype=torch.float64)[:, None] * torch.arange(n_ctx, dtype=torch.float64)
    return torch.stack((angles.cos(), angles.sin()), dim=1).flatten(0, 1) / math.sqrt(len(frequencies))


def _turn(angle: float) -> Float[Tensor, "2 2"]:
    """Rotation of one (cos, sin) pair."""
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
