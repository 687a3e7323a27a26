"""The still pictures of a report, from its tables (and, for one pattern, from the model)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headway.behaviour.repeated import repeated_tokens
from headway.circuits.copying import copying_eigenvalues
from headway.model.forward import run
from headway.model.weights import Weights
from headway.studies.copying import eigenvalue_plane
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
        "terms": lambda: [_corner(tables)],
        "virtual": list,
        "copying": lambda: [_top5(tables), *_planes(weights, tables)],
        "trigrams": lambda: [_costs(tables)],
        "stream": lambda: [_writers(tables), _components(tables)],
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


def _corner(tables: Mapping[str, Table]) -> Figure | None:
    rows = [r for r in _rows(tables, "induction-scatter") if r["corner"] is not None]
    if not rows:
        return None
    matching = {r["head"] for r in tables["heads"].rows() if r["kind"] == "induction"}
    return Scatter(
        "Positivity of QK through a writer, and of OV",
        [r["qk"] for r in rows],
        [r["ov"] for r in rows],
        [f"{r['writer']}-{r['reader']}" for r in rows],
        x_axis="positivity of W_E^T W_QK W_OV W_E, dimensionless",
        y_axis="positivity of W_U W_OV W_E, dimensionless",
        groups=["induction by its pattern" if r["reader"] in matching else "another head" for r in rows],
        caption="Upper right: looks for its own token through the writer, and copies what it finds.",
    )


def _top5(tables: Mapping[str, Table]) -> Figure | None:
    rows = [r for r in _rows(tables, "copying-compared") if r["copying"] is not None and r["top5"] is not None]
    if not rows:
        return None
    return Scatter(
        "Two measures of copying",
        [r["copying"] for r in rows],
        [r["top5"] for r in rows],
        [r["head"] for r in rows],
        x_axis="eigenvalue ratio, dimensionless",
        y_axis="own token among the 5 raised most, share of tokens",
        groups=["all measures agree" if r["agree"] else "measures differ" for r in rows],
        caption="The ratio sums over a spectrum; the share asks every token.",
    )


def _planes(weights: Weights, tables: Mapping[str, Table]) -> list[Figure]:
    """The eigenvalues of the head that copies most and of the one that copies least."""
    rows = [r for r in _rows(tables, "copying-compared") if r["copying"] is not None]
    if not rows:
        return []
    order = [r["head"] for r in sorted(rows, key=lambda r: -r["copying"])]
    found = copying_eigenvalues(weights)
    return [eigenvalue_plane(found, head=head) for head in dict.fromkeys((order[0], order[-1]))]


def _costs(tables: Mapping[str, Table]) -> Figure | None:
    rows = [r for r in _rows(tables, "trigram-cost") if r["cost_se"]]
    if not rows:
        return None
    return Bars(
        "What skip-trigram bugs cost",
        [r["head"] for r in rows],
        [1e3 * r["cost"] for r in rows],
        axis="thousandths of a nat, a token",
        errors=[1e3 * r["cost_se"] for r in rows],
        caption="Loss that correcting each triple takes off text it was not fitted on; bars are standard errors.",
    )


def _writers(tables: Mapping[str, Table]) -> Figure | None:
    rows = _rows(tables, "write-shares")
    if not rows:
        return None
    return Bars(
        "Dimensions of the stream by writer",
        [r["writer"] for r in rows],
        [r["dims"] for r in rows],
        axis="dimensions",
        caption="Each writer's share of every direction, summed; all together are the dimensions written at all.",
    )


def _components(tables: Mapping[str, Table]) -> Figure | None:
    rows = _rows(tables, "stream-components")
    if len(rows) < 2:
        return None
    x, total, mix = (np.array([r[k] for r in rows], dtype=float) for k in ("component", "cumulative", "mix"))
    return Lines(
        "Embedding and unembedding together",
        {"variance up to here": (x, total), "mix: 1 embedding's, -1 unembedding's": (x, mix)},
        x_axis="joint principal component",
        y_axis="dimensionless",
        caption="Of both matrices, centred over the vocabulary and scaled to one size.",
    )


def _rows(tables: Mapping[str, Table], name: str) -> Sequence[Mapping[str, Any]]:
    return tables[name].rows() if name in tables else ()


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
