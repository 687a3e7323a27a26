"""The hand-made induction model gives every quantity of the study a known answer; each is derived where it is tested."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from headway.behaviour.repeated import induction_gain, prefix_matching_scores, repeated_tokens
from headway.circuits import composition_scores, copying_scores
from headway.errors import UsageError
from headway.model.forward import logits, run
from headway.paths.expand import order_logits
from headway.paths.importance import term_importance
from headway.sources.handmade.built import Built
from headway.sources.handmade.induction import induction_model, rotary_induction_model

LEAK = 1e-3
MODEL = induction_model(leak=LEAK)
ROTARY = rotary_induction_model(leak=LEAK)
V = MODEL.weights.config.d_vocab


def losses(built: Built, tokens: torch.Tensor) -> torch.Tensor:
    log_p = logits(built.weights, tokens[:, :-1]).log_softmax(-1)
    return -log_p.gather(-1, tokens[:, 1:, None]).squeeze(-1)


def random_text(rows: int = 3, n: int = 90) -> torch.Tensor:
    tokens = torch.randint(1, V, (rows, n), generator=torch.Generator().manual_seed(4))
    tokens[:, 0] = 0
    return tokens


def test_the_previous_token_head():
    found = run(MODEL.weights, random_text())
    assert float(found.patterns[0][:, 0].diagonal(-1, dim1=-2, dim2=-1).min()) >= 1 - LEAK


def test_the_induction_head_attends_to_successors_of_copies_else_to_bos():
    tokens = random_text()
    pattern = run(MODEL.weights, tokens).pattern("L1H0")
    matched = 0
    for row in range(len(tokens)):
        text = tokens[row].tolist()
        for i in range(1, len(text)):
            after = [j for j in range(1, i + 1) if text[j - 1] == text[i]]
            matched += bool(after)
            assert float(pattern[row, i, after or [0]].sum()) >= 1 - LEAK
            for j in after:
                assert math.isclose(float(pattern[row, i, j]), 1 / len(after), abs_tol=0.05), "all copies alike"
    assert 20 < matched < 3 * 89


@pytest.mark.parametrize("model", [MODEL, ROTARY], ids=["learned", "rotary"])
@pytest.mark.parametrize(("length", "copies"), [(25, 4), (50, 2)])
def test_prefix_matching_with_bos_reaches_one(length: int, copies: int, model: Built):
    rows = prefix_matching_scores(model.weights, length=length, copies=copies, rows=3).rows()
    scores = {row["head"]: row["prefix_matching"] for row in rows}
    assert scores["L1H0"] >= 1 - LEAK
    assert scores["L0H0"] <= LEAK


@pytest.mark.parametrize("make", [induction_model, rotary_induction_model])
@pytest.mark.parametrize(("length", "ceiling"), [(25, 0.98), (50, 0.99)])
def test_prefix_matching_without_bos_has_its_ceiling(length: int, ceiling: float, make: Callable[..., Built]):
    """Position 0 stores itself, so the query equal to token 0 gives it half: (n - 1/2) / n (exercises.md C4)."""
    model = make(bos=False, leak=LEAK)
    rows = prefix_matching_scores(model.weights, length=length, copies=2, rows=3).rows()
    found = next(row["prefix_matching"] for row in rows if row["head"] == "L1H0")
    assert math.isclose(found, ceiling, abs_tol=0.005) and math.isclose(
        found, (length - 0.5) / length, abs_tol=2 * LEAK
    )


@pytest.mark.parametrize("length", [25, 50])
def test_the_ceiling_with_more_copies(length: int):
    """Query token 0 in copy m + 1 has m matches and position 0: m / (m + 1) of the attention, 1 elsewhere."""
    rows = prefix_matching_scores(
        induction_model(bos=False, leak=LEAK, n_ctx=200).weights, length=length, copies=4, rows=2
    )
    found = next(row["prefix_matching"] for row in rows.rows() if row["head"] == "L1H0")
    assert found == pytest.approx(1 - (1 / 2 + 1 / 3 + 1 / 4) / (3 * length), abs=2 * LEAK)


def test_rotary_positions_change_nothing_that_is_known():
    """The stream holds no positions; patterns and predictions keep the same leak, compositions the same values."""
    weights, tokens = ROTARY.weights, random_text()
    assert weights.W_pos is None and weights.config.positions == "rotary" and "position" not in ROTARY.space.sizes
    found, usual = run(weights, tokens), run(MODEL.weights, tokens)
    assert float(found.patterns[0][:, 0].diagonal(-1, dim1=-2, dim2=-1).min()) >= 1 - LEAK
    for a, b in zip(found.patterns, usual.patterns, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=3 * LEAK)
    for offset in (0, 1, 40):
        scores = {row["via"]: row["score"] for row in composition_scores(weights, offset=offset).rows()}
        assert math.isclose(scores["K"], 1 / math.sqrt(V - 1), rel_tol=1e-9)
        assert scores["Q"] < 1e-9 and scores["V"] < 1e-9
    assert float((weights.W_U @ weights.W_E).abs().max()) < 1e-12, "`one` is not read by W_U"


def test_what_it_predicts():
    tokens = repeated_tokens(MODEL.weights.config, length=40, copies=2, rows=3)
    loss = losses(MODEL, tokens)
    # Position i predicts token i + 1; from the second copy's first token (position 41) on, each has a match.
    assert float(loss[:, 41:].max()) <= -math.log(1 - LEAK)
    # In the first copy nothing matches: BOS has no content, so logits stay within U * leak of 0.
    assert float((loss[:, :40] - math.log(V)).abs().max()) <= 2 * MODEL.notes["logit_scale"] * LEAK


def test_the_induction_gain():
    """Repeated: at most -ln(1 - leak). Shuffled: the head is sure of one token, which is right about once in `length`."""
    row = induction_gain(MODEL.weights, length=50, rows=4).rows()[0]
    assert row["loss_repeated"] <= -math.log(1 - LEAK)
    assert row["induction_gain"] > math.log(V)
    assert math.isclose(row["induction_gain"], row["loss_shuffled"] - row["loss_repeated"], abs_tol=1e-9)


def test_k_composition_by_hand():
    """W_QK = S C P^T and W_OV = P C^T with orthonormal columns C (content), P (previous), c of each:
    ||W_QK W_OV|| = S ||C C^T|| = S sqrt(c), ||W_QK|| = S sqrt(c), ||W_OV|| = sqrt(c), so K = 1 / sqrt(c).
    Q: W_QK^T W_OV = S P C^T P C^T = 0. V: W_OV1 W_OV0 = out C^T P C^T = 0.
    """
    c = V - 1
    reader, writer = MODEL.weights.head("L1H0"), MODEL.weights.head("L0H0")
    S, C, P = MODEL.notes["sharpness L1H0"], MODEL.space.write("content"), MODEL.space.write("previous")
    torch.testing.assert_close(reader.qk().dense(), S * C @ P.T)
    torch.testing.assert_close(writer.ov.dense(), P @ C.T)
    scores = {row["via"]: row for row in composition_scores(MODEL.weights).rows()}
    assert math.isclose(scores["K"]["score"], 1 / math.sqrt(c), rel_tol=1e-9)
    assert (scores["K"]["reader"], scores["K"]["writer"]) == ("L1H0", "L0H0") and scores["K"]["z"] > 3
    for via in "QV":
        assert scores[via]["score"] < 1e-9
    assert math.isclose(scores["K"]["null_rms"], MODEL.weights.config.d_model**-0.5)


def test_copying_by_hand():
    """W_U W_OV W_E = U T^T T, U times the projection on all tokens but BOS: eigenvalues U (c times) and 0. Centred over
    the vocabulary: U (I - J/V) on those tokens, eigenvalues U (c - 1 times) and U/V: positive still.
    """
    weights, U = MODEL.weights, MODEL.notes["logit_scale"]
    head = weights.head("L1H0")
    circuit = weights.W_U @ head.ov.dense() @ weights.W_E
    wanted = U * torch.eye(V, dtype=torch.float64)
    wanted[0, 0] = 0
    torch.testing.assert_close(circuit, wanted, rtol=0, atol=1e-9)
    rows = {row["head"]: row for row in copying_scores(weights, draws=50).rows()}
    assert math.isclose(rows["L1H0"]["copying"], 1, abs_tol=1e-6)
    assert math.isclose(rows["L1H0"]["copying_centred"], 1, abs_tol=1e-6)
    silent = weights.W_U @ weights.head("L0H0").ov.dense() @ weights.W_E
    assert float(silent.abs().max()) < 1e-12, "the first head copies nothing to the logits"
    assert rows["L0H0"]["copying"] is None and "no token" in rows["L0H0"]["flag"], "0 / 0 is absent, not rounding"


def test_loss_by_path_order():
    """Order 0 is uniform, ln V; order 1 is all there is, since no head reads what the other wrote through V."""
    tokens = repeated_tokens(MODEL.weights.config, length=40, copies=2, rows=2)
    found = run(MODEL.weights, tokens[:, :-1])
    none, one, two = order_logits(found)
    assert float(none.abs().max()) < 1e-12
    torch.testing.assert_close(one, two, rtol=0, atol=1e-9)
    torch.testing.assert_close(two, found.logits, rtol=0, atol=1e-9)
    rows = {row["order"]: row for row in term_importance(MODEL.weights, tokens).rows()}
    assert math.isclose(rows[0]["loss"], math.log(V), abs_tol=1e-9)
    assert math.isclose(rows[0]["reduction"], 0, abs_tol=1e-9) and math.isclose(rows[2]["reduction"], 0, abs_tol=1e-9)
    assert math.isclose(rows[1]["loss"], float(losses(MODEL, tokens).mean()), abs_tol=1e-6)


def test_nothing_depends_on_the_basis():
    tokens = random_text(2, 40)
    first = run(MODEL.weights, tokens)
    for seed in (5, None):
        other = run(induction_model(leak=LEAK, seed=seed).weights, tokens)
        for a, b in zip(first.patterns, other.patterns, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
        torch.testing.assert_close(first.logits, other.logits, rtol=0, atol=1e-9)
    on_axes = induction_model(seed=None).weights
    assert bool((on_axes.W_U @ on_axes.head("L0H0").ov.dense() == 0).all()), "on the axes zeros are exact"


@pytest.mark.parametrize("leak", [0.2, 0.01])
def test_the_stated_leak_is_met(leak: float):
    """A bound, not tight: it counts every position as a rival at the gap, and only a few offsets are."""
    model = induction_model(leak=leak)
    pattern = run(model.weights, repeated_tokens(model.weights.config, length=60, copies=2, rows=1)).patterns[0][0, 0]
    assert 0 < 1 - float(pattern.diagonal(-1).min()) <= leak
    found = math.log(127 * (1 - leak) / leak) / model.notes["gap L0H0"]
    assert math.isclose(model.notes["sharpness L0H0"], found)


def test_float32_is_enough():
    low = induction_model(dtype=torch.float32)
    tokens = repeated_tokens(low.weights.config, length=30, copies=2, rows=2)
    assert float(losses(low, tokens)[:, 31:].max()) < 2 * LEAK


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"leak": 0.0}, "leak"),
        ({"leak": 0.5}, "leak"),
        ({"d_vocab": 2}, "two tokens besides BOS"),
        ({"d_vocab": 1, "bos": False}, "two tokens"),
        ({"n_ctx": 1}, "n_ctx"),
    ],
)
def test_impossible_models_are_refused(options: dict[str, float], word: str):
    with pytest.raises(UsageError, match=word):
        induction_model(**options)  # type: ignore[arg-type]
