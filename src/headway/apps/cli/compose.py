"""`headway compose MODEL`."""

from __future__ import annotations

from typing import Literal

from headway.apps.cli.options import Compute, Output
from headway.apps.cli.output import show


def compose(
    model: str,
    *,
    via: Literal["Q", "K", "V"] | None = None,
    reader: str | None = None,
    processing: Literal["raw", "folded"] = "folded",
    offset: int = 0,
    top: int | None = None,
    compute: Compute = Compute(),
    output: Output = Output(),
) -> None:
    """Composition scores of every allowed pair of heads, with the rotation null, percentile and reversed pair.

    Parameters
    ----------
    model
        A path (archive, RUN, RUN@STEP) or zoo:NAME.
    via
        Only composition into the reader's Q, K or V.
    reader
        Only pairs with this reader, such as L1H3.
    processing
        Weights as stored (raw), or norm gains folded and reads centred (folded).
    offset
        Destination minus source, which matters for rotary models.
    top
        Only this many rows.
    """
    from headway.circuits import composition_scores

    weights = compute.open(model)
    table = composition_scores(weights, via=via, reader=reader, processing=processing, offset=offset)
    show(table, "compose", output, top=top)
