"""What skip-trigram bugs cost: how much loss a head's term would take off if each triple could be set by itself.

A head adds sum_j A_ij O(t_j, c) to the logits: one number for a source and an out, whatever the destination. Give it one
more for every triple of a list, delta(a, b, c), with everything else held:

    logit_i(c)  +=  sum_a m_i(a) delta(a, t_i, c),      m_i(a) = sum of A_ij over the positions j that hold a

The loss is convex in delta. It is fitted from 0 on one text, with a penalty chosen on a part kept back, and judged on
another text: what it takes off there is what the shape of the head cost on these triples. (The question is left open by
Elhage et al. 2021, "Skip-Trigram Bugs".)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import minimize
from torch import Tensor

from headway.behaviour.averages import Averages
from headway.behaviour.windows import batches, text_windows, token_losses
from headway.circuits.trigram_bugs import bugs_among
from headway.circuits.trigram_context import TrigramContext, assumed
from headway.circuits.trigrams import chosen_heads, skip_trigrams
from headway.errors import BadInput, check_kind
from headway.ids import HeadId
from headway.model.forward import run
from headway.model.weights import Weights, check_weights
from headway.tables.table import Column, Table

Progress = Callable[[int, int], object]
PENALTIES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # of the mean loss, times half the sum of squares
_KEPT_BACK = 4  # every fourth window of the fitting text chooses the penalty
_ROWS = 8

COLUMNS = {
    "head": Column("the head"),
    "triples": Column(
        "triples with a number of their own: the raised ones the fitting text supports, and their bugs", "triples"
    ),
    "touched": Column("share of judged tokens at which some triple has a say", "dimensionless", 0, 1),
    "loss": Column("loss on the judged text as it is", "nats", 0),
    "cost": Column("loss that the corrections take off there, a token; negative: they do not carry over", "nats"),
    "cost_se": Column("its standard error over windows", "nats", 0),
    "benefit": Column("loss that the head's own term takes off, everything else held, a token", "nats"),
    "cost_share": Column("cost over benefit", "dimensionless"),
    "penalty": Column("weight of the squared corrections in the fit", "dimensionless", 0),
    "flag": Column("why a value of this row is missing"),
}


@dataclass(frozen=True)
class CostTexts:
    """Token ids, BOS before each file: `fit` to find and correct triples in, `judge` to see what that is worth.

    The validation and held-out ids that the model carries where left out. limit: windows read of each.
    """

    fit: Tensor | np.ndarray | None = None
    judge: Tensor | np.ndarray | None = None
    limit: int = 256


CARRIED = CostTexts()


def skip_trigram_cost(
    weights: Weights,
    head: str | HeadId | Iterable[str | HeadId] | None = None,
    *,
    k: int = 1000,
    texts: CostTexts = CARRIED,
    progress: Progress | None = None,
) -> Table:
    """What the factored form costs on the triples a head raises and their bugs; one row a head, in order.

    k: how many skip-trigrams a head is asked for; those that the fitting text has, and the bugs they imply, are corrected.
    Patterns, norm scales and all other terms are held: a cost is of this head alone, and of these triples alone. progress
    is told (heads done, heads). A head without such triples has cost 0 and a flag. Raises BadInput when the model carries
    no texts and none are given.

    >>> import headway.sources.handmade as handmade
    >>> model = handmade.skip_trigram_model([(3, 7, 5), (3, 8, 6)], d_vocab=9, n_ctx=4).weights
    >>> ids = torch.tensor([0, 3, 7, 5, 0, 3, 8, 6] * 8)
    >>> row = skip_trigram_cost(model, "L0H0", texts=CostTexts(ids, ids)).rows()[0]
    >>> round(row["cost"] * 4 / math.log(2), 2)  # one token in four is a choice of two that one correction settles
    1.0
    """
    check_weights(weights)
    check_kind(texts, CostTexts, "texts of a cost", expected="CostTexts(fit=ids, judge=other_ids)")
    asked = chosen_heads(weights, head)
    fit, judge = _ids(weights, texts.fit, "validation"), _ids(weights, texts.judge, "heldout")
    windows = [text_windows(ids, weights.config, limit=texts.limit) for ids in (fit, judge)]
    rows: list[dict[str, Any]] = []
    for done, id_ in enumerate(asked, 1):
        rows.append({"head": id_} | _cost(weights, id_, _triples(weights, id_, k, fit), windows))
        if progress is not None:
            progress(done, len(asked))
    options = {"heads": ",".join(map(str, asked)), "k": k, "limit": texts.limit}
    origin = replace(weights.provenance, weights=weights.content_hash()).with_options(None, **options)
    meta = {
        "windows": {"fit": len(windows[0]), "judge": len(windows[1])},
        "penalties": list(PENALTIES),
        "notes": ["Only the triples named are corrected: a bound from below on what the shape costs, up to the fit."],
    }
    return Table.from_rows(rows, COLUMNS, origin, meta)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Corrections of one text: logits at (query, out) entries move by M delta.

    probability and query of each entry; target: the entry that is the query's next token, -1 where none is. window: of
    each query. base, without: losses of every token as it is, and without the head's term, [window, pos].
    """

    M: sparse.csr_matrix
    probability: np.ndarray
    query: np.ndarray
    target: np.ndarray
    window: np.ndarray
    base: Tensor
    without: Tensor

    def change(self, delta: np.ndarray) -> np.ndarray:
        """Loss of each query with the corrections, minus without: log(1 + sum p (e^x - 1)) - x at the target."""
        x = self.M @ delta
        raised = np.bincount(self.query, self.probability * np.expm1(x), minlength=len(self.target))
        return np.log1p(np.maximum(raised, -1 + 1e-12)) - np.where(self.target >= 0, x[self.target], 0.0)

    def gradient(self, delta: np.ndarray, queries: np.ndarray) -> np.ndarray:
        """Of the summed change over the chosen queries."""
        x = self.M @ delta
        raised = np.bincount(self.query, self.probability * np.expm1(x), minlength=len(self.target))
        of_x = self.probability * np.exp(x) / (1 + np.maximum(raised, -1 + 1e-12))[self.query]
        hit = self.target[self.target >= 0]
        np.subtract.at(of_x, hit, 1.0)
        return self.M.T @ np.where(queries[self.query], of_x, 0.0)

    def fitted(self, penalty: float, queries: np.ndarray, tokens: int) -> np.ndarray:
        """delta of least mean change plus penalty / 2 |delta|^2, from 0; convex, so there is one."""

        # Summed, not averaged: the solver stops at changes that are small beside 1.
        def value(delta: np.ndarray) -> tuple[float, np.ndarray]:
            loss = self.change(delta)[queries].sum() + tokens * penalty / 2 * delta @ delta
            return float(loss), self.gradient(delta, queries) + tokens * penalty * delta

        start = np.zeros(self.M.get_shape()[1])
        exact = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-13, "gtol": 1e-7}
        found: Any = minimize(value, start, jac=True, method="L-BFGS-B", options=exact)
        return found.x


