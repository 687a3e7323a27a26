from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.errors import ShapeProblem, UsageError
from headway.model.head import Head, same_head
from headway.model.positions import rotation
from support.random_models import random_weights
from support.unchecked import as_users_run_it

PLAIN: dict[str, Any] = {"positions": "none"}
ROTARY: list[dict[str, Any]] = [
    {"positions": "rotary", "rotary_dims": 4, "rotary_pairs": "halves"},
    {"positions": "rotary", "rotary_dims": 4, "rotary_pairs": "adjacent", "d_head": 6},
    {"positions": "rotary", "d_head": 6, "rotary_pairs": "halves"},
]
ALL: list[dict[str, Any]] = [PLAIN, *ROTARY, {"biases": "none"}, {"biases": ("b_Q",), **ROTARY[0]}, {"d_head": 13}]
GAUGES = pytest.mark.parametrize("features", ALL, ids=str)


def invertible(n: int) -> torch.Tensor:
    return torch.eye(n, dtype=torch.float64) + 0.5 * torch.randn(n, n, dtype=torch.float64)


def pairs_of(head: Head) -> list[tuple[int, int]]:
    if head.turns is None:
        return []
    n = head.turns.rotary_dims
    return [(f, f + n // 2) if head.turns.rotary_pairs == "halves" else (2 * f, 2 * f + 1) for f in range(n // 2)]


def regauged(head: Head) -> Head:
    """The same head in a random basis of d_head: any invertible one, but on turned pairs a complex number."""
    d_head = head.W_Q.shape[0]
    query, key = torch.zeros(d_head, d_head, dtype=torch.float64), torch.zeros(d_head, d_head, dtype=torch.float64)
    turned: list[int] = []
    for a, b in pairs_of(head):
        z = complex(*torch.randn(2).tolist())
        # q -> z q and k -> k / conj(z) leave conj(q) k, and with it every turned product, unchanged.
        for matrix, w in ((query, z), (key, 1 / z.conjugate())):
            matrix[[a, a, b, b], [a, b, a, b]] = torch.tensor([w.real, -w.imag, w.imag, w.real], dtype=torch.float64)
        turned += [a, b]
    rest = [d for d in range(d_head) if d not in turned]
    if rest:
        change = invertible(len(rest))
        for i, row in enumerate(rest):
            query[row, rest], key[row, rest] = torch.linalg.inv(change).T[i], change[i]
    V = invertible(d_head)
    changed = {
        "W_Q": query @ head.W_Q,
        "W_K": key @ head.W_K,
        "W_V": V @ head.W_V,
        "W_O": head.W_O @ torch.linalg.inv(V),
    }
    for name, basis in (("b_Q", query), ("b_K", key), ("b_V", V)):
        if (bias := getattr(head, name)) is not None:
            changed[name] = basis @ bias
    return replace(head, **changed)


def test_circuits_are_the_products():
    head = random_weights().head("L1H2")
    torch.testing.assert_close(head.qk().dense(), head.W_Q.T @ head.W_K)
    torch.testing.assert_close(head.qk(5).dense(), head.qk().dense())
    torch.testing.assert_close(head.ov.dense(), head.W_O @ head.W_V)
    assert head.b_V is not None and head.b_Q is not None and head.b_K is not None
    torch.testing.assert_close(head.ov_bias, head.W_O @ head.b_V)
    augmented = head.qk(biases=True).dense()
    torch.testing.assert_close(augmented[-1, -1], head.b_Q @ head.b_K)
    torch.testing.assert_close(augmented[-1, :-1], head.W_K.T @ head.b_Q)
    torch.testing.assert_close(augmented[:-1, -1], head.W_Q.T @ head.b_K)
    assert bool((random_weights(biases="none").head("L0H0").ov_bias == 0).all())


@pytest.mark.parametrize("features", ROTARY, ids=str)
def test_with_rotary_the_qk_circuit_depends_on_the_offset(features: dict[str, Any]):
    """(R_i q) . (R_j k) for any i, j with i - j = D."""
    weights = random_weights(**features)
    head = weights.head("L0H1")
    for i, j in ((4, 1), (9, 6), (2, 2)):
        turn_q, turn_k = rotation(i, weights.config), rotation(j, weights.config)
        wanted = (turn_q @ head.W_Q).T @ (turn_k @ head.W_K)
        torch.testing.assert_close(head.qk(i - j).dense(), wanted)
    assert float((head.qk(3).dense() - head.qk(0).dense()).abs().max()) > 0.01


@pytest.mark.parametrize("offset", [-1, True])
def test_an_offset_is_a_whole_number_from_0(offset: int):
    with pytest.raises(UsageError, match="destination minus source"):
        random_weights().head("L0H0").qk(offset)


@GAUGES
def test_the_same_head_in_another_basis(features: dict[str, Any]):
    head = random_weights(**features).head("L1H1")
    other = regauged(head)
    assert float((other.W_Q - head.W_Q).abs().max()) > 0.1
    for offset in (0, 1, 7):
        torch.testing.assert_close(other.qk(offset, biases=True).dense(), head.qk(offset, biases=True).dense())
    assert same_head(head, other) and same_head(other, head)


@GAUGES
def test_another_head_is_not_the_same(features: dict[str, Any]):
    head = random_weights(**features).head("L1H1")
    names = ["W_Q", "W_K", "W_V", "W_O", *(n for n in ("b_Q", "b_K", "b_V") if getattr(head, n) is not None)]
    for name in names:
        tensor = getattr(head, name)
        nudged = replace(head, **{name: tensor + 1e-3 * torch.randn_like(tensor)})
        assert not same_head(head, nudged), name
    assert not same_head(head, replace(head, attn_scale=head.attn_scale * 1.01))


def test_only_the_product_of_scale_and_qk_counts():
    head = random_weights().head("L0H0")
    assert head.b_Q is not None
    assert same_head(head, replace(head, attn_scale=1.4, W_Q=head.W_Q / 2, b_Q=head.b_Q / 2))


def test_a_gauge_that_rotary_does_not_allow_changes_the_head():
    head = random_weights(**ROTARY[2]).head("L0H0")
    G = invertible(6)
    mixed = replace(head, W_Q=torch.linalg.inv(G).T @ head.W_Q, W_K=G @ head.W_K)
    torch.testing.assert_close(mixed.qk(0).dense(), head.qk(0).dense())
    assert not same_head(head, mixed), "equal at offset 0 alone"


def test_rotary_against_none_and_against_another_base():
    head = random_weights(**ROTARY[2]).head("L0H0")
    assert head.turns is not None
    assert not same_head(head, replace(head, turns=None))
    assert not same_head(head, replace(head, turns=replace(head.turns, position_base=51.0)))
    silent = replace(head, W_Q=0 * head.W_Q, b_Q=None)
    assert same_head(silent, replace(silent, turns=None)), "no scores, so no rotation to see"


def test_a_narrower_head_can_be_the_same():
    head = random_weights(biases="none").head("L0H0")
    two = torch.zeros(2, 10, dtype=torch.float64)
    wide = Head(
        W_Q=torch.cat((head.W_Q, two)),
        W_K=torch.cat((head.W_K, two)),
        W_V=torch.cat((head.W_V, two)),
        W_O=torch.cat((head.W_O, two.T), 1),
        attn_scale=head.attn_scale,
    )
    assert same_head(head, wide)


@GAUGES
def test_the_canonical_form_is_the_same_head_and_fixed(features: dict[str, Any]):
    head = random_weights(**features).head("L1H1")
    one = head.canonical()
    assert same_head(head, one, rtol=1e-10)
    for other in (one.canonical(), regauged(head).canonical()):
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
            a, b = getattr(one, name), getattr(other, name)
            assert (a is None) == (b is None) == (getattr(head, name) is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("features", [PLAIN, ROTARY[0]], ids=str)
def test_a_head_of_zeros_has_a_canonical_form(features: dict[str, Any]):
    head = random_weights(**features).head("L0H0")
    zero = replace(head, **{n: 0 * getattr(head, n) for n in ("W_Q", "W_V", "b_Q", "b_V")})
    one = zero.canonical()
    assert same_head(zero, one) and bool(one.W_O.isfinite().all())
    assert float(one.W_Q.abs().max()) == 0 and float(one.W_O.abs().max()) == 0
    assert not same_head(zero, head)


def test_from_circuits():
    source = random_weights(biases="none").head("L0H3")
    W_QK, W_OV = source.qk().dense(), source.ov.dense()
    head = Head.from_circuits(W_QK, W_OV, d_head=7, attn_scale=0.7)
    assert head.W_Q.shape == (7, 10) and same_head(head, source)
    with pytest.raises(ShapeProblem, match=r"rank of W_QK; expected at most d_head=4, got 5"):
        Head.from_circuits(W_QK, W_OV, d_head=4)
    with pytest.raises(ShapeProblem, match="rank of W_OV"):
        Head.from_circuits(0 * W_QK, W_OV, d_head=4)
    assert Head.from_circuits(torch.zeros(3, 3), torch.zeros(3, 3), d_head=5).W_V.shape == (5, 3)


@pytest.mark.parametrize("name", ["W_K", "W_V", "W_O", "b_Q", "b_V"])
def test_matrices_that_do_not_fit_together_are_refused(name: str):
    head = random_weights().head("L0H0")
    with as_users_run_it(), pytest.raises(ShapeProblem, match=rf"{name}; expected \(d_"):
        replace(head, **{name: getattr(head, name)[:-1]})


def test_a_transposed_matrix_gets_a_hint():
    head = random_weights().head("L0H0")
    with as_users_run_it(), pytest.raises(ShapeProblem, match="stored transposed"):
        replace(head, W_O=head.W_O.T)


def test_heads_of_different_streams_cannot_be_compared():
    with pytest.raises(ShapeProblem, match="different streams"):
        same_head(random_weights().head("L0H0"), random_weights(d_model=12).head("L0H0"))


@pytest.mark.parametrize("features", ALL, ids=str)
@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float64, 1e150), (torch.float64, 1e-150), (torch.float32, 1e30), (torch.float32, 1e-30)]
)
def test_heads_whose_circuits_are_out_of_range(features: dict[str, Any], dtype: torch.dtype, scale: float):
    """Products of these matrices are beyond the largest or below the smallest number; equal is still not different."""
    weights = random_weights(**features).to(dtype)
    parts: dict[str, Any] = {
        n: t * scale for n, t in weights.tensors().items() if n.startswith(("W_Q", "W_K", "W_V", "W_O", "b_"))
    }
    head, other = (weights.replace(**parts).head(name) for name in ("L1H1", "L1H2"))
    rtol = 1e-9 if dtype == torch.float64 else 1e-4
    assert same_head(head, head, rtol=rtol)
    assert same_head(head.canonical(), head, rtol=rtol)
    assert not same_head(head, other, rtol=0.01)
    assert not same_head(head, weights.head("L1H1"), rtol=0.01)


def test_a_zero_circuit_is_only_the_same_as_a_zero_circuit():
    head = random_weights().head("L0H0")
    huge, tiny = (replace(head, W_O=torch.zeros_like(head.W_O), W_V=head.W_V * s) for s in (1e200, 1.0))
    assert same_head(huge, tiny)
    assert not same_head(huge, replace(head, W_O=head.W_O * 1e-200)) and not same_head(
        replace(head, W_V=head.W_V), huge
    )
