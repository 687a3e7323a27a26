"""Skip-trigrams, [a] ... [b] -> [c], in one head: what the paper reads off one-layer models, written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from headway.errors import UsageError
from headway.sources.handmade.built import Built
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.parts import Part, Rows, Translate, content_of, sink_rows
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space


# Why it works.  Contents are orthonormal, so token pairs can be listed:
#   W_QK = T sum over (b, a) of  content^+T c_b c_a^T content^+       s_ij = T where (t_i, t_j) is a pair, else 0
#   W_OV = out (sum over (a, c) of  c_c c_a^T) content^+              a is replaced by c
# A query b with one or more of its a before it gives them at least 1 - leak together, by a gap of 1, or of 1/2 against BOS,
# which has T/2 in every query and takes the attention where there is no a.
# Its bug is the shape of every head: score and output depend on (b, a) and on (a, c), never on all three. Rules
# keep ... in -> mind and keep ... at -> bay together say keep ... in -> bay as loudly: W_OV does not know b.
@dataclass(frozen=True)
class Seek:
    """Attends, from a token `b`, to the tokens `a` of its pairs, all alike; from others to BOS.

    pairs: (b, a), destination and source ids.
    """

    pairs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise UsageError("pairs of tokens", expected="at least one", got="none")

    def reads(self, _: Plan) -> tuple[str, ...]:
        """Contents."""
        return ("content",)

    def gap(self, plan: Plan, _: Mapping[str, float]) -> float:
        """1, or 1/2 with BOS between."""
        return 0.5 if plan.bos else 1.0

    def rows(self, space: Space, plan: Plan, sharpness: float) -> Rows:
        """One row for each different source, and one for the sink."""
        sources = sorted({a for _, a in self.pairs})
        seekers = [sorted({b for b, other in self.pairs if other == a}) for a in sources]
        read = space.read("content")
        Q = torch.stack([content_of(plan, found).sum(1) for found in seekers]) @ read
        rows = Rows(Q=sharpness * Q, K=content_of(plan, sources).T @ read)
        return rows.and_rows(sink_rows(space, sharpness / 2)) if plan.bos else rows


def skip_trigram_model(
    rules: Sequence[tuple[int, int, int]],
    *,
    d_vocab: int = 64,
    n_ctx: int = 128,
    leak: float = 1e-3,
    seed: int | None = 0,
    dtype: torch.dtype = torch.float64,
) -> Built:
    """One layer, one head, with BOS and without positions: after b, with an a somewhere before, it says c.

    rules: (a, b, c) token ids. Known: c has probability at least 1 - leak where only one kind of a stands before b and that
    a has one c; queries b without an a, and other tokens, are uniform. All c of an a are said from every b that seeks a,
    whatever the rules meant. Raises UsageError without rules or for ids without content (BOS, 0).

    >>> from headway.model.forward import logits
    >>> model = skip_trigram_model([(3, 7, 5)], d_vocab=9).weights
    >>> logits(model, torch.tensor([[0, 3, 1, 2, 7]])).argmax(-1)[0, -1].item()
    5
    """
    if not rules:
        raise UsageError("skip-trigrams", expected="at least one rule (a, b, c)", got="none")
    plan = Plan(d_vocab=d_vocab, n_ctx=n_ctx, leak=leak, positions="none", seed=seed, dtype=dtype)
    look = Seek(tuple(dict.fromkeys((b, a) for a, b, _ in rules)))
    move = Translate(tuple(dict.fromkeys((a, c) for a, _, c in rules)))
    return compile_model([[Part(look, move)]], plan, name="skip_trigram_model")