def _cost(weights: Weights, id_: HeadId, triples: Tensor, windows: list[Tensor]) -> dict[str, Any]:
    fit, judge = (_problem(weights, id_, triples, part) for part in windows)
    loss, benefit = float(judge.base.mean()), float((judge.without - judge.base).mean())
    row = {"triples": len(triples), "loss": loss, "benefit": benefit, "touched": len(judge.target) / judge.base.numel()}
    if not len(fit.target):
        why = "no triple it raises stands in the fitting text" if not len(triples) else "no triple has a say there"
        return row | {"cost": 0.0, "flag": why}
    choosing = fit.window % _KEPT_BACK == _KEPT_BACK - 1
    tokens = max(1, fit.base.numel() * (_KEPT_BACK - 1) // _KEPT_BACK)
    tries = {p: fit.change(fit.fitted(p, ~choosing, tokens))[choosing].sum() for p in PENALTIES}
    penalty = min(tries, key=lambda p: tries[p]) if choosing.any() else PENALTIES[-1]
    delta = fit.fitted(penalty, np.ones_like(choosing), fit.base.numel())
    taken = np.bincount(judge.window, -judge.change(delta), minlength=len(judge.base)) / judge.base.shape[1]
    mean = Averages.of(torch.from_numpy(taken)[None], torch.ones(1, len(taken), dtype=torch.float64))
    cost, error = float(mean.mean[0]), float(mean.se[0])
    share = cost / benefit if benefit > 0 else None
    flags = [] if share is not None else ["cost_share: the head takes off no loss"]
    flags += ["one window: no standard error"] if math.isnan(error) else []
    row |= {"cost": cost, "cost_se": None if math.isnan(error) else error, "cost_share": share, "penalty": penalty}
    return row | {"flag": "; ".join(flags) or None}


@torch.no_grad()
def _problem(weights: Weights, id_: HeadId, triples: Tensor, windows: Tensor) -> _Problem:
    """Where the triples have a say in these windows, and what is there already."""
    tables: list[dict[str, np.ndarray]] = []
    base, without = [], []
    for part in batches(len(windows), _ROWS):
        tokens, targets = windows[part, :-1], windows[part, 1:]
        clean = run(weights, tokens)
        bare = run(weights, tokens, freeze=clean, edit={f"{id_}.result": torch.zeros_like})
        base.append(token_losses(clean.logits, targets))
        without.append(token_losses(bare.logits, targets))
        tables.append(_entries(clean.pattern(id_), clean.logits, tokens, targets, triples, part.start))
    joined = {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}
    place = joined["window"] * windows.shape[1] + joined["position"]
    queries, query = np.unique(place, return_inverse=True)
    entries, entry = np.unique(np.stack((query, joined["out"])), axis=1, return_inverse=True)
    first = np.zeros(entries.shape[1], dtype=np.int64)
    first[entry] = np.arange(len(entry))
    target = np.full(len(queries), -1)
    hit = joined["is_target"][first]
    target[entries[0][hit]] = np.flatnonzero(hit)
    shape = (entries.shape[1], len(triples))
    return _Problem(
        M=sparse.csr_matrix((joined["attention"], (entry, joined["triple"])), shape=shape),
        probability=joined["probability"][first],
        query=entries[0],
        target=target,
        window=queries // windows.shape[1],
        base=torch.cat(base),
        without=torch.cat(without),
    )


def _entries(
    pattern: Tensor, logits: Tensor, tokens: Tensor, targets: Tensor, triples: Tensor, first: int
) -> dict[str, np.ndarray]:
    """One entry for each triple at each query that its destination stands at with its source in reach."""
    names = ("window", "position", "triple", "out", "attention", "probability", "is_target")
    found: list[tuple[Tensor, ...]] = []
    lse = logits.double().logsumexp(-1)
    for number, (a, b, c) in enumerate(triples.tolist()):
        r, i = (tokens == b).nonzero(as_tuple=True)
        m = (pattern[r, i].double() * (tokens[r] == a)).sum(-1)
        r, i, m = r[m > 0], i[m > 0], m[m > 0]
        p = (logits[r, i, c].double() - lse[r, i]).exp()
        same = torch.full_like(r, number), torch.full_like(r, c)
        found.append((r + first, i, *same, m, p, targets[r, i] == c))
    columns = zip(*found, strict=True) if found else ([torch.empty(0)] for _ in names)
    kinds = dict.fromkeys(names, np.int64) | {"attention": float, "probability": float, "is_target": bool}
    return {
        name: torch.cat(list(column)).cpu().numpy().astype(kinds[name])
        for name, column in zip(names, columns, strict=True)
    }


def _triples(weights: Weights, id_: HeadId, k: int, fit: Tensor) -> Tensor:
    """The raised triples that the fitting text has, and the bugs they imply, [n, 3]."""
    context = TrigramContext(text=fit)
    raised = skip_trigrams(weights, id_, k=k, context=context).rows()
    rows = [r for r in raised if r["count"]] + bugs_among(weights, id_, raised, assumed(weights, context))
    every = dict.fromkeys((r["source_id"], r["destination_id"], r["out_id"]) for r in rows)
    return torch.tensor(list(every), dtype=torch.int64).reshape(-1, 3)


def _ids(weights: Weights, given: Tensor | np.ndarray | None, name: str) -> Tensor:
    if given is not None:
        return torch.as_tensor(given)
    carried = weights.carried
    if carried is None or not getattr(carried, name).size:
        hint = "CostTexts(fit=ids, judge=other_ids)"
        raise BadInput(f"the model carries no {name} text", expected="token ids", got="none", next_step=hint)
    return torch.from_numpy(np.asarray(getattr(carried, name)).astype(np.int64))
