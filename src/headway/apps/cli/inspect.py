"""`headway inspect MODEL`."""

from __future__ import annotations

from headway.apps.cli.options import Model, TableOutput
from headway.apps.cli.output import show


def inspect(model: Model, /, *, output: TableOutput = TableOutput()) -> None:
    """Sizes, norm, positions, and which analyses apply and which do not and why. Reads headers only."""
    from headway.sources.open import inspect as inspect_model

    show(inspect_model(model), "inspect", output)
