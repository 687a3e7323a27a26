"""2a-2d: what the notes of the exercises promise (caveats C5-C10, C12, C13; bounds B1, B3), worked out again here."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from headway.exercises import checking
from headway.exercises.givens import Given, given
from headway.exercises.predicates.attention import PREDICATES, pairs, turns
from headway.exercises.references import reference
from headway.exercises.rules import earlier_copy, offset, same_token
from headway.exercises.scoring import Head, proof_of, states_of
from headway.exercises.worlds import principal_components
from unit.exercises.specimens.attention import constant_row, penalised, qk, window

check: Any = checking.check  # answers are arrays in dictionaries, which a type checker cannot spread


def plain(contents: Any, id: str = "2a", n: Any = 6):
    """An exercise whose stream is the given content coordinates themselves, without positions."""
    V, d = contents.shape
    return Given(
        id=id,
        d_model=d,
        d_head=4,
        n=n,
        n_tokens=V,
        tokens=contents,
        positions=torch.zeros(n, d).double(),
        u_content=torch.eye(d).double(),
    )


def own_wins(contents: Any):
    """Share of tokens for which c_t . c_u is largest at u = t."""
    scores = contents @ contents.T
    return float((scores.argmax(1) == torch.arange(len(scores))).double().mean())


def test_c5_only_contents_of_equal_length_after_projection_match_themselves():
    random = torch.Generator().manual_seed(0)
    raw = torch.randn(64, 12, generator=random, dtype=torch.float64)
    components = principal_components(raw, 4)
    seen = raw @ components.T
    full = torch.nn.functional.normalize(raw, dim=1) @ components.T
    after = torch.nn.functional.normalize(seen, dim=1)
    assert own_wins(seen) < 0.7 and own_wins(full) < 0.9
    assert own_wins(after) == 1.0
    for contents, passes in ((seen, False), (full, False), (after, True)):
        here = plain(contents)
        assert proof_of(here, Head(here.u_content, here.u_content), same_token()).passed == passes


@pytest.mark.parametrize(
    "contents,margin",
    [
        (torch.eye(4).double() - 0.25, 4 / 3),  # the simplex, scaled to unit length below: 1 - (-1/3)
        (torch.eye(4).double(), 1.0),
        (torch.cat((torch.eye(4), -torch.eye(4))).double(), 1.0),
    ],
    ids=["simplex", "orthonormal", "eight"],
)
def test_c5_best_margins_in_four_dimensions(contents: Any, margin: Any):
    here = plain(torch.nn.functional.normalize(contents, dim=1))
    proof = proof_of(here, Head(here.u_content, here.u_content), same_token())
    assert proof.passed and proof.margin == pytest.approx(margin)


def test_centred_contents_match_too_with_rank_three():
    """Four tokens: subtracting their mean is linear on them, and leaves three dimensions."""
    raw = torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    here = plain(torch.nn.functional.normalize(raw, dim=1))
    asks = torch.linalg.inv(here.tokens.T)  # row t reads 1 from token t and 0 from the others
    centred = asks - asks.mean(0)
    verdict = PREDICATES["2a"](here, qk(centred, centred), {})
    assert torch.linalg.matrix_rank(centred.T @ centred, rtol=1e-9) == 3
    assert verdict.passed


def test_c6_rows_that_write_do_not_read():
    """The transposed writing directions are not the duals: content leaks in, and the head is less often right."""
    g = given("2c")
    naive = g.space.write("position").T[:4]
    W_Q = turns(g, -1.0, 0, 1) @ naive

    def worst(W_Q: Any, W_K: Any):
        return proof_of(g, Head(W_Q, W_K), offset(1)).margin

    assert worst(W_Q, naive) < worst(*reference("2c", g).values())
    assert (naive @ g.tokens.T).abs().max() > 0.05
    assert (pairs(g, 0, 1) @ g.tokens.T).abs().max() < 1e-12


def test_c7_the_wrong_sign_looks_at_itself_and_slow_pairs_need_large_scores():
    g = given("2c")
    wrong = check("2c", W_Q=turns(g, 1.0, 0, 1) @ pairs(g, 0, 1), W_K=pairs(g, 0, 1))
    assert (wrong.reason, wrong.facts["offset"]) == ("SIGN", 0)
    slow = check("2c", W_Q=turns(g, -1.0, 2, 3) @ pairs(g, 2, 3), W_K=pairs(g, 2, 3))
    fast = check("2c", **reference("2c", g))
    assert slow.passed and fast.passed
    assert slow.sharpness.T99 > 50 * fast.sharpness.T99


def kappa(g: Given, offsets: Any):
    """sum of lambda^2 cos alpha D over pairs 0 and 1, term by term."""
    weights = [(float(a) ** 2, float(w)) for a, w in zip(g.amplitude[:2], g.alpha[:2], strict=True)]
    return [sum(size * math.cos(w * d) for size, w in weights) for d in offsets]


def test_c8_the_window_of_the_penalty_and_the_best_one_in_it():
    g = given("2d")
    contents = g.tokens @ g.u_content.T
    rho = max(float(contents[t] @ contents[u]) for t in range(g.n_tokens) for u in range(t))
    far = kappa(g, range(1, g.n))
    R, G = max(far) - min(far), kappa(g, [0])[0] - max(far)
    assert window(g) == pytest.approx((1 - rho) / R)

    def margin(beta: Any):
        answer = penalised(g, beta)
        return proof_of(g, Head(answer["W_Q"], answer["W_K"]), earlier_copy()).margin

    best = (1 - rho) / (G + R)
    assert margin(best) == pytest.approx((1 - rho) * G / (G + R), abs=1e-9)
    assert margin(0.98 * best) < margin(best) > margin(1.02 * best)
    assert margin(0.999 * window(g)) > 0 > margin(1.001 * window(g))
    assert margin(0) == pytest.approx(0, abs=1e-12)
    told = check("2d", **penalised(g, 1.0))
    assert told.reason == "BETA_HIGH"
    assert told.facts["factor"] == pytest.approx(window(g), rel=1e-3)  # of a penalty of 1: the window's end itself
    assert told.facts["offset"] == 1 + min(range(len(far)), key=lambda d: far[d])


def test_c9_several_copies_share_unequally():
    """Sharp scores pick the copy at the lowest point of the kernel, neither all copies nor the latest."""
    g = given("2d")
    answer = reference("2d", g)
    states = states_of(g, Head(answer["W_Q"], answer["W_K"]))
    i, copies = 11, (2, 5, 9)
    lowest = min(copies, key=lambda j: kappa(g, [i - j])[0])
    tokens = [0 if m in (*copies, i) else 1 + m % 6 for m in range(12)]
    row = torch.stack([states.Q[i, 0] @ states.K[m, t] for m, t in enumerate(tokens)])
    sharp = (1e4 * row).softmax(0)
    assert float(sharp[lowest]) > 0.99
    assert "COPIES" in {note.code for note in check("2d", **answer).notes}


def test_c10_queries_without_a_copy_are_left_out_and_said_so():
    g = given("2d")
    proof = proof_of(g, Head(*reference("2d", g).values()), earlier_copy())
    assert proof.by_query[0] == math.inf  # the first token has no copy, and no demand is made of it
    said = [note.facts for note in check("2d", **reference("2d", g)).notes if note.code == "EXCLUDED"]
    assert said == [{"queries": "tokens without an earlier copy"}]


def test_c12_rows_are_stacked_not_added():
    g = given("2b")
    added = g.u_content + pairs(g, 0, 1)
    verdict = check("2b", W_Q=added, W_K=added)
    assert (verdict.passed, verdict.reason) == (False, "CROSS_TERMS")


def test_c13_what_depends_on_the_query_alone_changes_nothing():
    g = given("2b")
    rows = pairs(g, 0)
    answer = qk(torch.cat((rows, 40 * g.u_content[:1])), torch.cat((rows, constant_row(g))))
    with_constant, without = check("2b", **answer), check("2b", W_Q=rows, W_K=rows)
    assert with_constant.passed
    assert pytest.approx(without.sharpness.T99) == with_constant.sharpness.T99
    assert with_constant.sharpness.relative_margin == pytest.approx(without.sharpness.relative_margin)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("id", ["2a", "2b", "2c"])
def test_b1_the_meters_multiplier_leaves_one_percent(id: str, scale: float):
    """At T99 the worst row of many sequences leaks at most 1 % off its targets; at a fifth of it some row leaks more."""
    g = given(id)
    answer = reference(id, g)
    answer = {"W_Q": scale * answer["W_Q"], "W_K": answer["W_K"]}
    T = check(id, **answer).sharpness.T99
    states = states_of(g, Head(answer["W_Q"], answer["W_K"]))
    random = torch.Generator().manual_seed(0)
    back = {"2a": None, "2b": 0, "2c": 1}[id]

    def worst(multiplier: Any):
        leak = 0.0
        for _ in range(40):
            tokens = torch.randint(g.n_tokens, (g.n,), generator=random)
            for i in range(1, g.n):
                row = states.K[torch.arange(i + 1), tokens[: i + 1]] @ states.Q[i, tokens[i]]
                hit = tokens[: i + 1] == tokens[i] if back is None else torch.arange(i + 1) == i - back
                leak = max(leak, 1 - float((multiplier * row).softmax(0)[hit].sum()))
        return leak

    assert worst(T) <= 0.01
    assert worst(T / 5) > 0.01


def test_b3_the_par_is_that_of_the_linear_programme():
    """Equal pairs by hand: gap = min over offsets of sum w (1 - cos), best over a fine grid of weights."""
    g = given("2c")
    answer = reference("2c", g)
    a, size = g.alpha[:2].tolist(), (g.amplitude[:2] ** 2).tolist()
    reach = [1, *range(1, g.n - 1)]

    def gap(w: Any, alphas: Any):
        return min(sum(v * (1 - math.cos(x * d)) for v, x in zip(w, alphas, strict=True)) for d in reach)

    mine = gap([s / sum(size) for s in size], a)
    grid = [i / 1000 for i in range(1001)]
    every = g.alpha.tolist()
    best = max(gap([w, 1 - w], [every[f], every[h]]) for f in range(4) for h in range(f) for w in grid)
    assert check("2c", **answer).sharpness.par_fraction == pytest.approx(mine / best, rel=5e-3)


def test_one_pair_can_reach_par_only_among_single_pairs():
    g = given("2c")
    one = check("2c", W_Q=turns(g, -1.0, 0) @ pairs(g, 0), W_K=pairs(g, 0)).sharpness
    assert one.par_fraction is not None and 0 < one.par_fraction <= 1 + 1e-9


@pytest.mark.parametrize("id", ["2a", "2b", "2c", "2d"])
def test_a_counterexample_really_fails(id: str):
    """Its attention row gives some position outside the target at least as much as one inside."""
    g = given(id)
    bad = {
        "2a": qk(g.u_content[:2], g.u_content[:2]),
        "2b": qk(turns(g, -1.0, 0, 1) @ pairs(g, 0, 1), pairs(g, 0, 1)),
        "2c": qk(turns(g, -2.0, 0, 1) @ pairs(g, 0, 1), pairs(g, 0, 1)),
        "2d": penalised(g, 1.0),
    }[id]
    verdict = check(id, **bad)
    shown = verdict.counterexample
    assert shown is not None and len(shown.tokens) == shown.query + 1 == len(shown.attention)
    states = states_of(g, Head(bad["W_Q"], bad["W_K"]))
    row = torch.stack([states.Q[shown.query, shown.tokens[-1]] @ states.K[j, t] for j, t in enumerate(shown.tokens)])
    expected = (row * shown.sharpened_by).softmax(0)
    assert torch.allclose(torch.tensor(shown.attention).double(), expected, atol=1e-9)
    inside = min(shown.attention[j] for j in shown.target)
    assert max(a for j, a in enumerate(shown.attention) if j not in shown.target) >= inside


def test_pictures_are_finite_where_they_are_drawn():
    g = given("2c")
    good = check("2c", **reference("2c", g)).picture
    assert good.kind == "kernel" and len(good.yours) == g.n == len(good.columns)
    assert good.yours.argmax() == 1 and abs(good.difference).max() < 1e-9
    content = check("2a", **reference("2a", given("2a"))).picture
    assert content.kind == "matrix" and content.yours.shape == content.wanted.shape
    lower = torch.ones(content.yours.shape).tril().bool().numpy()
    assert (content.yours[lower] >= 0).all()


def test_a_zero_head_has_no_story():
    verdict = check("2b", W_Q=torch.zeros(4, 32), W_K=torch.zeros(4, 32))
    assert (verdict.reason, verdict.counterexample) == ("ZERO", None)


@pytest.mark.parametrize("size", [1e-200, 1e200])
@pytest.mark.parametrize("id", ["2a", "2b", "2c", "2d", "2f", "2b-rotary", "2c-rotary"])
def test_no_size_of_an_answer_is_too_large_or_too_small(id: str, size: float):
    """Products of such numbers overflow or vanish; the head they describe is the same."""
    answer = reference(id, given(id))
    grown = check(id, W_Q=size * answer["W_Q"], W_K=size * answer["W_K"])
    plain = check(id, **answer)
    assert grown.passed
    assert grown.sharpness.relative_margin == pytest.approx(plain.sharpness.relative_margin)
