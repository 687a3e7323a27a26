"""Copying, compared: every measure of every head side by side, and where they do not say the same.

They ask different questions. The eigenvalue ratio sums over the spectrum of W_U W_OV W_E; the diagonal and the top 5 ask
every token what it does to itself; Olsson's score asks only the tokens that were attended to, in a stream that earlier
layers have written to. So a head on which they differ is not an error: it is a head that one number does not describe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headway.behaviour.olsson import olsson_copying_scores
from headway.circuits.copying import MATRICES, copying_scores
from headway.circuits.copying_tokens import copying_token_scores
from headway.errors import UnknownName, UsageError
from headway.model.weights import Weights, check_weights
from headway.studies.heads import COPIES, COPIES_Z, random_pool, repeat_length
from headway.tables.table import Column, Table
from headway.views.figures import Scatter

Progress = Callable[[int, int], object]
MEASURES = ("eigenvalues", "eigenvalues centred", "diagonal", "top 5", "Olsson")
COPY, LOWER, NEITHER = "copies", "lowers", "neither"

# From which value on a measure says `copies`; written down before any model was measured.
DIAGONAL = 1.0  # a token moves itself by one standard deviation of all entries, on average
TOKENS = 0.5  # share of tokens whose own logit is among the five most moved
RATIO = 0.25  # r: the attended token has a third of all that is raised in the sample (4 r - 1 = 0)
LOWERS = 0.25  # r as a share of its value by chance, at most
_DECADES = 4  # of moduli that the eigenvalue plane shows

COLUMNS = {
    "head": Column("the head"),
    "copying": Column("eigenvalue ratio sum(lambda) / sum|lambda| of W_U W_OV W_E", "dimensionless", -1, 1),
    "copying_null_mean": Column("its mean with W_O, W_V in random directions", "dimensionless", -1, 1),
    "copying_z": Column("(copying - its null mean) / its null sd", "sd"),
    "copying_centred": Column("the same with W_U centred over the vocabulary", "dimensionless", -1, 1),
    "copying_centred_null_mean": Column("its mean with W_O, W_V in random directions", "dimensionless", -1, 1),
    "copying_centred_z": Column("(copying_centred - its null mean) / its null sd", "sd"),
    "diagonal_in_sd": Column("what a token adds to its own logit, over the sd of all entries, mean over tokens", "sd"),
    "diagonal_positive": Column("share of tokens that raise their own logit", "dimensionless", 0, 1),
    "top5": Column("share of tokens whose own logit is among the 5 raised most", "dimensionless", 0, 1),
    "bottom5": Column("share of tokens whose own logit is among the 5 lowered most", "dimensionless", 0, 1),
    "top5_null": Column("top5 and bottom5 by chance", "dimensionless", 0, 1),
    "copying_olsson": Column("Olsson's copying score on random tokens, 4 r - 1", "dimensionless", -1, 1),
    "copying_olsson_se": Column("its standard error over rows of tokens", "dimensionless", 0),
    "copying_olsson_null": Column("its value by chance", "dimensionless", -1, 1),
    "agree": Column("whether all measures that have a value say the same"),
    "verdict": Column(f"what they say: {COPY}, {LOWER}, {NEITHER}, or which says what"),
    "flag": Column("why a value of this row is missing"),
}


def copying_compared(
    weights: Weights, *, draws: int = 200, rows: int = 10, seed: int = 0, progress: Progress | None = None
) -> Table:
    """Every measure of copying, one row a head, and whether they agree; in head order.

    Eigenvalue ratios raw and centred, each with its null (`copying_scores`, `draws` of it), diagonal and top 5 of the OV
    circuit in tokens (`copying_token_scores`), Olsson's score on `rows` rows of 25 random tokens, fewer where vocabulary
    or context are smaller (`olsson_copying_scores`). Each says copies, lowers or neither by the rule in
    `meta["rules"]`; a measure without a value says nothing. verdict: the common word, or all words, as in `copies:
    eigenvalues; neither: top 5, Olsson`. progress: told (heads done, heads) of the pass over tokens, the longest part.

    >>> from headway.sources.handmade import copying_model
    >>> row = copying_compared(copying_model(d_vocab=30).weights, draws=20).rows()[0]
    >>> row["agree"], row["verdict"]
    (True, 'copies')
    """
    check_weights(weights)
    by_head: dict[str, dict[str, Any]] = {str(h): {"head": str(h), "flag": []} for h in weights.head_ids()}
    pool = random_pool(weights)
    length = repeat_length(weights, pool, most=25, copies=1)
    tables = [copying_scores(weights, draws=draws, seed=seed), copying_token_scores(weights, progress=progress)]
    if length:
        tables.append(olsson_copying_scores(weights, length=length, rows=rows, seed=seed, pool=pool))
    for table in tables:
        for row in table.rows():
            _merge(by_head[row["head"]], row)
    for row in by_head.values():
        row["flag"] += [] if length else ["too few tokens or too short a context for random tokens"]
        row["flag"] = "; ".join(dict.fromkeys(row["flag"])) or None
        row.update(_compared(row))
    origin = replace(tables[0].provenance, weights=weights.content_hash())
    options = {"draws": draws, "random_tokens": f"{rows} rows of {length}"}
    meta: dict[str, Any] = {"rules": _rules()} | ({} if by_head else {"empty": "the model has no heads"})
    out = [{name: row.get(name) for name in COLUMNS} for row in by_head.values()]
    return Table.from_rows(out, COLUMNS, origin.with_options(seed, **options), meta)


def says(row: Mapping[str, Any]) -> dict[str, str]:
    """What each measure that has a value says of a row of `copying_compared`.

    >>> says({"top5": 0.9, "bottom5": 0.0, "diagonal_in_sd": -2.0})
    {'diagonal': 'lowers', 'top 5': 'copies'}
    """
    words: dict[str, str] = {}
    for measure, name in zip(MEASURES[:2], ("copying", "copying_centred"), strict=True):
        ratio, z = row.get(name), row.get(f"{name}_z")
        if ratio is not None and z is not None:
            words[measure] = _word(ratio >= COPIES and z >= COPIES_Z, ratio <= -COPIES and z <= -COPIES_Z)
    diagonal, top, bottom = row.get("diagonal_in_sd"), row.get("top5"), row.get("bottom5")
    if diagonal is not None:
        words[MEASURES[2]] = _word(diagonal >= DIAGONAL, diagonal <= -DIAGONAL)
    if top is not None and bottom is not None:
        words[MEASURES[3]] = _word(top >= TOKENS > bottom, bottom >= TOKENS > top)
    score, chance = row.get("copying_olsson"), row.get("copying_olsson_null")
    if score is not None and chance is not None:
        words[MEASURES[4]] = _word(score >= 4 * RATIO - 1, score + 1 <= LOWERS * (chance + 1))
    return words


def eigenvalue_plane(eigenvalues: Table, *, head: str, matrix: str = "raw") -> Scatter:
    """The eigenvalues of one head in the complex plane: angles as they are, moduli as decades above the least shown.

    eigenvalues: from `copying_eigenvalues`. A modulus four decades below the largest, or less, is drawn in the middle.
    Copying heads have their points to the right. Raises UnknownName for a head or matrix that the table lacks.
    (Elhage et al. 2021, "Detecting copying behavior".)

    >>> from headway.circuits import copying_eigenvalues
    >>> from headway.sources.handmade import copying_model
    >>> table = copying_eigenvalues(copying_model(d_vocab=9, bos=False).weights)
    >>> eigenvalue_plane(table, head="L0H0").describe().partition(".")[0]
    '9 points'
    """
    if not isinstance(eigenvalues, Table) or "modulus" not in eigenvalues.columns:
        got, hint = type(eigenvalues).__name__, "copying_eigenvalues(weights) makes it"
        raise UsageError("not a table of eigenvalues", expected="head, matrix, modulus, angle", got=got, next_step=hint)
    if matrix not in MATRICES:
        raise UnknownName("no such matrix", expected=" or ".join(MATRICES), got=repr(matrix))
    every = eigenvalues.rows()
    rows = [row for row in every if (row["head"], row["matrix"]) == (str(head), matrix)]
    if not rows:
        there = ", ".join(dict.fromkeys(row["head"] for row in every)) or "none"
        raise UnknownName("no eigenvalues of this head in the table", expected=f"one of: {there}", got=repr(head))
    moduli = np.array([row["modulus"] or 0.0 for row in rows])
    angles = np.array([row["angle"] or 0.0 for row in rows])
    least = moduli.max() / 10**_DECADES
    radius = np.log10(np.maximum(moduli / least, 1)) if least else moduli
    of = "W_U W_OV W_E" + (", W_U centred" if matrix == "centred" else "")
    return Scatter(
        f"Eigenvalues of {head}",
        radius * np.cos(angles),
        radius * np.sin(angles),
        [f"{row['modulus']:.3g}" if row["modulus"] is not None else "too large" for row in rows],
        x_axis=f"real direction, decades above {least:.2g} logits",
        y_axis="imaginary direction, decades",
        caption=f"Of {of}, angles as they are. To the right: raises what it reads. Below the least shown: at 0.",
    )


def _merge(row: dict[str, Any], more: Mapping[str, Any]) -> None:
    if more["flag"]:
        row["flag"].append(more["flag"])
    row |= {name: value for name, value in more.items() if name not in {"flag", "head"}}


def _compared(row: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the measures agree, and the words."""
    words = says(row)
    if not words:
        return {"agree": None, "verdict": None}
    groups = {word: [m for m in words if words[m] == word] for word in (COPY, LOWER, NEITHER)}
    there = {word: measures for word, measures in groups.items() if measures}
    if len(there) == 1:
        return {"agree": True, "verdict": next(iter(there))}
    return {"agree": False, "verdict": "; ".join(f"{word}: {', '.join(which)}" for word, which in there.items())}


def _word(copies: bool, lowers: bool) -> str:
    return COPY if copies else LOWER if lowers else NEITHER


def _rules() -> dict[str, str]:
    """What each measure needs to say `copies`, and `lowers`."""
    eigen = f"ratio >= {COPIES} and z >= {COPIES_Z}; ratio <= {-COPIES} and z <= {-COPIES_Z}"
    return {
        MEASURES[0]: eigen,
        MEASURES[1]: eigen,
        MEASURES[2]: f"diagonal_in_sd >= {DIAGONAL}; <= {-DIAGONAL}",
        MEASURES[3]: f"top5 >= {TOKENS} and bottom5 below it; bottom5 >= {TOKENS} and top5 below it",
        MEASURES[4]: f"score >= {4 * RATIO - 1}; score + 1 <= {LOWERS} (score by chance + 1)",
        "agree": "all measures with a value say the same of copies, lowers, neither",
    }
