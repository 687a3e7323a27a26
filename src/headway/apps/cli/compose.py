"""`headway compose MODEL`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from headway.apps.cli.options import Compute, Model, Processing, TableOutput
from headway.apps.cli.output import show

WANTED = ("reader", "writer", "via", "score", "z", "percentile", "reverse_score", "null_rms")


@Parameter(name="*")
@dataclass(frozen=True)
class Pairs:
    """Which pairs, and how they are measured.

    Parameters
    ----------
    via
        Only composition into the reader's Q, K or V.
    reader
        Only pairs with this reader, such as L1H3.
    offset
        Destination minus source, which matters for rotary models.
    """

    via: Literal["Q", "K", "V"] | None = None
    reader: str | None = None
    processing: Processing = "folded"
    offset: Annotated[int, Parameter(validator=Number(gte=0))] = 0


def compose(
    model: Model,
    /,
    *,
    pairs: Pairs = Pairs(),
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
    from headway.circuits.composition import composition_scores

    table = composition_scores(
        compute.open(model),
        via=pairs.via,
        reader=pairs.reader,
        processing=pairs.processing,
        offset=pairs.offset,
    )
    show(table, "compose", output, top=top, wanted=WANTED)
