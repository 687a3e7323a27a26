"""Parts: rows are stacked, never added; moves write what they say; turned dims come first."""

from __future__ import annotations

import pytest
import torch

from headway.errors import UsageError
from headway.sources.handmade.match import Match
from headway.sources.handmade.match_not_self import MatchNotSelf
from headway.sources.handmade.offset import Offset
from headway.sources.handmade.parts import Copy, Part, Rows, Translate, content_of
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.subspaces import Space


def space(plan: Plan) -> Space:
    c = len(plan.contents)
    return Space.allocate({"content": c, "position": 8, "one": 1, "start": 1, "out": c, "v": 8}, seed=4)


def test_scores_add_by_stacking():
    random = torch.Generator().manual_seed(0)
    Q, K = (torch.randn(5, 7, generator=random, dtype=torch.float64) for _ in range(2))
    bias = torch.randn(2, generator=random, dtype=torch.float64)
    first, second = Rows(Q=Q[:3], K=K[:3], turned=2), Rows(Q=Q[3:], K=K[3:], bias=bias)
    both = first.and_rows(second)
    assert torch.equal(both.Q, Q) and torch.equal(both.K, K) and both.turned == 2
    assert both.bias is not None and both.bias.tolist() == [0, 0, 0, *bias.tolist()]
    assert first.and_rows(first).bias is None


def test_copy_reads_one_subspace_and_writes_one():
    """Exercises 1a and 2e: W_OV is the identity from source to target, and zero on and onto everything else."""
    plan = Plan(d_vocab=5, bos=False)
    there = space(plan)
    ov = Part(Match(), Copy("position", "v")).head(there, plan, sharpness=1.0).ov.dense()
    for a in there.sizes:
        for b in there.sizes:
            block = there.read(a) @ ov @ there.write(b)
            wanted = torch.eye(8) if (a, b) == ("v", "position") else torch.zeros_like(block)
            torch.testing.assert_close(block, wanted.double(), rtol=0, atol=1e-12)


def test_translate():
    plan = Plan(d_vocab=6)
    there = space(plan)
    ov = Part(Match(), Translate(((2, 5), (2, 3), (4, 1)))).head(there, plan, sharpness=1.0).ov.dense()
    tokens = torch.stack([there.write("content") @ plan.contents[:, t] for t in range(6)], dim=1)
    written = plan.contents.T @ there.read("out") @ ov @ tokens
    wanted = torch.zeros(6, 6, dtype=torch.float64)
    wanted[5, 2] = wanted[3, 2] = wanted[1, 4] = 1
    torch.testing.assert_close(written, wanted, rtol=0, atol=1e-12)
    with pytest.raises(UsageError, match="ids 1 to 5"):
        content_of(plan, [0])


def test_under_rotary_positions_contents_stand_behind_the_turned_dims():
    plan = Plan(d_vocab=6, n_ctx=16, positions="rotary")
    there = space(plan)
    plain = Part(Match(), Copy()).head(there, plan, sharpness=2.0)
    assert plain.turns is not None and plain.turns.rotary_dims == 8
    assert float(plain.W_Q[:8].abs().max()) == 0 and float(plain.W_K[:8].abs().max()) == 0
    torch.testing.assert_close(plain.qk(7).dense(), plain.qk(0).dense())
    both = Part(MatchNotSelf(), Copy()).head(there, plan, sharpness=2.0)
    only = Part(Offset(1), Copy()).head(there, plan, sharpness=2.0)
    assert float(both.W_Q[:8].abs().max()) > 0 and both.W_Q.shape[0] == 8 + 5
    assert only.W_Q.shape[0] == 8 and float((only.qk(1) - only.qk(2)).norm()) > 0.1
