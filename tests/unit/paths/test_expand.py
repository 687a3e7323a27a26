"""The expansion against the forward pass with its own edits, dense products written out, and itself in another order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.errors import TooLarge, UnknownName, UsageError
from headway.ids import PathId
from headway.model.forward import run
from headway.model.recording import Recording
from headway.paths.expand import PathTerm, enumerate_paths, order_logits, path_count
from support.random_models import FEATURES, feature_name, padding, random_tokens, random_weights

SIDES = ("none", "left", "right", "both")
NO_NORM: dict[str, Any] = {"positions": "shortformer", "biases": "none"}


def recorded(side: str = "none", **features: Any) -> Recording:
    weights = random_weights(**features)
    tokens = random_tokens(weights, rows=3, n=7)
    return run(weights, tokens, keep=None if side == "none" else padding(3, 7, side))


def off(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def total(terms: Iterable[PathTerm]) -> Tensor:
    return torch.stack([term.logits for term in terms]).sum(0)


def all_zero(recording: Recording, *, but: frozenset[str] = frozenset()) -> dict[str, Tensor]:
    zero = torch.zeros_like(recording.streams[0])
    return {f"{head}.result": zero for head in recording.weights.head_ids() if str(head) not in but}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_every_order_is_the_sum_of_its_paths(features: dict[str, Any], side: str):
    recording = recorded(side, **features)
    terms = list(enumerate_paths(recording))
    orders = list(order_logits(recording))
    assert len(orders) == recording.weights.config.n_layers + 1
    for order, logits in enumerate(orders):
        assert off(logits, total(t for t in terms if t.path.order <= order)) < 1e-9
    assert off(orders[-1], recording.logits) < 1e-9


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_orders_follow_the_papers_recipe_through_the_forward_pass(features: dict[str, Any], side: str):
    """Run with results replaced by zeros, then by what the heads made of the streams of the run before."""
    recording = recorded(side, **features)
    weights = recording.weights
    frozen = recording.frozen(norms=weights.config.norm != "none")
    again = run(weights, recording.tokens, keep=recording.keep, freeze=frozen, edit=all_zero(recording))
    for logits in order_logits(recording):
        assert off(logits, again.logits) < 1e-9
        edit = {f"{head}.V": again.streams[head.layer] for head in weights.head_ids()}
        again = run(weights, recording.tokens, keep=recording.keep, freeze=frozen, edit=edit)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_a_subset_of_heads_is_the_frozen_pass_with_the_others_zeroed(features: dict[str, Any], side: str):
    recording = recorded(side, **features)
    weights = recording.weights
    every = [str(head) for head in weights.head_ids()]
    drawn = torch.Generator().manual_seed(len(every))
    for _ in range(3):
        kept = frozenset(head for head in every if torch.rand((), generator=drawn) < 0.5)
        frozen = recording.frozen(norms=weights.config.norm != "none")
        edit = all_zero(recording, but=kept)
        zeroed = run(weights, recording.tokens, keep=recording.keep, freeze=frozen, edit=edit)
        assert off(list(order_logits(recording, heads=kept))[-1], zeroed.logits) < 1e-9


def test_a_subset_of_heads_is_the_sum_of_the_paths_through_them():
    recording = recorded("left", norm="layer", positions="rotary", n_layers=3, n_heads=2)
    kept = {"L0H1", "L1H0", "L2H0", "L2H1"}
    terms = [t for t in enumerate_paths(recording) if kept.issuperset(map(str, t.path.heads))]
    for order, logits in enumerate(order_logits(recording, heads=kept)):
        assert off(logits, total(t for t in terms if t.path.order <= order)) < 1e-9


def test_terms_are_the_papers_dense_products():
    """(A^2 A^1) (x) (W_U W_OV^2 W_OV^1 W_E) and its shorter forms, from matrices multiplied out."""
    recording = recorded(**NO_NORM)
    w, c = recording.weights, recording.weights.config
    one_hot = torch.nn.functional.one_hot(recording.tokens, c.d_vocab).double()

    def ov(layer: int, head: int) -> Tensor:
        return w.W_O[layer, head] @ w.W_V[layer, head // 2]

    terms = {str(t.path): t.logits for t in enumerate_paths(recording)}
    assert len(terms) == path_count(2, 4, 2) == 1 + 8 + 16
    assert off(terms["direct"], one_hot @ (w.W_U @ w.W_E).T) < 1e-9
    for head in range(4):
        A1 = recording.patterns[1][:, head]
        assert off(terms[f"L1H{head}"], A1 @ one_hot @ (w.W_U @ ov(1, head) @ w.W_E).T) < 1e-9
        for first in range(4):
            virtual = A1 @ recording.patterns[0][:, first]
            token_map = w.W_U @ ov(1, head) @ ov(0, first) @ w.W_E
            assert off(terms[f"L0H{first}-L1H{head}"], virtual @ one_hot @ token_map.T) < 1e-9


def test_a_virtual_pattern_under_layer_norm_is_a_product_of_patterns_and_scales():
    """A^2 D^2 A^1 D^1 with D = 1/sigma, gains and centring in the weights: design's rule, multiplied out."""
    recording = recorded("both", norm="layer", biases="none", affine=("norm_gain", "final_gain"))
    w, c = recording.weights, recording.weights.config
    assert recording.norm_scales is not None and w.norm_gain is not None and w.final_gain is not None
    centre = torch.eye(c.d_model, dtype=torch.float64) - 1 / c.d_model
    read = [torch.diag(w.norm_gain[0]) @ centre, torch.diag(w.norm_gain[1]) @ centre, torch.diag(w.final_gain) @ centre]
    D = [torch.diag_embed(s) for s in recording.norm_scales]
    pattern = D[2] @ recording.patterns[1][:, 3] @ D[1] @ recording.patterns[0][:, 1] @ D[0]
    ov = [w.W_O[0, 1] @ w.W_V[0, 0] @ read[0], w.W_O[1, 3] @ w.W_V[1, 1] @ read[1]]
    expected = pattern @ w.W_E.T[recording.tokens] @ (w.W_U @ read[2] @ ov[1] @ ov[0]).T
    (term,) = (t for t in enumerate_paths(recording) if str(t.path) == "L0H1-L1H3")
    assert off(term.logits, expected) < 1e-9


