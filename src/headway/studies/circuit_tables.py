"""The part of a report that circuits in tokens give: copying compared, skip-trigrams and bugs, terms, the stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headway.behaviour.data_share import composition_data_share
from headway.behaviour.windows import text_windows
from headway.circuits.composition import composition_scores
from headway.circuits.memory import memory_scores
from headway.circuits.scatter import induction_scatter
from headway.circuits.stream_use import stream_components
from headway.circuits.subspaces import space_overlaps, write_shares
from headway.circuits.token_terms import Draws
from headway.circuits.trigram_bugs import skip_trigram_bugs
from headway.circuits.trigram_context import TrigramContext
from headway.circuits.trigrams import skip_trigrams
from headway.circuits.virtual_heads import virtual
from headway.errors import BadInput, TextProblem
from headway.model.forward import run
from headway.model.weights import Weights
from headway.studies.copying import copying_compared
from headway.studies.texts import StudyText
from headway.studies.trigram_cost import CostTexts, skip_trigram_cost
from headway.tables.table import Column, Table

Step = Callable[[str], Callable[[int, int], object]]
SHOWN, SEARCHED = 100, 1000  # skip-trigrams listed, and searched for bugs
_SHARE_WINDOWS, _COST_WINDOWS, _VIRTUAL = 16, 64, 20
_COSTS = 8  # heads whose bugs are priced, those with the largest

VIRTUAL_COLUMNS = {
    "path": Column("the virtual head, lowest layer first"),
    "composition": Column("V-composition of its two heads", "dimensionless", 0, 1),
    "composition_z": Column("its z against a random rotation between them", "dimensionless"),
    "rank": Column("rank of its W_OV", "dimensions", 0),
    "copying": Column("eigenvalue ratio of its own OV circuit in tokens", "dimensionless", -1, 1),
    "copying_centred": Column("the same with W_U centred over the vocabulary", "dimensionless", -1, 1),
    "flag": Column("why a value of this row is missing"),
}


def circuit_tables(
    weights: Weights, text: StudyText | None, seed: int, step: Step
) -> tuple[dict[str, Table], dict[str, str]]:
    """Tables by name, and what does not apply to this model, with why; for a model that has heads."""
    tables: dict[str, Table] = {
        "copying-compared": copying_compared(weights, seed=seed, progress=step("comparing copying"))
    }
    missing = dict[str, str]()
    _trigrams(weights, text, tables, missing, step)
    tables["write-shares"], tables["memory"] = write_shares(weights), memory_scores(weights)
    tables["space-overlaps"] = space_overlaps(weights)
    try:
        tables["stream-components"] = stream_components(weights)
    except BadInput as problem:
        missing["stream-components"] = str(problem)
    if weights.config.n_layers < 2:
        why = "no head has an earlier head"
        return tables, missing | dict.fromkeys(("induction-scatter", "virtual-heads"), why)
    tables["induction-scatter"] = induction_scatter(weights, draws=Draws(50, seed))
    tables["virtual-heads"] = virtual_table(weights)
    if text is not None:
        windows = text_windows(text.ids, weights.config, limit=_SHARE_WINDOWS)
        tables["data-share"] = composition_data_share(run(weights, windows[:, :-1].to(weights.device)))
    return tables, missing


def virtual_table(weights: Weights, *, most: int = _VIRTUAL) -> Table:
    """The virtual heads of two heads with the largest V-composition, one row each, with their own rank and copying.

    >>> from headway.sources.handmade import two_back_model
    >>> [(row["path"], row["rank"], round(row["copying"], 6)) for row in virtual_table(two_back_model().weights).rows()]
    [('L0H0-L1H0', 11, 1.0)]
    """
    table = composition_scores(weights, via="V")
    rows: list[dict[str, Any]] = []
    for pair in [row for row in table.rows() if row["score"] is not None][:most]:
        one = virtual(weights, f"{pair['writer']}-{pair['reader']}")
        (own,) = one.copying(draws=0).rows()
        row: dict[str, Any] = {
            "path": str(one.id),
            "composition": pair["score"],
            "composition_z": pair["z"],
            "rank": one.rank,
        }
        rows.append(row | {name: own[name] for name in ("copying", "copying_centred", "flag")})
    origin = replace(table.provenance, weights=weights.content_hash())
    meta = {"empty": "no two heads compose"} if not rows else {}
    return Table.from_rows(rows, VIRTUAL_COLUMNS, origin, meta)


def _trigrams(
    weights: Weights, text: StudyText | None, tables: dict[str, Table], missing: dict[str, str], step: Step
) -> None:
    context = TrigramContext() if text is None else TrigramContext(text=text.ids)
    told = step("searching skip-trigrams")
    tables["skip-trigrams"] = skip_trigrams(weights, k=SHOWN, context=context, progress=told)
    try:
        tables["trigram-bugs"] = bugs = skip_trigram_bugs(weights, k=SEARCHED, context=context)
        worst = list(dict.fromkeys(row["head"] for row in bugs.rows()))[:_COSTS]
        if not worst:
            missing["trigram-cost"] = f"no bug among the {SEARCHED:,} skip-trigrams raised most"
            return
        texts = CostTexts(judge=None if text is None else text.ids, limit=_COST_WINDOWS)
        told = step("pricing skip-trigram bugs")
        tables["trigram-cost"] = skip_trigram_cost(weights, worst, k=SEARCHED, texts=texts, progress=told)
    except (BadInput, TextProblem) as problem:
        names = ("trigram-bugs", "trigram-cost")
        missing |= {name: problem.what for name in names if name not in tables}
