"""The framework paper's weight-space claims, measured on a zero-, a one- and a two-layer model: our number, and a verdict.

The rules stand in `claims.py`. Each measurement is a function that returns the number the rule is about, and the words for
it. Induction heads are here the heads above layer 0 with prefix matching of at least 0.2 on random tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from headway.algebra.stream import centred
from headway.behaviour.patterns import pattern_scores
from headway.behaviour.windows import record_windows, text_windows
from headway.circuits.bigrams import direct_path_study
from headway.circuits.composition import composition_scores
from headway.circuits.copying import copying_scores
from headway.circuits.cyclic import cyclic_scores
from headway.circuits.positional import qk_terms
from headway.circuits.scatter import induction_scatter
from headway.circuits.stream_use import stream_components
from headway.circuits.trigram_bugs import skip_trigram_bugs
from headway.circuits.trigrams import skip_trigrams
from headway.errors import UsageError, counted
from headway.model.weights import Weights, check_weights
from headway.paths.importance import term_importance
from headway.studies.claims import CLAIMS, COMPOSES_Z, COPIES_Z
from headway.studies.heads import MATCHES, head_atlas
from headway.studies.texts import StudyText, study_text
from headway.studies.trigram_cost import skip_trigram_cost
from headway.tables.table import Column, Table

Stage = Callable[[str, int, int], object]
WINDOWS = 64  # of text, where patterns are averaged
TRIGRAMS, MANY = 100, 10_000

COLUMNS = {
    "claim": Column("short name of the claim"),
    "section": Column("where the paper makes it"),
    "says": Column("what the paper says"),
    "paper": Column("the paper's number"),
    "measure": Column("what is measured on our models"),
    "value": Column("our number, in the unit that `measure` names; null where there is none"),
    "ours": Column("our number in words"),
    "rule": Column("which values support and which differ, written down beforehand"),
    "verdict": Column("supports, differs, or cannot tell"),
}


class Measured(NamedTuple):
    """The number a rule is about (None: there is none), and the words for it."""

    value: float | None
    words: str


@dataclass(frozen=True)
class Models:
    """A zero-, a one- and a two-layer model, and what several measurements share."""

    zero: Weights
    one: Weights
    two: Weights
    seed: int

    @cached_property
    def text(self) -> StudyText:
        return study_text(self.two)

    @cached_property
    def atlas(self) -> list[dict[str, Any]]:
        return head_atlas(self.two, self.text, windows=WINDOWS, seed=self.seed).rows()

    @cached_property
    def induction_heads(self) -> list[str]:
        return [
            r["head"] for r in self.atlas if (r["prefix_matching"] or 0) >= MATCHES and not r["head"].startswith("L0")
        ]

    @cached_property
    def composition(self) -> list[dict[str, Any]]:
        return composition_scores(self.two).rows()

    @cached_property
    def trigrams(self) -> Table:
        return skip_trigrams(self.one, k=TRIGRAMS)

    def copying(self, weights: Weights) -> list[dict[str, Any]]:
        return copying_scores(weights, seed=self.seed).rows()


def framework_claims(
    zero: Weights, one: Weights, two: Weights, *, seed: int = 0, progress: Stage | None = None
) -> Table:
    """Every claim of `CLAIMS` measured on three models, one row each, in the paper's order.

    The models must have no, one and two layers and carry their bigram counts and held-out text, as the zoo's do. Raises
    UsageError for models of other depths. (Elhage et al. 2021.)

    >>> from headway.studies.claims import CLAIMS
    >>> [claim.id for claim in CLAIMS][:2]
    ['bigrams', 'copying-one-layer']
    """
    for layers, weights in enumerate((zero, one, two)):
        check_weights(weights)
        if weights.config.n_layers != layers:
            expected = f"a model of {layers} layers in place {layers + 1}"
            raise UsageError("models for the paper's claims", expected=expected, got=weights.config.n_layers)
    models, rows = Models(zero, one, two, seed), list[dict[str, Any]]()
    for done, claim in enumerate(CLAIMS, 1):
        measured = MEASUREMENTS[claim.id](models)
        rows.append(
            {
                "claim": claim.id,
                "section": claim.section,
                "says": claim.claim,
                "paper": claim.paper,
                "measure": claim.measure,
                "value": measured.value,
                "ours": measured.words,
                "rule": claim.rule,
                "verdict": claim.verdict(measured.value),
            }
        )
        if progress is not None:
            progress("checking claims", done, len(CLAIMS))
    return Table.from_rows(rows, COLUMNS, two.provenance.with_options(seed), {})


def _bigrams(models: Models) -> Measured:
    carried, vocab = models.zero.carried, models.zero.config.d_vocab
    if carried is None:
        return Measured(None, "the model carries no counts")
    table = direct_path_study(models.zero, carried.bigram_table(vocab), carried.validation, carried.heldout)
    losses = {row["table"]: row["heldout_loss"] for row in table.rows()}
    ours, best = losses["direct path"], losses["smoothed bigrams"]
    return Measured(ours - best, f"{ours - best:+.3f} nats ({ours:.3f} beside {best:.3f})")


def _copying(rows: list[dict[str, Any]]) -> Measured:
    found = [r for r in rows if (r["copying"] or 0) > 0 and (r["copying_z"] or 0) >= COPIES_Z]
    return _share(len(found), len(rows), "heads")


def _copying_one_layer(models: Models) -> Measured:
    return _copying(models.copying(models.one))


def _copying_two_layer(models: Models) -> Measured:
    return _copying([r for r in models.copying(models.two) if r["head"].startswith("L1")])


def _positional_heads(models: Models) -> Measured:
    found, heads = 0, list(models.one.head_ids())
    for head in heads:
        terms = qk_terms(models.one, head)
        content, position = terms["content_content"], terms.get("position_position")
        if position is None:
            continue
        content = centred(content.to(torch.float64), 1)
        among_tokens = float(content.norm().square()) / (content.shape[0] * content.shape[1])
        found += _among_earlier(position.dense().double()) > among_tokens
    return _share(found, len(heads), "heads")


def _among_earlier(scores: torch.Tensor) -> float:
    """Variance of a row's scores over the places up to its own, mean over rows."""
    return float(torch.stack([row[: i + 1].var(correction=0) for i, row in enumerate(scores)]).mean())


