"""`headway trigrams MODEL [HEAD]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from headway.apps.cli.options import Compute, Model, TableOutput, Text
from headway.apps.cli.output import Report, progress, remark, show
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.model.weights import Weights
    from headway.tables.table import Table

WANTED = {
    "trigrams": ("head", "source", "destination", "out", "effect", "form", "count", "expected", "attention", "ov"),
    "bugs": ("head", "source", "destination", "out", "effect", "with_out", "with_destination", "count_pair"),
    "cost": ("head", "triples", "touched", "cost", "cost_se", "benefit", "cost_share"),
}
_SHOWN, _SEARCHED = 20, 1000  # triples shown, and triples searched for bugs, when nobody says how many


@Parameter(name="*")
@dataclass(frozen=True)
class Asked:
    """What is asked of the skip-trigrams.

    Parameters
    ----------
    source
        Only triples with this source: its text, its label, or #ID.
    destination
        Only triples with this destination.
    lowered
        Those lowered most instead of those raised most.
    bugs
        Triples that the head must raise because it raises two others, though the text never has them.
    cost
        What the bugs cost: loss that correcting each triple by itself takes off on other text, by head.
    search
        With --bugs or --cost: how many raised triples are looked at, 1000 when left out.
    top
        Only so many rows: 20 skip-trigrams when left out, all rows with --bugs or --cost.
    """

    source: str | None = None
    destination: str | None = None
    lowered: Annotated[bool, Parameter(show_default=False)] = False
    bugs: Annotated[bool, Parameter(show_default=False)] = False
    cost: Annotated[bool, Parameter(show_default=False)] = False
    search: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    top: Annotated[int | None, Parameter(validator=Number(gte=1))] = None

    def kind(self) -> str:
        """`trigrams`, `bugs` or `cost`."""
        if self.bugs and self.cost:
            raise UsageError("--bugs and --cost are questions of their own", expected="one of them")
        kind = "bugs" if self.bugs else "cost" if self.cost else "trigrams"
        picked = {"--source": self.source, "--destination": self.destination, "--lowered": self.lowered or None}
        given = [name for name, value in picked.items() if value is not None]
        if kind != "trigrams" and given:
            raise UsageError(f"{given[0]} picks skip-trigrams", expected=f"no --{kind} with it")
        if kind == "trigrams" and self.search is not None:
            raise UsageError("--search is of raised triples to look for bugs in", expected="--bugs or --cost with it")
        return kind


def trigrams(
    model: Model,
    head: str | None = None,
    /,
    *,
    asked: Asked = Asked(),
    study: Text = Text(),
    compute: Compute = Compute(),
    output: TableOutput = TableOutput(),
) -> None:
    """Skip-trigrams [source ... destination -> out] with the largest effects, exact, with corpus counts beside.

    Parameters
    ----------
    head
        Such as L0H3; every head together when left out.
    """
    kind = asked.kind()
    weights = compute.open(model)
    with progress({"cost": "fitting corrections"}.get(kind, "searching triples"), output) as report:
        table = _table(weights, head, (kind, asked), study, report)
    show(table, "trigrams", output, top=None if kind == "trigrams" else asked.top, wanted=WANTED[kind])
    for said in [*([table.meta["empty"]] if "empty" in table.meta else []), *table.meta.get("notes", [])]:
        remark(str(said), output)
    if kind == "trigrams" and asked.top is None and len(table) == _SHOWN:
        remark(f"The {_SHOWN} largest: --top N shows more", output)


def _table(weights: Weights, head: str | None, how: tuple[str, Asked], study: Text, report: Report) -> Table:
    from headway.circuits.trigram_bugs import skip_trigram_bugs
    from headway.circuits.trigram_context import TrigramContext
    from headway.circuits.trigrams import TrigramPick, skip_trigrams
    from headway.studies.texts import study_text
    from headway.studies.trigram_cost import CostTexts, skip_trigram_cost

    kind, asked = how
    searched = asked.search or _SEARCHED
    given = None if study.text is None else study_text(weights, study.text).ids
    if kind == "cost":
        return skip_trigram_cost(weights, head, k=searched, texts=CostTexts(judge=given), progress=report)
    context = TrigramContext(text=given)
    if kind == "bugs":
        return skip_trigram_bugs(weights, head, k=searched, context=context)
    pick = TrigramPick(largest=not asked.lowered, source=asked.source, destination=asked.destination)
    return skip_trigrams(weights, head, k=asked.top or _SHOWN, pick=pick, context=context)
