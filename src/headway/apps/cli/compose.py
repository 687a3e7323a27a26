"""`headway compose MODEL`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from headway.apps.cli.options import Compute, Model, Processing, TableOutput, Text
from headway.apps.cli.output import remark, show
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.model.weights import Weights
    from headway.tables.table import Table

Measure = Literal["frobenius", "tight", "tokens", "components", "kernel", "cyclic", "terms", "data"]
_SCORES = ("reader", "writer", "via", "score", "z", "percentile", "reverse_score", "null_rms")
WANTED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("frobenius", "tight", "tokens", "cyclic"), _SCORES),
    "components": ("reader", "writer", "via", "component", "score", "z", "share", "dims"),
    "kernel": ("reader", "writer", "via", "score", "null_mean", "z", "share", "percentile", "reverse_score"),
    "terms": ("reader", "writer", "via", "positivity", "positivity_z", "positivity_centred", "trace", "trace_z"),
    "data": ("reader", "via", "source", "share", "share_se", "z"),
}
_WINDOWS = 16  # of text, for shares of a recording


@Parameter(name="*")
@dataclass(frozen=True)
class Pairs:
    """Which pairs, and how they are measured.

    Parameters
    ----------
    measure
        frobenius: the paper's score. tight: over the largest value these singular values allow. tokens: in the basis of
        tokens, whatever the basis of the stream. components: for each singular component of what the writer writes.
        kernel: dimensions shared. cyclic: the score of the published erratum, no composition. terms: positivity of the
        token-level term (Q, K). data: share of the variance of the reader's scores on a text.
    via
        Only composition into the reader's Q, K or V.
    reader
        Only pairs with this reader, such as L1H3.
    offset
        Destination minus source, which matters for rotary models.
    """

    measure: Measure = "frobenius"
    via: Literal["Q", "K", "V"] | None = None
    reader: str | None = None
    processing: Processing = "folded"
    offset: Annotated[int, Parameter(validator=Number(gte=0))] = 0


def compose(
    model: Model,
    /,
    *,
    pairs: Pairs = Pairs(),
    study: Text = Text(),
    top: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    compute: Compute = Compute(),
    output: TableOutput = TableOutput(),
) -> None:
    """Composition scores of every allowed pair of heads, with the rotation null, percentile and reversed pair.

    Parameters
    ----------
    top
        Only this many rows.
    """
    if pairs.measure != "data" and study.text is not None:
        raise UsageError("--text is read by one measure", expected="--measure data with it", got=pairs.measure)
    if pairs.measure == "data" and (pairs.offset or pairs.processing != "folded"):
        raise UsageError("--measure data is of a recording", expected="no --offset or --processing with it")
    if pairs.measure in {"terms", "data"} and pairs.via == "V":
        raise UsageError(f"--measure {pairs.measure} is of scores", expected="--via Q or --via K", got="V")
    weights = compute.open(model)
    table = _shares(weights, pairs, study) if pairs.measure == "data" else _scores(weights, pairs)
    show(table, "compose", output, top=top, wanted=WANTED[pairs.measure])
    if pairs.measure == "cyclic":
        remark("This is not composition: it is the score that the published diagram showed by mistake", output)


def _scores(weights: Weights, pairs: Pairs) -> Table:
    from headway.circuits.components import component_composition_scores
    from headway.circuits.composition import composition_scores, tight_composition_scores
    from headway.circuits.cyclic import cyclic_scores
    from headway.circuits.kernel import projection_kernel
    from headway.circuits.token_basis import token_basis_composition_scores
    from headway.circuits.token_terms import token_term_scores

    measures: dict[str, Callable[..., Any]] = {
        "frobenius": composition_scores,
        "tight": tight_composition_scores,
        "tokens": token_basis_composition_scores,
        "components": component_composition_scores,
        "kernel": projection_kernel,
        "cyclic": cyclic_scores,
        "terms": token_term_scores,
    }
    measure = measures[pairs.measure]
    return measure(weights, via=pairs.via, reader=pairs.reader, processing=pairs.processing, offset=pairs.offset)


def _shares(weights: Weights, pairs: Pairs, study: Text) -> Table:
    from headway.behaviour.data_share import composition_data_share
    from headway.behaviour.windows import text_windows
    from headway.model.forward import run
    from headway.studies.texts import study_text
    from headway.tables.table import Table

    windows = text_windows(study_text(weights, study.text).ids, weights.config, limit=_WINDOWS)
    table = composition_data_share(run(weights, windows[:, :-1].to(weights.device)), pairs.reader)
    if pairs.via is None:
        return table
    frame = table.frame.filter(table.frame["via"] == pairs.via)
    return Table(frame, table.columns, table.provenance.with_options(None, via=pairs.via), table.meta)
