"""Every score against loops over queries and sources that follow the words of its definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.behaviour.observed import Observed
from headway.behaviour.patterns import COLUMNS, pattern_scores
from headway.errors import ShapeProblem, TextProblem
from headway.model.forward import run
from support.random_models import FEATURES, feature_name, padding, random_tokens, random_weights

NAMES = ("previous_token", "duplicate_token", "prefix_matching_text", "bos", "self_attention", "entropy")


def of_query(A: list[float], tokens: list[int], i: int, first: int, bos: int | None) -> dict[str, float | None]:
    """What one query contributes to each score; None where it does not count."""
    copies = [j for j in range(first, i) if tokens[j] == tokens[i]]
    after = [j + 1 for j in copies if tokens[j + 1] != bos]
    starts = [j for j in range(first, i + 1) if tokens[j] == bos]
    return {
        "previous_token": A[i - 1],
        "duplicate_token": sum(A[j] for j in copies) if copies else None,
        "prefix_matching_text": sum(A[j] for j in after) if after else None,
        "bos": sum(A[j] for j in starts) if starts else None,
        "self_attention": A[i],
        "entropy": -sum(a * math.log(a) for a in A if a > 0),
    }


def by_hand(batches: Sequence[Observed], layer: int, head: int) -> dict[str, tuple[float, float] | int]:
    """Pooled mean over queries and ratio-estimator error over texts, for one head."""
    texts: list[dict[str, list[float]]] = []
    for seen in batches:
        for r, row in enumerate(seen.tokens.tolist()):
            real = seen.real[r].nonzero().flatten().tolist()
            text: dict[str, list[float]] = {}
            for i in real[1:]:
                if row[i] == seen.bos:
                    continue
                A = seen.patterns[layer][r, head, i].tolist()
                found: dict[str, float | None] = dict(of_query(A, row, i, real[0], seen.bos))
                found |= {f"offset {D}": A[i - D] if i >= D else 0.0 for D in range(40)}
                for name, value in found.items():
                    text.setdefault(name, []).extend([] if value is None else [value])
            texts.append(text)
    out: dict[str, tuple[float, float] | int] = {}
    names = [*NAMES, *(f"offset {D}" for D in range(40))]
    for name in names:
        sums = np.array([sum(t.get(name, [])) for t in texts])
        counts = np.array([len(t.get(name, [])) for t in texts])
        if counts.sum():
            mean, n = sums.sum() / counts.sum(), len(texts)
            spread = ((sums - mean * counts) ** 2).sum() * n / max(n - 1, 1)
            out[name] = mean, math.sqrt(spread) / counts.sum() if n > 1 else math.nan
    best = max(range(40), key=lambda D: out[f"offset {D}"][0])  # type: ignore[index]
    return out | {"best_offset": best}


def check(batches: Sequence[Observed]) -> None:
    rows = pattern_scores(batches).rows()
    assert [row["head"] for row in rows] == [str(head) for head in batches[0].head_ids]
    for head, row in zip(batches[0].head_ids, rows, strict=True):
        expected = by_hand(batches, head.layer, head.head)
        for name in NAMES:
            if name not in expected:
                assert row[name] is None and row["flag"]
                continue
            mean, se = expected[name]  # type: ignore[misc]
            assert row[name] == pytest.approx(mean, abs=1e-9)
            assert row[f"{name}_se"] == pytest.approx(se, abs=1e-9)
        assert row["best_offset"] == expected["best_offset"]
        mean, se = expected[f"offset {row['best_offset']}"]  # type: ignore[misc]
        assert row["best_offset_attention"] == pytest.approx(mean, abs=1e-9)
        assert row["best_offset_attention_se"] == pytest.approx(se, abs=1e-9)
        assert row["n"] == sum(len(seen.tokens) for seen in batches)


@pytest.mark.parametrize("side", ["none", "left", "right", "both"])
@pytest.mark.parametrize("features", FEATURES[:10:3], ids=feature_name)
def test_scores_by_their_definitions(features: dict[str, Any], side: str):
    weights = random_weights(**features, d_vocab=5)
    tokens = random_tokens(weights, rows=3, n=9)
    check([Observed.of(run(weights, tokens, keep=None if side == "none" else padding(3, 9, side)))])


def test_batches_of_different_lengths_pool():
    weights = random_weights(d_vocab=4)
    lengths = ((2, 5), (1, 9), (3, 2))
    check([Observed.of(run(weights, random_tokens(weights, rows, n, seed=n))) for rows, n in lengths])


def test_a_stream_of_recordings_is_read_once_in_order():
    weights = random_weights(d_vocab=4)
    tokens = random_tokens(weights, rows=4, n=8)
    stream = (run(weights, tokens[i : i + 1]) for i in range(4))
    whole, parts = pattern_scores([run(weights, tokens)]), pattern_scores(stream)
    for a, b in zip(whole.rows(), parts.rows(), strict=True):
        assert a == pytest.approx(b, abs=1e-9)
    assert whole.meta == parts.meta
    assert whole.provenance.weights == weights.content_hash()


def test_arrays_of_another_tool_give_the_same():
    weights = random_weights(d_vocab=4)
    recording = run(weights, random_tokens(weights, rows=2, n=7))
    arrays = Observed.from_arrays([p.numpy() for p in recording.patterns], recording.tokens.numpy(), bos=0)
    assert pattern_scores([arrays]).rows() == pattern_scores([recording]).rows()
    assert pattern_scores([arrays]).provenance.weights == ""


def one_hot(sources: list[int]) -> Tensor:
    """A pattern in which position i attends to sources[i] alone."""
    return torch.nn.functional.one_hot(torch.tensor(sources), len(sources)).double()[None, None]


@pytest.mark.parametrize(
    ("sources", "score"),
    [
        ([0, 0, 1, 2, 3, 4, 5], "previous_token"),
        ([0, 1, 2, 3, 4, 5, 6], "self_attention"),
        ([0, 0, 0, 0, 0, 0, 0], "bos"),
        ([0, 1, 2, 3, 1, 2, 3], "duplicate_token"),
        ([0, 1, 2, 3, 2, 3, 4], "prefix_matching_text"),
    ],
)
def test_ideal_heads_score_one_in_their_own_column(sources: list[int], score: str):
    """BOS a b c a b c: each head does one thing, and the columns do not mix up what they do."""
    row = pattern_scores([Observed.from_arrays([one_hot(sources)], [[9, 1, 2, 3, 1, 2, 3]], bos=9)]).rows()[0]
    assert row[score] == 1.0
    assert row["entropy"] == 0.0
    others = {"previous_token", "self_attention", "bos"} - {score}
    assert all(row[other] < 0.67 for other in others)
    if score == "duplicate_token":
        assert (row["best_offset"], row["best_offset_attention"]) == (0, 0.5)  # offsets 0 and 3 tie: the lower counts


def test_the_meaning_of_repeats_of_the_same_token_in_a_row():
    """a a: the copy is the previous token, and the token after it is the query itself."""
    row = pattern_scores([Observed.from_arrays([one_hot([0, 1, 2])], [[9, 4, 4]], bos=9)]).rows()[0]
    assert (row["duplicate_token"], row["prefix_matching_text"]) == (0.0, 1.0)


def test_a_bos_inside_a_text_is_no_query_and_no_successor():
    table = pattern_scores([Observed.from_arrays([one_hot([0, 1, 2, 2])], [[9, 4, 9, 4]], bos=9)])
    row = table.rows()[0]
    assert row["prefix_matching_text"] is None and row["bos"] == 0.5
    assert table.meta == {"queries": 2, "repeats": 1, "texts": 1}


def test_scores_that_nothing_qualifies_for_are_flagged_nulls():
    row = pattern_scores([Observed.from_arrays([one_hot([0, 1, 2])], [[1, 2, 3]])]).rows()[0]
    assert [row[name] for name in ("duplicate_token", "prefix_matching_text", "bos")] == [None] * 3
    for reason in ("earlier copy of its token", "token after it", "no query has a BOS", "one text"):
        assert reason in row["flag"]
    alone = pattern_scores([Observed.from_arrays([one_hot([0])], [[1]])]).rows()[0]
    assert alone["previous_token"] is None and alone["best_offset"] is None
    assert "no text has a second token" in alone["flag"]


def test_no_flag_where_nothing_is_missing():
    weights = random_weights(d_vocab=3)
    rows = pattern_scores([run(weights, random_tokens(weights, rows=4, n=9))]).rows()
    assert {row["flag"] for row in rows} == {None}


def test_a_model_without_heads_gives_an_empty_table():
    weights = random_weights(n_layers=0, n_heads=0, n_kv_heads=0)
    table = pattern_scores([run(weights, random_tokens(weights))])
    assert len(table) == 0 and list(table.columns) == list(COLUMNS)


def test_no_recordings_and_mixed_models_are_refused():
    with pytest.raises(TextProblem, match="at least one batch"):
        pattern_scores([])
    one, other = random_weights(), random_weights(bos=None)
    tokens = random_tokens(one)
    with pytest.raises(ShapeProblem, match=r"different models.*bos=0.*bos=None"):
        pattern_scores([run(one, tokens), run(other, tokens)])
