"""Skip-trigrams are those of trying every triple, by the formula as it is written down (papers.md, skip-trigram effect)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from headway.circuits import trigram_search
from headway.circuits.ov import ov_circuit
from headway.circuits.qk import qk_circuit
from headway.circuits.trigram_bugs import skip_trigram_bugs
from headway.circuits.trigram_context import TrigramContext
from headway.circuits.trigram_counts import TripleCounter
from headway.circuits.trigrams import TrigramPick, skip_trigrams
from headway.errors import BadInput, ShapeProblem, TokenProblem, UnknownName, UsageError
from headway.model.forward import run
from headway.model.process import processed
from headway.model.weights import Weights
from headway.sources.handmade.skip_trigram import skip_trigram_model
from support.random_models import FEATURES, feature_name, random_weights
from support.unchecked import as_users_run_it

USABLE = [f for f in FEATURES if f.get("n_layers") != 0]
Triple = tuple[int, int, int]


def brute(weights: Weights, head: str, n: int, unigram: torch.Tensor, offset: int = 1) -> dict[Triple, float]:
    """Every effect, from dense circuits."""
    c = weights.config
    folded = processed(weights, "folded")
    s = qk_circuit(weights, head, offset=offset).dense()
    own, first = qk_circuit(weights, head, offset=0).dense(), qk_circuit(weights, head, offset=n - 1).dense()
    ov = ov_circuit(weights, head, centred=False).dense()
    ov = ov - ov.mean(0)
    p = unigram.double().clone()
    if c.bos is not None:
        p[c.bos] = 0
    p = p / p.sum()
    e = folded.W_E - folded.W_E.mean(0) if c.norm == "layer" else folded.W_E
    scale = torch.ones(c.d_vocab) if c.norm == "none" else (e.square().mean(0) + c.norm_eps).rsqrt()
    found: dict[Triple, float] = {}
    tokens = [t for t in range(c.d_vocab) if t != c.bos]
    for b in tokens:
        others = n - 2 - (c.bos is not None)
        rest = math.exp(own[b, b]) + others * float((p * s[b].exp()).sum())
        rest += math.exp(first[b, c.bos]) if c.bos is not None else 0.0
        for a, out in itertools.product(tokens, range(c.d_vocab)):
            alpha = math.exp(s[b, a]) / (math.exp(s[b, a]) + rest)
            found[a, b, out] = alpha * float(scale[b] * ov[out, a])
    return found


def _of(name: str) -> TrigramPick:
    return TrigramPick(source=4) if name == "source" else TrigramPick(destination=4)


def listed(table: Any) -> list[tuple[Triple, float]]:
    return [((r["source_id"], r["destination_id"], r["out_id"]), r["effect"]) for r in table.rows()]


@pytest.mark.parametrize("feature", USABLE, ids=feature_name)
@pytest.mark.parametrize("largest", [True, False])
def test_the_best_triples_are_those_of_trying_all(feature: dict[str, Any], largest: bool):
    weights = random_weights(**feature)
    unigram = torch.arange(1.0, weights.config.d_vocab + 1)
    head = f"L{weights.config.n_layers - 1}H0"
    every = brute(weights, head, 9, unigram, 2)
    sign = 1 if largest else -1
    expected = sorted(((t, e) for t, e in every.items() if sign * e > 0), key=lambda x: (-sign * x[1], x[0]))
    context = TrigramContext(n=9, unigram=unigram, offset=2)
    for k in (1, 7, 5000):
        found = listed(skip_trigrams(weights, head, k=k, pick=TrigramPick(largest), context=context))
        assert len(found) == min(k, len(expected))
        assert [e for _, e in found] == pytest.approx([e for _, e in expected[:k]], abs=1e-9)
        assert all(every[t] == pytest.approx(e, abs=1e-9) for t, e in found)
        assert len({t for t, _ in found}) == len(found)


def test_of_one_source_or_one_destination():
    weights = random_weights(norm="rms")
    every = brute(weights, "L1H2", 16, torch.ones(13))
    context = TrigramContext(n=16, unigram=torch.ones(13))
    for name, place in (("source", 0), ("destination", 1)):
        found = listed(skip_trigrams(weights, "L1H2", k=5, pick=_of(name), context=context))
        expected = sorted((e for t, e in every.items() if t[place] == 4), reverse=True)[:5]
        assert [e for _, e in found] == pytest.approx(expected, abs=1e-9) and {t[place] for t, _ in found} == {4}


@pytest.mark.parametrize("block", [1, 2, 64])
def test_however_many_sources_are_opened_at_a_time(block: int, monkeypatch: pytest.MonkeyPatch):
    weights = random_weights()
    whole = skip_trigrams(weights, k=40).rows()
    monkeypatch.setattr(trigram_search, "_SOURCES", block)
    again = skip_trigrams(weights, k=40).rows()
    assert [(r["head"], r["source_id"], r["out_id"]) for r in again] == [
        (r["head"], r["source_id"], r["out_id"]) for r in whole
    ]


def test_several_heads_together_are_the_best_of_each():
    weights = random_weights()
    together = skip_trigrams(weights, k=30).rows()
    apart = [r for h in weights.head_ids() for r in skip_trigrams(weights, h, k=30).rows()]
    assert [r["effect"] for r in together] == sorted((r["effect"] for r in apart), reverse=True)[:30]


def test_attention_is_that_of_the_model_in_such_a_context():
    """Without positions, with one source among equal tokens, alpha is the attention of the forward pass itself."""
    weights = random_weights(positions="none", n_layers=1, biases="all")
    p = torch.zeros(13)
    p[5] = 1
    (row,) = skip_trigrams(
        weights, "L0H1", k=1, pick=TrigramPick(source=3, destination=7), context=TrigramContext(n=6, unigram=p)
    ).rows()
    pattern = run(weights, torch.tensor([[0, 5, 3, 5, 5, 7]])).pattern("L0H1")
    assert row["attention"] == pytest.approx(float(pattern[0, -1, 2]), abs=1e-12)


def test_what_softmax_does_not_see_changes_nothing():
    """A constant on each QK row (b_K and W_Q b_K), a constant on all logits, a basis inside d_head."""
    weights = random_weights(n_layers=1, norm="none", positions="none", n_kv_heads=4)
    before = listed(skip_trigrams(weights, k=60))
    basis = torch.randn(1, 4, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert weights.b_K is not None
    moved = weights.replace(
        b_K=weights.b_K + 2.0,
        W_U=weights.W_U + torch.randn(10, dtype=torch.float64),
        W_V=basis @ weights.W_V,
        W_O=weights.W_O @ torch.linalg.inv(basis),
    )
    after = listed(skip_trigrams(moved, k=60))
    assert [t for t, _ in after] == [t for t, _ in before]
    assert [e for _, e in after] == pytest.approx([e for _, e in before], abs=1e-9)


def test_scores_beyond_the_range_of_exponentials():
    weights = random_weights(n_layers=1, positions="none", norm="none", attn_scale=1000.0)
    effects = [e for _, e in listed(skip_trigrams(weights, k=20))]
    assert all(map(math.isfinite, effects)) and effects == sorted(effects, reverse=True)


RULES = [(3, 7, 5), (3, 8, 6), (11, 7, 12)]


def test_planted_skip_trigrams_lead_and_are_gone_with_their_part():
    weights = skip_trigram_model(RULES, d_vocab=20).weights
    found = listed(skip_trigrams(weights, "L0H0", k=100))
    crossed = {(3, 7, 6), (3, 8, 5)}
    assert {t for t, _ in found[:5]} == {*RULES, *crossed}
    assert found[5][1] < 0.01 * found[4][1]
    zero = skip_trigrams(weights.replace(W_O=torch.zeros_like(weights.W_O)), "L0H0")
    assert len(zero) == 0 and "zero circuit" in zero.meta["empty"]


def text(*triples: Triple) -> torch.Tensor:
    return torch.tensor([t for a, b, c in triples for t in (0, a, 1, b, c)])


def test_the_bugs_of_planted_rules_are_found_with_their_parents():
    weights = skip_trigram_model(RULES, d_vocab=20).weights
    table = skip_trigram_bugs(weights, context=TrigramContext(text=text(*RULES)))
    found = {(r["source_id"], r["destination_id"], r["out_id"]): r for r in table.rows()}
    assert set(found) == {(3, 7, 6), (3, 8, 5)}
    row = found[3, 7, 6]
    assert (row["with_out_id"], row["with_destination_id"], row["count"], row["count_pair"]) == (5, 8, 0, 1)
    every = dict(listed(skip_trigrams(weights, k=200, context=TrigramContext(text=text(*RULES)))))
    assert row["effect"] == pytest.approx(every[3, 7, 6]) and row["with_out_effect"] == pytest.approx(every[3, 7, 5])


def test_no_bug_where_the_text_has_the_crossed_triple_or_lacks_a_parent_or_the_chance():
    weights = skip_trigram_model(RULES, d_vocab=20).weights
    for rules, bugs in (
        ([*RULES, (3, 7, 6)], {(3, 8, 5)}),
        ([(3, 7, 5), (11, 7, 12)], set()),
        ([(11, 7, 12)], set()),
    ):
        rows = skip_trigram_bugs(weights, context=TrigramContext(text=text(*rules))).rows()
        assert {(r["source_id"], r["destination_id"], r["out_id"]) for r in rows} == bugs
    assert (
        len(
            skip_trigram_bugs(
                skip_trigram_model(RULES[:1], d_vocab=20).weights, context=TrigramContext(text=text(*RULES))
            )
        )
        == 0
    )


def test_counts_are_those_of_reading_the_text():
    random = torch.Generator().manual_seed(2)
    ids = torch.randint(0, 6, (400,), generator=random)
    reach = 5
    triples = [(a, b, c) for a in range(1, 6) for b in range(1, 6) for c in range(6)]
    counts = TripleCounter(ids, reach=reach, bos=0).count(*zip(*triples, strict=True))
    row = ids.tolist()
    for place, (a, b, c) in enumerate(triples):
        triple = pair = bigram = single = 0
        for i in range(len(row) - 1):
            if row[i] != b:
                continue
            start = max([j for j in range(i + 1) if row[j] == 0], default=-1)
            seen = a in row[max(start + 1, i - reach, 0) : i]
            single, bigram = single + 1, bigram + (row[i + 1] == c)
            pair, triple = pair + seen, triple + (seen and row[i + 1] == c)
        assert (counts.triple[place], counts.pair[place]) == (triple, pair)
        assert (counts.bigram[place], counts.single[place]) == (bigram, single)


ODD: list[tuple[Any, dict[str, Any], str]] = [
    (UnknownName, {"head": "L9H9"}, "no head"),
    (UsageError, {"k": 0}, "number k"),
    (UsageError, {"k": 10**6}, "at most 10,000"),
    (UsageError, {"pick": "a"}, "TrigramPick"),
    (UsageError, {"context": 3}, "TrigramContext"),
    (UsageError, {"context": TrigramContext(n=2)}, "length n"),
    (UsageError, {"context": TrigramContext(n=9, offset=9)}, "offset of 1 to"),
    (UnknownName, {"pick": TrigramPick(source=99)}, "no such token id"),
    (UnknownName, {"pick": TrigramPick(source="word")}, "no tokenizer"),
    (UsageError, {"pick": TrigramPick(source=0)}, "BOS is neither"),
    (ShapeProblem, {"context": TrigramContext(unigram=torch.ones(4))}, "d_vocab=13"),
    (BadInput, {"context": TrigramContext(unigram=-torch.ones(13))}, "counts or shares >= 0"),
    (TokenProblem, {"context": TrigramContext(text=[1, 2, 99])}, "0 .. d_vocab-1=12"),
]


@pytest.mark.parametrize(("kind", "arguments", "words"), ODD, ids=[words for _, _, words in ODD])
def test_odd_input_is_one_typed_sentence(kind: Any, arguments: dict[str, Any], words: str):
    with as_users_run_it(), pytest.raises(kind, match=words):
        skip_trigrams(random_weights(), **arguments)


def test_bugs_need_a_text():
    with pytest.raises(BadInput, match="no text to count"):
        skip_trigram_bugs(random_weights())
