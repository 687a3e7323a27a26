"""Induction by K-composition (exercise 3): what followed this token last time, said again."""

from __future__ import annotations

import torch

from headway.model.head import Head
from headway.provenance import Provenance
from headway.sources.handmade.built import Built, assemble, contents
from headway.sources.handmade.previous_token import kernel_gap, octaves, position_table, previous_token_head
from headway.sources.handmade.sharpness import sharpness_for
from headway.sources.handmade.subspaces import Space


# Why it works.  Contents c_t are orthonormal.  After layer 0, `previous` at position j holds
#   v_j = (1 - e_j) c_{t_(j-1)} + e_j (an average of other contents),   e_j <= leak        (previous_token.py)
#   query  q_i = S c_{t_i}           own content                key  k_j = v_j
#   match  (t_(j-1) = t_i):  s_ij >= S (1 - leak)               else  s_ij <= S leak:  leaked contents are not negative
# so the head attends to the token AFTER each earlier copy of its own token, all copies alike, and OV copies the content
# found there to `out`, which W_U reads.
# Without BOS nothing else is needed: the margin is S (1 - 2 leak).  A query without a match then attends to everything
# about equally, and position 0, which attends to itself in layer 0, looks like the successor of its own token: a query
# equal to token 0 gives it as much as each true match (exercises.md C4).
# With BOS (token 0, no content) both faults go: v_0 = 0, and a constant query b_Q times a key that reads `start`, which
# BOS alone holds, gives position 0 the score S/2.  A match wins against it by S (1/2 - leak); without a match it wins
# by as much against everything else, and since BOS has no content the head then writes nothing.
def induction_head(space: Space, *, sharpness: float, sink: bool = True) -> Head:
    """A head that looks for its own content in `previous` and copies `content` from there to `out`; scale 1.

    W_QK = S content^+T previous^+, W_OV = out content^+. sink: half the sharpness goes to the position that holds
    `start`, through b_Q (so W_QK stays as it is). d_head = size of content, + 1 with the sink.
    """
    size = space.write("content").shape[1]
    d_head = size + sink
    W_Q, W_K, W_V = (space.read("content").new_zeros(d_head, space.d_model) for _ in range(3))
    W_O = space.read("content").new_zeros(space.d_model, d_head)
    W_Q[:size], W_K[:size] = sharpness * space.read("content"), space.read("previous")
    W_V[:size], W_O[:, :size] = space.read("content"), space.write("out")
    b_Q = None
    if sink:
        W_K[size:] = space.read("start")
        b_Q = W_Q.new_zeros(d_head)
        b_Q[size] = sharpness / 2
    return Head(W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O, b_Q=b_Q, attn_scale=1.0)


def induction_model(
    *,
    d_vocab: int = 64,
    n_ctx: int = 128,
    leak: float = 1e-3,
    bos: bool = True,
    seed: int | None = 0,
    dtype: torch.dtype = torch.float64,
) -> Built:
    """Two layers of one head: L0H0 previous-token, L1H0 induction, joined by K-composition alone.

    Known, with c = d_vocab - 1 contents (c = d_vocab without BOS):
    - L0H0 has at least 1 - leak on the previous token; L1H0 at least 1 - leak on the successors of earlier copies of its
      token (with BOS), and on BOS when there are none; the token copied from one copy has probability >= 1 - leak;
    - K-composition of (L1H0, L0H0) is 1 / sqrt(c), Q- and V-composition 0;
    - copying of L1H0 is 1: W_U W_OV W_E is U times the projection on all tokens but BOS; that of L0H0 is 0 / 0;
    - the direct path is uniform, so the loss of order 0 is ln d_vocab; order 1 gives all there is, order 2 nothing.
    Without BOS prefix matching on two copies of n tokens is (n - 1/2) / n, see above. seed: of the contents and of the
    stream's rotation; None leaves subspaces on the axes. notes: gap, sharpness_0, sharpness_1, logit_scale, leak.

    >>> from headway.model.forward import logits
    >>> logits(induction_model().weights, torch.tensor([[0, 5, 9, 3, 5]])).argmax(-1)[0, -1].item()
    9
    """
    frequencies = octaves(n_ctx)
    table = contents(d_vocab, bos=bos, seed=seed or 0, dtype=dtype)
    space = _space(len(table), len(frequencies), bos, seed, dtype)
    gap = kernel_gap(frequencies, n_ctx)
    sharp_0 = sharpness_for(leak, gap=gap, rivals=n_ctx - 1)
    sharp_1 = sharpness_for(leak, gap=0.5 - leak if bos else 1 - 2 * leak, rivals=n_ctx - 1)
    # The right coordinate of `out` is at least 1 - leak, any other at most leak: logits differ by U (1 - 2 leak).
    scale = sharpness_for(leak, gap=1 - 2 * leak, rivals=d_vocab - 1)
    W_E = space.write("content") @ table
    if bos:
        W_E[:, :1] = space.write("start")
    weights = assemble(
        [
            [previous_token_head(space, frequencies, sharpness=sharp_0)],
            [induction_head(space, sharpness=sharp_1, sink=bos)],
        ],
        {
            "W_E": W_E,
            "W_pos": position_table(space, frequencies, n_ctx),
            "W_U": scale * table.T @ space.read("out"),
        },
        n_ctx=n_ctx,
        bos=0 if bos else None,
        provenance=Provenance(source="handmade induction_model", options={"leak": leak}, seed=seed),
    )
    notes = {"gap": gap, "sharpness_0": sharp_0, "sharpness_1": sharp_1, "logit_scale": scale, "leak": leak}
    return Built(weights, space, notes)


def _space(n: int, pairs: int, bos: bool, seed: int | None, dtype: torch.dtype) -> Space:
    sizes = {"content": n, "position": 2 * pairs, "previous": n, "out": n} | ({"start": 1} if bos else {})
    return Space.allocate(sizes, seed=seed, dtype=dtype)
