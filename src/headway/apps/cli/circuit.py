"""`headway circuit MODEL HEAD ov|qk`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from headway.apps.cli.options import Compute, Model, TableOutput
from headway.apps.cli.output import Report, progress, remark, show
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.model.weights import Weights
    from headway.tables.table import Table

WANTED = {
    "entries": ("rank", "value", "destination", "source", "out", "destination_id", "source_id", "out_id"),
    "token": ("as", "rank", "token", "value", "token_id"),
    "svd": ("block", "side", "rank", "token", "value", "singular", "dims", "token_id", "share", "singular_least"),
    "positions": ("offset", "score", "fit", "share", "pairs"),
}
_ENTRIES, _ALONG, _BLOCKS = 20, 5, 4  # what is shown when nobody says how much

Count = Annotated[int | None, Parameter(validator=Number(gte=0))]


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """What of the circuit is read.

    Parameters
    ----------
    token
        Only what it says of this token: its text, its label, or #ID.
    svd
        Its singular directions, in tokens.
    positions
        How scores of position alone depend on the offset (qk only).
    offset
        Destination minus source, which matters to qk under rotary positions.
    top
        So many largest and so many smallest: 20 when left out, 5 tokens each way with --svd, all rows with --positions.
    directions
        With --svd: so many blocks of singular values, the strongest: 4 when left out.
    """

    token: str | None = None
    svd: Annotated[bool, Parameter(show_default=False)] = False
    positions: Annotated[bool, Parameter(show_default=False)] = False
    offset: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    top: Count = None
    directions: Count = None

    def kind(self, which: str) -> str:
        """`entries`, or the one other reading that was asked for."""
        asked = {"token": self.token is not None, "svd": self.svd, "positions": self.positions}
        found = [name for name, wanted in asked.items() if wanted]
        if len(found) > 1:
            both = " and ".join(f"--{name}" for name in found)
            raise UsageError(f"{both} are readings of their own", expected="one of --token, --svd, --positions")
        if self.positions and which != "qk":
            raise UsageError("--positions: positions enter scores, not what is moved", expected="qk", got=which)
        if self.directions is not None and not self.svd:
            raise UsageError("--directions is about singular directions", expected="--svd with it")
        if self.offset and (which != "qk" or self.positions):
            got = "--positions, which has all offsets" if which == "qk" else which
            raise UsageError(
                "--offset turns the contents of one qk circuit", expected="qk without --positions", got=got
            )
        return found[0] if found else "entries"


def circuit(
    model: Model,
    head: str,
    which: Literal["ov", "qk"],
    /,
    *,
    reading: Reading = Reading(),
    compute: Compute = Compute(),
    output: TableOutput = TableOutput(),
) -> None:
    """What one circuit of a head says in tokens: its extreme entries, one token's, or its singular directions.

    Parameters
    ----------
    head
        Such as L1H3: layer 1, head 3, from 0.
    which
        ov: what attending to a token does to the logits; qk: which tokens attend to which.
    """
    kind = reading.kind(which)
    weights = compute.open(model)
    with progress("reading entries", output) as report:
        table = _read(weights, head, which, (kind, reading), report)
    wanted = [name for name in WANTED[kind] if name in table.columns]
    show(table, "circuit", output, top=reading.top if kind == "positions" else None, wanted=wanted)
    for said in _remarks(table, kind, reading):
        remark(said, output)


def _read(weights: Weights, head: str, which: str, how: tuple[str, Reading], report: Report) -> Table:
    """The table of one reading."""
    from headway.circuits.directions import circuit_directions
    from headway.circuits.entries import circuit_entries, circuit_of_token
    from headway.circuits.offsets import offset_profile

    kind, asked = how
    if kind == "positions":
        return offset_profile(weights, head)
    if kind == "svd":
        k = _ALONG if asked.top is None else asked.top
        blocks = _BLOCKS if asked.directions is None else asked.directions
        return circuit_directions(weights, head, which, k=k, blocks=blocks, offset=asked.offset)
    top = _ENTRIES if asked.top is None else asked.top
    if asked.token is not None:
        return circuit_of_token(weights, head, which, asked.token, top=top, offset=asked.offset)
    return circuit_entries(weights, head, which, top=top, offset=asked.offset, progress=report)


def _remarks(table: Table, kind: str, asked: Reading) -> list[str]:
    """What a reader of the table must know, and how to see more."""
    said = [str(table.meta[name]) for name in ("empty", "what") if name in table.meta]
    said += list(table.meta.get("notes", []))
    if kind == "svd" and table.meta["blocks_found"] > len(set(table.frame["block"])) and asked.directions is None:
        said.append(f"The {_BLOCKS} strongest of {table.meta['blocks_found']} directions: --directions N shows more")
    if kind in {"entries", "token"} and asked.top is None and len(table):
        said.append(f"The {_ENTRIES} largest and {_ENTRIES} smallest: --top N shows more")
    return said
