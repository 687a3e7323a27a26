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
    "terms": (
        "Through an earlier head, a token can score a source by what stood elsewhere: `W_E^T W_QK W_OV W_E`. Where "
        "all its eigenvalues are positive, tokens look for themselves, and with an OV circuit that copies this is "
        "induction, read off the weights alone: induction heads stand in the corner (1, 1). Beside it, on text, the "
        "share of the variance of each head's scores that comes from each source: what composition is worth where the"
        " head is at work. A share can be negative, and all shares of a side add up to 1.",
    ),
    "virtual": (
        "Two heads in a row act as one head, with an OV circuit that is the product of theirs and a pattern that is "
        "the product of theirs. Here are those with the largest V-composition.",
    ),
    "copying": (
        "One word, several measures: eigenvalue ratios raw and centred, the diagonal of the OV circuit in tokens, the"
        " share of tokens whose own logit is among the five raised most, and what the head does on random tokens "
        "(Olsson et al. 2022). Where they do not say the same, the head is one that no single number describes; the "
        "rule by which each says `copies` stands in the table's meta.",
    ),
    "trigrams": (
        "`[source ... destination -> out]`: how much one source in an average context moves a logit at the "
        "destination, the attention to it times what it moves. The list is exact over all triples of all heads. "
        "Counts are of the text: large effects are often of triples that no text has.",
        "A head cannot mean a triple: it raises every out of a source from every destination that looks for the "
        "source. A bug is a triple that it must raise because it raises two others, and that the text never has where"
        " it could. Its cost is the loss that correcting each triple by itself takes off text it was not fitted on; "
        "below zero, or within its error, the corrections are worth nothing.",
    ),
    "stream": (
        "Which dimensions of the stream each writer has more or less to itself, how far the spaces that heads read "
        "and write overlap beside what random directions would give, which heads take away what they read (negative "
        "eigenvalues of `W_OV`; whether they do so at the token itself only attention tells), and how the embedding "
        "and the unembedding share directions: a mix of 1 is the embedding's alone, -1 the unembedding's.",
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
    "induction-scatter": "Pairs of heads by positivity of the token-level term and of the reader's OV circuit",
    "data-share": "Where the variance of scores comes from, on text",
    "virtual-heads": "Virtual heads with the largest V-composition",
    "copying-compared": "Every measure of copying, and whether they agree",
    "skip-trigrams": "Skip-trigrams with the largest effects, all heads together",
    "trigram-bugs": "Bugs implied by the skip-trigrams raised most",
    "trigram-cost": "What correcting these triples takes off the loss of text they were not fitted on",
    "write-shares": "Who writes where",
    "memory": "Eigenvalues of W_OV in the stream, most erasing first",
    "space-overlaps": "Spaces of different heads that overlap most",
    "stream-components": "Joint principal components of embedding and unembedding",
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
        ("induction-scatter", _corner),
        ("copying-compared", _copying),
        ("skip-trigrams", _trigrams),
        ("trigram-cost", _cost),
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


def _corner(table: Table) -> list[str]:
    row = next((r for r in table.rows() if r["corner"] is not None), None)
    if row is None:
        return ["Of no pair of heads is the token-level term known."]
    return [
        f"By weights alone, {row['reader']} through {row['writer']} is nearest to induction: positivity of the token-level "
        f"term {row['qk']:.2f}, of its OV circuit {row['ov']:.2f}."
    ]


def _copying(table: Table) -> list[str]:
    rows = table.rows()
    copy = [r["head"] for r in rows if r["verdict"] == "copies"]
    differ = [r["head"] for r in rows if r["agree"] is False]
    named = ", ".join(copy) or "none"
    return [f"By every measure these heads copy: {named}; the measures differ on {', '.join(differ) or 'none'}."]


def _trigrams(table: Table) -> list[str]:
    rows = table.rows()
    if not rows:
        return [f"No skip-trigrams: {table.meta.get('empty', 'no effects')}."]
    row, text = rows[0], [r for r in rows if r["count"]]
    names = [row[place] or f"#{row[place + '_id']}" for place in ("source", "destination", "out")]
    there = f"; {len(text)} of the {len(rows)} largest stand in the text" if row["count"] is not None else ""
    said = f"{names[0]} ... {names[1]} -> {names[2]} by {row['head']}, {row['effect']:.1f} logits"
    return [f"Largest skip-trigram: {said}{there}."]


def _cost(table: Table) -> list[str]:
    rows = [r for r in table.rows() if r["cost_se"]]
    if not rows:
        return []
    most = max(rows, key=lambda r: r["cost"])
    worth = f"{most['cost']:.0e} ± {most['cost_se']:.0e} nats a token"
    above = most["cost"] > 2 * most["cost_se"]
    lead = "Skip-trigram bugs cost up to" if above else "What skip-trigram bugs cost cannot be told from nothing:"
    looked = f"{most['head']}, on the {counted(most['triples'], 'triple')} looked at"
    return [f"{lead} {worth} ({looked}; its own term takes off {most['benefit']:.2f})."]


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
