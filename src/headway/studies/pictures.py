"""The still pictures of a report, from its tables (and, for one pattern, from the model)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from headway.behaviour.repeated import repeated_tokens
from headway.model.forward import run
from headway.model.weights import Weights
from headway.studies.heads import random_pool, repeat_length
from headway.tables.table import Table
from headway.views.figures import Bars, Figure, HeatMap, Lines, Scatter

_MEASURES = ("previous_token", "duplicate_token", "prefix_matching", "prefix_matching_text", "bos")
_PATTERN_LENGTH = 16


def of(section: str, weights: Weights, tables: Mapping[str, Table], seed: int) -> list[Figure]:
    """The pictures of one section; none when its tables are missing or empty."""
    draw: dict[str, Callable[[], Sequence[Figure | None]]] = {
        "direct": lambda: [_direct(tables)],
        "heads": lambda: [_measures(tables), _copying(tables)],
        "composition": lambda: [_composition(tables, via) for via in "QKV"],
        "induction": lambda: [_pattern(weights, tables, seed)],
        "importance": lambda: [_orders(tables)],
        "context": lambda: [_positions(tables)],
    }
    return [figure for figure in draw[section]() if figure is not None]


def _direct(tables: Mapping[str, Table]) -> Figure | None:
    if "direct-path" not in tables:
        return None
    rows = [r for r in tables["direct-path"].rows() if r["heldout_loss"] is not None]
    return Bars(
        "Held-out loss",
        [r["table"] for r in rows],
        [r["heldout_loss"] for r in rows],
        axis="loss, nats a token",
        errors=[r["heldout_se"] or 0.0 for r in rows],
        caption="Bars are standard errors over windows.",
    )


def _measures(tables: Mapping[str, Table]) -> Figure | None:
    rows = tables["heads"].rows()
    if not rows:
        return None
    values = [[np.nan if r[m] is None else r[m] for m in _MEASURES] for r in rows]
    return HeatMap(
        "Where heads attend",
        values,
        [f"{r['head']} {r['kind']}" for r in rows],
        [m.replace("_", " ") for m in _MEASURES],
        row_axis="head",
        col_axis="measure",
        unit="probability",
        low=0,
        high=1,
        caption="Averages over queries; prefix matching without `text` is on repeated random tokens.",
    )


def _copying(tables: Mapping[str, Table]) -> Figure | None:
    rows = [r for r in tables["heads"].rows() if r["copying"] is not None and r["prefix_matching"] is not None]
    if not rows:
        return None
    return Scatter(
        "Copying and prefix matching",
        [r["prefix_matching"] for r in rows],
        [r["copying"] for r in rows],
        [r["head"] for r in rows],
        x_axis="prefix matching on random tokens, probability",
        y_axis="copying, eigenvalue ratio",
        groups=[f"layer {r['head'][1 : r['head'].index('H')]}" for r in rows],
        caption="Induction heads stand in the upper right corner.",
    )


def _composition(tables: Mapping[str, Table], via: str) -> Figure | None:
    rows = [r for r in tables["composition"].rows() if r["via"] == via]
    if not rows:
        return None
    order = [r["head"] for r in tables["heads"].rows()]
    readers, writers = ([h for h in order if any(r[side] == h for r in rows)] for side in ("reader", "writer"))
    values = np.full((len(readers), len(writers)), np.nan)
    for row in rows:
        if row["score"] is not None:
            values[readers.index(row["reader"]), writers.index(row["writer"])] = row["score"]
    rms = next((r["null_rms"] for r in rows if r["null_rms"] is not None), None)
    return HeatMap(
        f"{via}-composition",
        values,
        readers,
        writers,
        row_axis="reader",
        col_axis="writer",
        unit="dimensionless",
        low=0,
        caption=f"By chance {rms:.3f} (root mean square)." if rms is not None else "",
    )


def _pattern(weights: Weights, tables: Mapping[str, Table], seed: int) -> Figure | None:
    """The best prefix matcher on one repeated text, if there is a head that matches."""
    circuits = tables["induction-circuits"].rows()
    pool = random_pool(weights)
    length = repeat_length(weights, pool, most=_PATTERN_LENGTH, copies=2)
    if not circuits or not length:
        return None
    tokens = repeated_tokens(weights.config, length=length, copies=2, rows=1, seed=seed, pool=pool)
    pattern = run(weights, tokens.to(weights.device)).pattern(circuits[0]["reader"])[0].float().cpu().numpy()
    ids = tokens[0].tolist()
    labels = weights.tokenizer.labels(ids) if weights.tokenizer else [str(i) for i in ids]
    return HeatMap(
        f"{circuits[0]['reader']} on {length} random tokens, twice",
        pattern,
        labels,
        labels,
        row_axis="destination (query)",
        col_axis="source (key)",
        unit="probability",
        low=0,
        high=1,
        caption="In the second half, attention to the token after the earlier copy is a stripe below the diagonal.",
    )


def _orders(tables: Mapping[str, Table]) -> Figure | None:
    if "importance" not in tables:
        return None
    rows = tables["importance"].rows()
    return Bars(
        "Loss reduction by path order",
        [f"order {r['order']}" for r in rows],
        [r["reduction"] for r in rows],
        axis="reduction, nats a token",
        errors=[r["reduction_se"] or 0.0 for r in rows],
        caption="Order 0 against a uniform guess, each other order against the one before.",
    )


def _positions(tables: Mapping[str, Table]) -> Figure | None:
    if "loss-by-position" not in tables:
        return None
    rows = tables["loss-by-position"].rows()
    x, y, se = (np.array([r[k] or 0.0 for r in rows], dtype=float) for k in ("position", "loss", "se"))
    return Lines(
        "Loss by position",
        {"loss": (x, y)},
        x_axis="position of the token that predicts",
        y_axis="loss, nats",
        bands={"loss": (y - se, y + se)},
        caption="The band is one standard error over windows.",
    )