def _skip_trigrams_copy(models: Models) -> Measured:
    rows = models.trigrams.rows()
    return _share(sum(row["form"] is not None for row in rows), len(rows), "skip-trigrams")


def _bugs(models: Models) -> Measured:
    found, more = (len(skip_trigram_bugs(models.one, k=k)) for k in (TRIGRAMS, MANY))
    there = sum(bool(row["count"]) for row in models.trigrams.rows())
    words = f"{found} from the {TRIGRAMS} largest, of which the text has {there}; {more} from the {MANY:,} largest"
    return Measured(found, words)


def _bug_cost(models: Models) -> Measured:
    rows = [r for r in skip_trigram_cost(models.one).rows() if r["cost_se"]]
    if not rows:
        return Measured(None, "no head has triples to correct")
    most = max(rows, key=lambda r: r["cost"] / r["cost_se"])
    words = f"{most['cost']:.0e} ± {most['cost_se']:.0e} nats ({most['head']}, {most['triples']} triples)"
    return Measured(most["cost"] / most["cost_se"], words)


def _composition_below_chance(models: Models) -> Measured:
    rows = [r for r in models.composition if r["score"] is not None]
    return _share(sum(r["score"] < r["null_rms"] for r in rows), len(rows), "pairs")


def _k_composition_only(models: Models) -> Measured:
    def above(row: dict[str, Any]) -> float:
        return row["score"] - row["null_rms"]

    rows = [r for r in models.composition if r["score"] is not None]
    best = {via: max((r for r in rows if r["via"] == via), key=above) for via in "QKV"}
    most, other = above(best["K"]), max(above(best["Q"]), above(best["V"]))
    words = ", ".join(f"{via} {above(row):+.3f}" for via, row in best.items()) + " above chance"
    if other > 0:
        return Measured(most / other, words)
    return Measured(math.inf if (best["K"]["z"] or 0) >= COMPOSES_Z else None, words)


def _best_writers(rows: list[dict[str, Any]], reader: str) -> list[dict[str, Any]]:
    mine = [r for r in rows if r["reader"] == reader and r["via"] == "K" and r["score"] is not None]
    return sorted(mine, key=lambda r: -r["score"])


def _previous_token_writer(models: Models) -> Measured:
    first = [r for r in models.atlas if r["head"].startswith("L0")]
    previous = max(first, key=lambda r: r["previous_token"] or 0)["head"]
    best = [_best_writers(models.composition, reader)[0]["writer"] for reader in models.induction_heads]
    return _share(sum(writer == previous for writer in best), len(best), f"induction heads, writer {previous}")


