"""`headway inspect MODEL`."""

from __future__ import annotations

from headway.apps.cli.options import Output
from headway.apps.cli.output import show


def inspect(model: str, *, output: Output = Output()) -> None:
    """Sizes, norm, positions, and which analyses apply and which do not and why. Reads headers only.

    Parameters
    ----------
    model
        A path (archive, RUN, RUN@STEP) or zoo:NAME.
    """
    from headway.sources.open import inspect as inspect_model

    show(inspect_model(model), "inspect", output)