def test_order_zero_is_token_position_every_output_bias_and_the_final_constants():
    recording = recorded(positions="learned")
    w = recording.weights
    assert w.W_pos is not None and w.b_O is not None and w.b_U is not None
    stream = w.W_E.T[recording.tokens] + w.W_pos.T[:7] + w.b_O.sum(0)
    assert off(next(iter(order_logits(recording))), stream @ w.W_U.T + w.b_U) < 1e-9


def test_biases_start_where_they_live():
    recording = recorded("left", norm="rms", positions="learned")
    w = recording.weights
    starts: dict[str, list[PathId]] = {}
    for term in enumerate_paths(recording):
        starts.setdefault(term.source, []).append(term.path)
    values = {f"{head}.{kind}" for head in w.head_ids() for kind in ("b_V", "beta")}
    assert set(starts) == {"token", "position", "L0.b_O", "L1.b_O", "final.beta", "b_U"} | values
    assert sorted(map(str, starts["L1.b_O"])) == ["direct"]  # nothing reads after the last layer
    assert sorted(map(str, starts["L0.b_O"])) == ["L1H0", "L1H1", "L1H2", "L1H3", "direct"]
    assert sorted(map(str, starts["L0H2.b_V"])) == ["L0H2", *(f"L0H2-L1H{h}" for h in range(4))]
    assert starts["b_U"] == starts["final.beta"] == [PathId()]


def test_value_biases_scale_with_the_row_sum_of_the_pattern():
    """0 at a padded position, 1 elsewhere, and whatever an edited pattern sums to."""
    weights = random_weights(biases=("b_V",))
    tokens, keep = random_tokens(weights, rows=3, n=7), padding(3, 7, "left")
    half = run(weights, tokens, keep=keep, edit={"L1H2.pattern": lambda p: p / 2})
    (term,) = (t for t in enumerate_paths(half) if t.source == "L1H2.b_V")
    head = weights.head("L1H2")
    once = weights.W_U @ head.ov_bias
    assert off(term.logits, 0.5 * keep[..., None] * once) < 1e-12
    assert float(once.abs().max()) > 0.1
    assert off(total(enumerate_paths(half)), half.logits) < 1e-9


def test_lower_orders_alone_are_the_first_of_all():
    recording = recorded(norm="layer", n_layers=3, n_heads=2)
    for highest in range(4):
        some, every = list(order_logits(recording, max_order=highest)), list(order_logits(recording))
        assert len(some) == highest + 1
        assert all(torch.equal(a, b) for a, b in zip(some, every, strict=False))
        assert {t.path.order for t in enumerate_paths(recording, max_order=highest)} == set(range(highest + 1))


def test_zero_heads_give_zero_terms():
    weights = random_weights(**NO_NORM)
    weights = weights.replace(W_O=weights.W_O.clone().index_fill_(0, torch.tensor(0), 0.0))
    recording = run(weights, random_tokens(weights))
    for term in enumerate_paths(recording):
        through_layer_0 = any(head.layer == 0 for head in term.path.heads)
        assert bool((term.logits == 0).all()) is through_layer_0


def test_nothing_is_kept_for_gradients():
    weights = random_weights()
    weights = weights.replace(W_E=weights.W_E.clone().requires_grad_())
    recording = run(weights, random_tokens(weights))
    assert not any(logits.requires_grad for logits in order_logits(recording))
    assert not any(term.logits.requires_grad for term in enumerate_paths(recording))


@pytest.mark.parametrize("order", [-1, 3, True])
@pytest.mark.parametrize("expand", [enumerate_paths, order_logits])
def test_an_order_that_no_path_has_is_refused(expand: Any, order: Any):
    recording = recorded(**NO_NORM)
    with pytest.raises(UsageError, match=r"0 .. n_layers=2"):
        list(expand(recording, max_order=order))


def test_a_head_that_does_not_exist_is_refused():
    with pytest.raises(UnknownName, match="L2H0"):
        list(order_logits(recorded(**NO_NORM), heads=["L2H0"]))


def test_too_many_paths_are_refused_and_lower_orders_are_not():
    recording = recorded(n_layers=6, n_heads=8, n_kv_heads=8, d_model=3, d_head=1, biases="none")
    with pytest.raises(TooLarge, match="order_logits"):
        list(enumerate_paths(recording))
    assert len(list(enumerate_paths(recording, max_order=1))) == 1 + 6 * 8


def test_path_count_by_listing():
    for n_layers, n_heads in ((0, 0), (1, 3), (3, 2), (4, 1)):
        recording = recorded(n_layers=n_layers, n_heads=n_heads, n_kv_heads=min(n_heads, 1), biases="none")
        for highest in range(n_layers + 1):
            paths = {t.path for t in enumerate_paths(recording, max_order=highest)}
            assert len(paths) == path_count(n_layers, n_heads, highest)
