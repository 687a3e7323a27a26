"""`report_model`: the whole study of one attention-only model, as tables, pictures and a summary in plain words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.behaviour.icl import in_context_score, loss_by_position
from headway.behaviour.repeated import induction_gain
from headway.behaviour.windows import text_windows, window_losses
from headway.circuits import composition_scores, direct_path_study
from headway.errors import TextProblem, WriteProblem, check_kind, check_path
from headway.model.weights import Weights, check_weights
from headway.paths.importance import term_importance
from headway.studies import pictures, words
from headway.studies.circuit_tables import circuit_tables
from headway.studies.heads import head_atlas, random_pool, repeat_length
from headway.studies.induction import induction_circuits
from headway.studies.texts import StudyText, check_text, study_text
from headway.tables.atomic import write_bytes_atomic
from headway.tables.files import write_table
from headway.tables.table import Table
from headway.views.page import Page, PageTable, Section, page_html

Stage = Callable[[str, int, int], object]

# Windows of text read: enough for standard errors of a hundredth of a nat, few enough for a minute on two cores.
_OF_TEXT = ("importance", "loss-by-position", "in-context-score", "data-share")
_OF_PAIRS = ("composition", "induction-circuits")
LOSS_WINDOWS, ORDER_WINDOWS, PATTERN_WINDOWS = 512, 128, 64


@dataclass(frozen=True, eq=False)
class Report:
    """A finished study.

    summary: what a person should know, a sentence each. tables: by name, each with units and provenance. page: all of it
    with pictures, ready for `page_html`. missing: every part that does not apply to this model, and why; its table is not
    there or is empty.
    """

    summary: tuple[str, ...]
    tables: Mapping[str, Table]
    missing: Mapping[str, str]
    page: Page

    def _repr_html_(self) -> str:
        return "<ul>" + "".join(f"<li>{words.escaped(line)}</li>" for line in self.summary) + "</ul>"


def report_model(
    weights: Weights,
    text: StudyText | None = None,
    *,
    name: str = "model",
    processing: str = "folded",
    seed: int = 0,
    progress: Stage | None = None,
) -> Report:
    """Study one model: direct path, heads, composition, induction circuits, path orders, loss along the context.

    text: default as `study_text` chooses; a model that no text can be read for gets the parts that need none. name: what
    to call the model. processing: of the weights behind copying and composition. progress: called with (stage, done,
    total). Every table stands in `tables` with what its numbers mean; what does not apply is in `missing`, with why.
    """
    check_weights(weights)
    check_text(text)
    check_kind(name, str, "name of a model", expected="text")
    missing: dict[str, str] = {}
    if text is None:
        try:
            text = study_text(weights)
            text_windows(text.ids, weights.config, limit=1)
        except TextProblem as problem:
            text = None
            missing |= dict.fromkeys(("patterns on text", *_OF_TEXT), str(problem).rstrip("."))
    step = _Steps(progress)
    tables: dict[str, Table] = {}
    atlas = head_atlas(
        weights, text, processing=processing, windows=PATTERN_WINDOWS, seed=seed, progress=step("reading patterns")
    )
    tables["heads"] = atlas
    tables["composition"] = composition_scores(weights, processing=processing)
    tables["induction-circuits"] = induction_circuits(atlas, tables["composition"])
    missing |= _without_heads(weights, tables)
    _induction(weights, tables, missing, seed)
    if text is not None:
        _losses(weights, text, tables, missing, step)
    _direct_path(weights, tables, missing, step)
    if len(atlas):
        more, absent = circuit_tables(weights, text, seed, step)
        tables |= more
        missing |= absent
    summary = words.summary(weights, tables, missing)
    return Report(summary, tables, missing, _page(weights, tables, missing, summary, (name, text, seed)))


def write_report(report: Report, folder: str | Path) -> Path:
    """Write `report.html` and `tables/NAME.parquet`; each file complete or not at all, the page last.

    Returns the path of the page. Raises WriteProblem when the folder cannot be made or written.
    """
    check_kind(report, Report, "not a report", expected="a Report", next_step="report_model(weights) makes one")
    check_path(folder, "the folder of a report")
    folder = Path(folder)
    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteProblem("the report folder cannot be made", where=str(folder), got=error.strerror) from error
    for name, table in report.tables.items():
        write_table(table, folder / "tables" / f"{name}.parquet")
    write_bytes_atomic(folder / "report.html", page_html(report.page).encode())
    return folder / "report.html"


def _without_heads(weights: Weights, tables: Mapping[str, Table]) -> dict[str, str]:
    """What a model of these sizes leaves nothing to study of; its tables are there and empty."""
    if not len(tables["heads"]):
        why = "the model has no heads"
        of_heads = ("heads", "copying", "patterns on text", "skip-trigrams", "use of the stream")
        return dict.fromkeys((*of_heads, *_OF_PAIRS), why)
    found: dict[str, str] = {}
    if not len(tables["composition"]):
        found |= dict.fromkeys(_OF_PAIRS, str(tables["composition"].meta["empty"]))
    if not repeat_length(weights, random_pool(weights), most=25, copies=4):
        found["prefix matching"] = _too_small(weights)
    return found


def _too_small(weights: Weights) -> str:
    c = weights.config
    return f"vocabulary or context is too small to repeat random tokens (d_vocab={c.d_vocab}, n_ctx={c.n_ctx})"


class _Steps:
    """Named stages of the work, each with its own count."""

    def __init__(self, progress: Stage | None) -> None:
        self._progress = progress

    def __call__(self, stage: str) -> Callable[[int, int], object]:
        def report(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(stage, done, total)

        return report


def _induction(weights: Weights, tables: dict[str, Table], missing: dict[str, str], seed: int) -> None:
    """Induction gain on repeated random tokens, as long as half a context allows and at most 50."""
    pool = random_pool(weights)
    length = repeat_length(weights, pool, most=50, copies=2)
    if not length:
        missing["induction-gain"] = _too_small(weights)
        return
    tables["induction-gain"] = induction_gain(weights, length=length, seed=seed, pool=pool)


def _losses(weights: Weights, text: StudyText, tables: dict[str, Table], missing: dict[str, str], step: _Steps) -> None:
    """Loss by position, in-context score and loss by path order, on windows of the text."""
    windows = text_windows(text.ids, weights.config, limit=LOSS_WINDOWS)
    losses = window_losses(weights, windows, progress=step("reading losses"))
    tables["loss-by-position"] = loss_by_position(weights, windows, losses=losses)
    n = losses.shape[1]
    if n >= 16:
        # Single positions, as in the paper, would need its 10,000 texts: stretches say the same with fewer.
        late, early = (n - n // 8, n - 1), (n // 16, n // 8 - 1)
        tables["in-context-score"] = in_context_score(weights, windows, late=late, early=early, losses=losses)
    else:
        missing["in-context-score"] = (
            f"the context is too short for an early and a late stretch (n_ctx={weights.config.n_ctx})"
        )
    few = text_windows(text.ids, weights.config, limit=ORDER_WINDOWS)
    tables["importance"] = term_importance(weights, few, progress=step("counting paths by order"))


def _direct_path(weights: Weights, tables: dict[str, Table], missing: dict[str, str], step: _Steps) -> None:
    if weights.carried is None:
        missing["direct-path"] = "the model carries no bigram counts of its training text"
        return
    if weights.carried.validation.size < weights.config.n_ctx or weights.carried.heldout.size < weights.config.n_ctx:
        missing["direct-path"] = "the validation or held-out text it carries is shorter than one window"
        return
    counts = weights.carried.bigram_table(weights.config.d_vocab)
    if not counts.any():
        missing["direct-path"] = "the model carries no bigram counts of its training text"
        return
    step("fitting bigram tables")(0, 1)
    tables["direct-path"] = direct_path_study(weights, counts, weights.carried.validation, weights.carried.heldout)
    step("fitting bigram tables")(1, 1)


def _page(
    weights: Weights,
    tables: Mapping[str, Table],
    missing: Mapping[str, str],
    summary: tuple[str, ...],
    about: tuple[str, StudyText | None, int],
) -> Page:
    name, text, seed = about
    sections = [
        Section(
            title,
            paragraphs=words.EXPLANATIONS[key],
            figures=pictures.of(key, weights, tables, seed),
            tables=[PageTable(words.CAPTIONS[t], tables[t]) for t in names if t in tables and t not in missing],
            notes=[f"{t}: not here, because {missing[t]}." for t in names if t in missing],
        )
        for key, title, names in SECTIONS
        if any(t in tables or t in missing for t in names)
    ]
    lead = list(summary)
    if text is not None:
        lead.append(f"Text: {text.description}.")
    return Page(
        title=f"Study of {name}",
        lead=lead,
        facts=words.facts(weights, tables),
        sections=sections,
        provenance=tables["heads"].provenance,
        command=f"headway report {name}",
    )


SECTIONS = (
    ("direct", "Direct path: a bigram table", ("direct-path",)),
    ("heads", "What each head does", ("heads",)),
    ("composition", "How heads compose", ("composition",)),
    ("induction", "Induction circuits", ("induction-circuits", "induction-gain")),
    ("terms", "Looking for one's own token", ("induction-scatter", "data-share")),
    ("virtual", "Virtual heads", ("virtual-heads",)),
    ("copying", "Copying, compared", ("copying-compared",)),
    ("trigrams", "Skip-trigrams and their bugs", ("skip-trigrams", "trigram-bugs", "trigram-cost")),
    ("stream", "Who uses the stream", ("write-shares", "memory", "space-overlaps", "stream-components")),
    ("importance", "Loss by path order", ("importance",)),
    ("context", "Loss along the context", ("in-context-score", "loss-by-position")),
)
