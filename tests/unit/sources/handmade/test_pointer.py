"""Exercise 2's model: every number its docstring promises, the ceiling without BOS, and the budget of its first head."""

from __future__ import annotations

import math

import pytest
import torch

from headway.behaviour.repeated import prefix_matching_scores, repeated_tokens
from headway.circuits import composition_scores, copying_scores
from headway.errors import UsageError
from headway.model.forward import logits, run
from headway.sources.handmade.compiler import compile_model
from headway.sources.handmade.kernels import kernel_gap, kernel_range
from headway.sources.handmade.match_not_self import MatchNotSelf
from headway.sources.handmade.parts import Copy, Part
from headway.sources.handmade.plan import Plan
from headway.sources.handmade.pointer import Pointer, pointer_model

LEAK = 1e-3
MODEL = pointer_model(leak=LEAK)
V = MODEL.weights.config.d_vocab


def matching(bos: bool, length: int, copies: int) -> float:
    weights = pointer_model(bos=bos, leak=LEAK).weights
    rows = prefix_matching_scores(weights, length=length, copies=copies, rows=4).rows()
    assert next(row["prefix_matching"] for row in rows if row["head"] == "L0H0") < 0.01
    return next(row["prefix_matching"] for row in rows if row["head"] == "L1H0")


@pytest.mark.parametrize(("length", "copies"), [(25, 4), (50, 2)])
def test_prefix_matching_with_bos(length: int, copies: int):
    assert matching(True, length, copies) >= 0.99


@pytest.mark.parametrize(("length", "copies"), [(25, 2), (50, 2), (25, 4)])
def test_prefix_matching_without_bos_has_no_ceiling_below_one(length: int, copies: int):
    """Every query counted stands in a later copy, so L0H0 finds an earlier occurrence p of its token and writes p_p; L1H0
    reads its own position's note and nothing of other positions' notes. Exercise 3's fault, that position 0 stores itself,
    spoils the key of position 0 for one query in each copy (ceiling (n - 1/2) / n); here a bad note at position 0 is the
    query's own affair, and position 0 is in the first copy, where nothing is counted. So the ceiling is 1, for several
    copies too as long as one of them wins.
    """
    assert matching(False, length, copies) == pytest.approx(1, abs=0.005)


def test_both_heads_keep_their_leak():
    """Tokens with at most one earlier copy."""
    tokens = repeated_tokens(MODEL.weights.config, length=60, copies=2, rows=3)
    found = run(MODEL.weights, tokens)
    first, second = found.patterns[0][:, 0], found.patterns[1][:, 0]
    for i in range(1, 121):
        copy = i - 60 if i > 60 else 0
        assert float(first[:, i, copy].min()) >= 1 - LEAK
        assert float(second[:, i, copy + 1 if copy else 0].min()) >= 1 - LEAK


def test_what_it_predicts():
    tokens = repeated_tokens(MODEL.weights.config, length=40, copies=2, rows=3)
    log_p = logits(MODEL.weights, tokens[:, :-1]).log_softmax(-1)
    loss = -log_p.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    assert float(loss[:, 41:].max()) <= -math.log(1 - LEAK)
    assert float((loss[:, :40] - math.log(V)).abs().max()) <= 2 * MODEL.notes["logit_scale"] * LEAK


def test_q_composition_by_hand():
    """W_QK = T V W R P^T and W_OV = V P^T, with orthonormal columns V, P of 2k, R turns and W the weights of each pair
    (twice): ||W_QK^T W_OV|| = T ||P R^T W V^T V P^T|| = T ||W||, ||W_QK|| = T ||W||, ||W_OV|| = sqrt(2k): 1 / sqrt(2k).
    K: W_QK W_OV = T V W R P^T V P^T = 0. V: out C^T V P^T = 0.
    """
    k = MODEL.space.sizes["position"] // 2
    scores = {row["via"]: row for row in composition_scores(MODEL.weights).rows()}
    # Positions have lengths 1/sqrt(k), so the key's part of W_QK is scaled alike in both norms.
    assert scores["Q"]["score"] == pytest.approx(1 / math.sqrt(2 * k), rel=1e-9) and scores["Q"]["z"] > 3
    assert scores["K"]["score"] < 1e-9 and scores["V"]["score"] < 1e-9


def test_copying_and_the_direct_path():
    weights = MODEL.weights
    rows = {row["head"]: row for row in copying_scores(weights, draws=20).rows()}
    assert rows["L1H0"]["copying"] == pytest.approx(1, abs=1e-6) and rows["L0H0"]["copying"] is None
    assert float((weights.W_U @ weights.W_E).abs().max()) < 1e-12


def test_the_pointers_margin_behind_a_leak():
    """The right key stands above every other by (1 - e) G - e R at least, whatever the leak's share lies on; enumerated."""
    n, e = 20, 0.08
    plan = Plan(d_vocab=5, n_ctx=n, bos=False)
    gap = Pointer().gap(plan, {"v": e})
    weights = plan.weights_for(range(1, n))
    G, R = (f(plan.angles, range(1, n), weights) for f in (kernel_gap, kernel_range))
    assert gap == pytest.approx((1 - e) * G - e * R) and e < G / (G + R)
    kappa = torch.tensor(
        [sum(w * math.cos(a * d) for w, a in zip(weights, plan.angles, strict=True)) for d in range(n)]
    )
    worst = math.inf
    for p in range(n - 1):
        for other in range(n):
            scores = torch.stack([(1 - e) * kappa[abs(j - p - 1)] + e * kappa[abs(j - other - 1)]
                                  if abs(j - other - 1) < n else torch.tensor(math.nan) for j in range(n)])  # fmt: skip
            rivals = torch.cat((scores[: p + 1], scores[p + 2 :]))
            worst = min(worst, float((scores[p + 1] - rivals).nan_to_num(math.inf).min()))
    assert gap - 1e-9 <= worst
    assert Pointer().gap(plan, {"v": G / (G + R) + 0.01}) < 0, "beyond the budget nothing is promised"


def test_two_copies_that_share_evenly_can_mislead_it():
    """C9: averages of positions. Here head 1 is soft on purpose, and the pointer lands on neither successor at times."""
    layers = [[Part(MatchNotSelf(), Copy("position", "v"))], [Part(Pointer("v"), Copy("content", "out"))]]
    soft = compile_model(layers, Plan(d_vocab=30, n_ctx=48, leak=0.15, bos=False))
    sharp = compile_model(layers, Plan(d_vocab=30, n_ctx=48, leak=1e-4, bos=False))
    tokens = torch.randint(0, 30, (40, 48), generator=torch.Generator().manual_seed(0))
    missed = {}
    for name, built in (("soft", soft), ("sharp", sharp)):
        pattern = run(built.weights, tokens).patterns[1][:, 0]
        shares = []
        for row, found in zip(tokens.tolist(), pattern, strict=True):
            for i in range(48):
                after = [j + 1 for j in range(i) if row[j] == row[i]]
                if len(after) == 2:
                    shares.append(float(found[i, after].sum()) < 0.5)
        assert len(shares) > 100
        missed[name] = sum(shares) / len(shares)
    assert missed["soft"] > missed["sharp"]


def test_rotary_positions_cannot_point():
    layers = [[Part(MatchNotSelf(), Copy("content", "v"))], [Part(Pointer("v"), Copy("content", "out"))]]
    with pytest.raises(UsageError, match=r"L1H0 reads 'position'.*positions are rotary"):
        compile_model(layers, Plan(positions="rotary"))
