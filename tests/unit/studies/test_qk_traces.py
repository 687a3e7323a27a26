"""Olsson's trace of QK eigenvalues against dense matrices weighted by measured attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.behaviour.patterns import pattern_scores
from headway.errors import ShapeProblem, UsageError
from headway.model.forward import run
from headway.model.process import processed
from headway.sources.handmade import copying_model, induction_model
from headway.studies.qk_traces import qk_eigenvalue_traces
from support.random_models import FEATURES, feature_name, random_tokens, random_weights
from support.unchecked import as_users_run_it


@pytest.mark.parametrize("features", FEATURES, ids=feature_name)
def test_it_is_the_dense_sum_weighted_by_attention_to_the_token_before(features: dict[str, Any]):
    weights = random_weights(**features)
    recording = run(weights, random_tokens(weights))
    s = {row["head"]: row["previous_token"] for row in pattern_scores([recording]).rows()}
    seen = processed(weights, "folded")
    rows = qk_eigenvalue_traces(weights, [recording], offset=2).rows()
    c = weights.config
    assert len(rows) == c.n_heads * max(c.n_layers - 1, 0)
    for row in rows:
        writers = [head for head in seen.head_ids() if head.layer < int(row["head"][1])]
        W_QK = seen.head(row["head"]).qk(2).dense()
        parts = {str(e): s[str(e)] * seen.W_E.T @ W_QK @ seen.head(e).ov.dense() @ seen.W_E for e in writers}
        total = torch.stack(list(parts.values())).sum(0)
        assert row["qk_trace"] == pytest.approx(float(total.trace()) * c.attn_scale, abs=1e-9)
        for name, matrix in (("", total), ("_centred", total - total.mean(1, keepdim=True))):
            found = torch.linalg.eigvals(matrix)
            assert row[f"qk_positivity{name}"] == pytest.approx(float(found.sum().real / found.abs().sum()), abs=1e-9)
        best = max(parts, key=lambda e: float(parts[e].trace()))
        assert row["strongest_writer"] == best and row["flag"] is None
        assert row["strongest_trace"] == pytest.approx(float(parts[best].trace()) * c.attn_scale, abs=1e-9)


def test_a_hand_made_induction_head_has_only_positive_eigenvalues_and_none_without_its_writer():
    weights = induction_model(d_vocab=9, n_ctx=16).weights
    recording = run(weights, torch.tensor([[0, 3, 5, 3, 1, 2]]))
    (row,) = qk_eigenvalue_traces(weights, [recording]).rows()
    assert row["qk_positivity"] == pytest.approx(1) and row["qk_trace"] > 0
    (gone,) = qk_eigenvalue_traces(weights.replace(W_O=weights.W_O * 0), [recording]).rows()
    assert gone["qk_trace"] == 0 and gone["qk_positivity"] is None
    assert gone["flag"] == "the term takes no token to any token"


def test_a_text_without_a_second_token_and_models_without_a_second_layer():
    weights = random_weights()
    rows = qk_eigenvalue_traces(weights, [run(weights, torch.tensor([[0]]))]).rows()
    assert all(row["qk_trace"] is None and "token before" in row["flag"] for row in rows)
    one = copying_model(d_vocab=5).weights
    table = qk_eigenvalue_traces(one, [run(one, torch.tensor([[1, 2]]))])
    assert len(table) == 0 and table.meta["empty"] == "no head has an earlier head"


def test_recordings_of_another_model_are_refused():
    weights, other = random_weights(), random_weights(n_layers=3)
    with pytest.raises(ShapeProblem, match="8 heads, as the weights, got 12 heads"):
        qk_eigenvalue_traces(weights, [run(other, random_tokens(other))])
    with as_users_run_it(), pytest.raises(UsageError, match="in a list"):
        qk_eigenvalue_traces(weights, run(weights, random_tokens(weights)))  # type: ignore[arg-type]
