"""The sentences of a report: what its numbers say, and what each section means."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import counted
from headway.model.weights import Weights
from headway.tables.table import Table

EXPLANATIONS: dict[str, tuple[str, ...]] = {
    "direct": (
        "With no head on the way, the model predicts the next token from the last one alone: `W_U W_E` is a table of "
        "bigram log-likelihoods. Beside it stand the best smoothed table of the training text's bigrams (smoothing fitted "
        "on validation text) and the best table of the same rank. In a model with layers the direct path need not be a "
        "good bigram table: heads share the work.",
    ),
    "heads": (
        "A head is two circuits: QK decides where it attends, OV what it moves. Copying says that the OV circuit raises "
        "the token it attends to: the sum of the eigenvalues of `W_U W_OV W_E` over the sum of their absolute values, 1 "
        "for a pure copier and near 0 by chance. Prefix matching is attention, on repeated random tokens, to what came "
        "after the last occurrence of the present token.",
        "The kind is the first that fits; its evidence stands beside it. `unexplained` is an honest answer.",
    ),
    "composition": (
        "How much of what a writer writes lies where a reader's Q, K or V reads. Under a random rotation between the two "
        "the mean square of the score is 1/d; z is the distance from that, of the square. Trained heads share active "
        "directions, so a high z alone proves nothing: see the percentile among all pairs, and the reversed pair, which no "
        "information can flow through. Scores are of weights with their norms folded in; without a norm there is nothing "
        "to fold, and `raw` stands beside them.",
    ),
    "induction": (
        "An induction head completes `[A B ... A]` with `B`. It needs an earlier head that writes at each position what "
        "stood before it, a K-composition with that head, a pattern that matches prefixes, and an OV circuit that copies; "
        "or, where the stream holds positions, an earlier head that writes where the copy stands, and a Q-composition. "
        "The margin is to the first writer that is no previous-token head (via Q: no duplicate-token head).",
        "Induction gain is the loss on the second half of a random text when that half is shuffled, minus the loss when it "
        "repeats the first half in order: copying without order gains nothing. Random tokens are unlike any text, so both "
        "losses may lie above what a uniform guess costs (ln of the vocabulary); their difference is what counts.",
    ),
    "importance": (
        "Patterns and norm scales are held as the model made them; then the loss of all paths with at most k heads is "
        "taken for each k. Order 0 is the direct path, measured against a uniform guess; order 2 are virtual heads. The "
        "loss is over the windows stated, spread evenly over the text; the loss on a model's card is over more of them.",
    ),
    "context": (
        "Loss by how much text stands before. The in-context score is the loss late in the context minus the loss early "
        "in it, at the positions stated: negative when reading more helps.",
    ),
}

CAPTIONS = {
    "direct-path": "Held-out loss of the direct path beside bigram tables, on the same pairs of tokens",
    "heads": "The heads",
    "composition": "Composition scores, highest first",
    "induction-circuits": "Readers that match prefixes, with their best writers",
    "induction-gain": "Induction gain on repeated random tokens",
    "importance": "Marginal loss reduction by path order",
    "in-context-score": "In-context-learning score",
    "loss-by-position": "Loss by position",
}


def summary(weights: Weights, tables: Mapping[str, Table], missing: Mapping[str, str]) -> tuple[str, ...]:
    """The report in sentences: model, direct path, heads, circuits, orders, gain; and all that was not studied, and why."""
    lines = [_model(weights)]
    for name, say in (
        ("direct-path", _direct),
        ("heads", _heads),
        ("induction-circuits", _circuits),
        ("importance", _orders),
        ("induction-gain", _gain),
    ):
        if name in tables and name not in missing:
            lines += say(tables[name])
    because: dict[str, list[str]] = {}
    for name, why in missing.items():
        because.setdefault(why, []).append(name)
    lines += [f"Not studied: {', '.join(names)} ({why})." for why, names in because.items()]
    return tuple(lines)


def facts(weights: Weights, tables: Mapping[str, Table]) -> list[tuple[str, str]]:
    """The few numbers that stand large at the top of the page."""
    c = weights.config
    out = [("layers × heads", f"{c.n_layers} × {c.n_heads if c.n_layers else 0}")]
    if "importance" in tables and tables["importance"].meta["clean_loss"] is not None:
        out.append(("loss, nats", f"{tables['importance'].meta['clean_loss']:.3f}"))
    if "induction-gain" in tables and _row(tables["induction-gain"])["induction_gain"] is not None:
        out.append(("induction gain, nats", f"{_row(tables['induction-gain'])['induction_gain']:.2f}"))
    if len(tables["induction-circuits"]):
        complete = [r for r in tables["induction-circuits"].rows() if r["complete"]]
        out.append(("induction circuit" + "s" * (len(complete) != 1), str(len(complete))))
    return out


def escaped(text: str) -> str:
    """For notebooks, where a summary is shown as HTML."""
    return html.escape(text)


def _model(weights: Weights) -> str:
    c = weights.config
    size = sum(t.numel() for t in weights.tensors().values())
    layers = f"{counted(c.n_layers, 'attention layer')} of {counted(c.n_heads, 'head')}" if c.n_layers else "no layers"
    card = weights.carried.card if weights.carried else {}
    corpus = card.get("corpus")
    described = corpus.get("description") if isinstance(corpus, Mapping) else None
    trained = f", trained on {described}" if described else ""
    return (
        f"A model with {layers}, d_model {c.d_model}, d_head {c.d_head}, vocabulary {c.d_vocab:,}: "
        f"{size:,} weights, norm {c.norm}, positions {c.positions}{trained}."
    )


def _direct(table: Table) -> list[str]:
    losses = {row["table"]: row["heldout_loss"] for row in table.rows()}
    direct, best = losses.get("direct path"), losses.get("smoothed bigrams")
    if direct is None or best is None:
        flags = "; ".join(dict.fromkeys(row["flag"] for row in table.rows() if row["flag"]))
        return [f"The direct path cannot be compared with bigram tables: {flags or 'a loss is not known'}."]
    alone = losses.get("unigram")
    unigram = f", token frequencies alone {alone:.3f}" if alone is not None else ""
    return [
        f"Alone, the direct path predicts held-out text at {direct:.3f} nats a token; the best smoothed bigram table "
        f"reaches {best:.3f} ({direct - best:+.3f}){unigram}."
    ]


def _heads(table: Table) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for row in table.rows():
        kinds.setdefault(row["kind"], []).append(row["head"])
    named = [f"{kind} {', '.join(heads)}" for kind, heads in kinds.items() if kind != "unexplained"]
    rest = len(kinds.get("unexplained", []))
    return [f"Heads by kind: {'; '.join(named) or 'none fits a kind'}" + (f"; {rest} unexplained." if rest else ".")]


_SIDES = {"K": "keys", "Q": "queries"}


def _circuits(table: Table) -> list[str]:
    if not len(table):
        return [f"No induction circuit: {table.meta['why_empty']}."]
    lines = []
    for row in table.rows():
        margin = f", {row['margin']:+.3f} over {row['next_writer']}" if row["margin"] is not None else ""
        state = "complete" if row["complete"] else f"incomplete: {row['missing']}"
        lines.append(
            f"Induction: {row['reader']} reads through its {_SIDES[row['via']]} what {row['writer']} wrote ({row['via']}-"
            f"composition {row['composition']:.3f}, z {_short(row['z'])}{margin}); prefix matching "
            f"{row['reader_prefix_matching']:.2f}, copying {_short(row['reader_copying'], 2)}: {state}."
        )
    return lines


def _orders(table: Table) -> list[str]:
    parts = [f"order {row['order']} takes off {_short(row['reduction'], 3)} nats" for row in table.rows()]
    return [
        f"By path order: {'; '.join(parts)}; loss {_short(table.meta['clean_loss'], 3)} on "
        f"{counted(table.meta['windows'], 'window')} of the text."
    ]


def _gain(table: Table) -> list[str]:
    row = _row(table)
    if row["induction_gain"] is None:
        return [f"The induction gain is not known: {row['flag']}."]
    error = f" ± {row['induction_gain_se']:.2f}" if row["induction_gain_se"] is not None else ""
    return [
        f"On repeated random tokens order is worth {row['induction_gain']:.2f}{error} nats a token (induction gain)."
    ]


def _row(table: Table) -> dict[str, Any]:
    rows: Sequence[dict[str, Any]] = table.rows()
    return rows[0]


def _short(value: float | None, digits: int = 0) -> str:
    return "unknown" if value is None else f"{value:.{digits}f}"