def _positive_corner(models: Models) -> Measured:
    corner: dict[str, float] = {}
    for row in induction_scatter(models.two).rows():
        if row["corner"] is not None:
            corner[row["reader"]] = max(corner.get(row["reader"], -1.0), row["corner"])
    ours = [corner[h] for h in models.induction_heads if h in corner]
    others = [value for head, value in corner.items() if head not in models.induction_heads]
    if not ours or not others:
        return Measured(None, "no induction heads" if not ours else "no other heads")
    least, most = min(ours), max(others)
    named = counted(len(ours), "induction head")
    return Measured(least - most, f"at least {least:.2f} for {named}, at most {most:.2f} for others")


def _erratum_previous_token(models: Models) -> Measured:
    cyclic = cyclic_scores(models.two, via="K").rows()
    same = [
        _best_writers(models.composition, h)[0]["writer"] == _best_writers(cyclic, h)[0]["writer"]
        for h in models.induction_heads
    ]
    return _share(sum(same), len(same), "induction heads")


def _erratum_second_writer(models: Models) -> Measured:
    near = _attention_nearby(models)
    found = [
        any(r["z"] is not None and r["z"] >= COMPOSES_Z and near[r["writer"]] >= 0.4 for r in others[1:])
        for others in (_best_writers(models.composition, h) for h in models.induction_heads)
    ]
    return _share(sum(found), len(found), "induction heads")


def _attention_nearby(models: Models) -> dict[str, float]:
    """Mean attention of each L0 head to the five positions before."""
    windows = text_windows(models.text.ids, models.two.config, limit=WINDOWS)
    sums, rows = 0.0, 0
    for recording in record_windows(models.two, windows):
        pattern = recording.patterns[0]
        band = torch.ones(pattern.shape[-2:]).tril(-1).triu(-5)
        sums = sums + (pattern * band).sum(-1)[:, :, 5:].mean(-1).sum(0).double()
        rows += len(pattern)
    return {f"L0H{h}": float(value) / rows for h, value in enumerate(torch.as_tensor(sums).tolist())}


def _virtual_heads_small(models: Models) -> Measured:
    windows = text_windows(models.text.ids, models.two.config, limit=2 * WINDOWS)
    taken = {r["order"]: r["reduction"] for r in term_importance(models.two, windows).rows()}
    total = sum(taken.values())
    return Measured(taken[2] / total, f"{taken[2]:.3f} of {total:.2f} nats ({taken[2] / total:.3f})")


def _embedding_dimensions(models: Models) -> Measured:
    meta = stream_components(models.two).meta
    dims, d_model = meta["dims90"], meta["d_model"]
    words = (
        f"{dims['both']} of {d_model} ({dims['both'] / d_model:.2f}); W_E alone {dims['W_E']}, W_U alone {dims['W_U']}"
    )
    return Measured(dims["both"] / d_model, words)


def _memory_heads(models: Models) -> Measured:
    found: list[str] = []
    for name, weights in (("one-layer", models.one), ("two-layer", models.two)):
        windows = text_windows(study_text(weights).ids, weights.config, limit=WINDOWS)
        present = {r["head"]: r["self_attention"] for r in pattern_scores(record_windows(weights, windows)).rows()}
        found += [
            f"{name} {r['head']}"
            for r in models.copying(weights)
            if (r["copying"] or 0) <= -0.5 and (r["copying_z"] or 0) <= -COPIES_Z and (present[r["head"]] or 0) >= 0.4
        ]
    return Measured(len(found), ", ".join(found) or "none")


def _share(found: int, of: int, what: str) -> Measured:
    if not of:
        return Measured(None, f"no {what}")
    return Measured(found / of, f"{found} of {of} {what} ({found / of:.2f})")


MEASUREMENTS: dict[str, Callable[[Models], Measured]] = {
    "bigrams": _bigrams,
    "copying-one-layer": _copying_one_layer,
    "copying-two-layer": _copying_two_layer,
    "positional-heads": _positional_heads,
    "skip-trigrams-copy": _skip_trigrams_copy,
    "bugs": _bugs,
    "bug-cost": _bug_cost,
    "composition-below-chance": _composition_below_chance,
    "k-composition-only": _k_composition_only,
    "previous-token-writer": _previous_token_writer,
    "positive-corner": _positive_corner,
    "erratum-previous-token": _erratum_previous_token,
    "erratum-second-writer": _erratum_second_writer,
    "virtual-heads-small": _virtual_heads_small,
    "embedding-dimensions": _embedding_dimensions,
    "memory-heads": _memory_heads,
}
