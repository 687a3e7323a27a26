"""`headway compose MODEL`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from headway.apps.cli.options import Compute, Output
from headway.apps.cli.output import show


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
    processing
        Weights as stored (raw), or norm gains folded and reads centred (folded).
    offset
        Destination minus source, which matters for rotary models.
    """

    via: Literal["Q", "K", "V"] | None = None
    reader: str | None = None
    processing: Literal["raw", "folded"] = "folded"
    offset: int = 0


def compose(
    model: str,
    *,
    pairs: Pairs = Pairs(),
    top: int | None = None,
    compute: Compute = Compute(),
    output: Output = Output(),
) -> None:
    """Composition scores of every allowed pair of heads, with the rotation null, percentile and reversed pair.

    Parameters
    ----------
    model
        A path (archive, RUN, RUN@STEP) or zoo:NAME.
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
    show(table, "compose", output, top=top)
