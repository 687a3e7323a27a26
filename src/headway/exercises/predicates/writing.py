"""Exercise 2e: the head of 2d writes where it found its copy: W_OV takes the 8 position coordinates to v.

Any invertible map of the coordinates will do, since 2f may undo it: then the stream at a query holds, besides its own
content and position, all that v @ x says of the position p of the copy. What is written must land in v alone, and only
position may be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headway.exercises.blocks import EXACT, rank
from headway.exercises.givens import Given
from headway.exercises.predicates.attention import pairs
from headway.exercises.verdict import Note, Picture, Verdict, failed, passed

Answer = Mapping[str, Tensor]
Earlier = Mapping[str, Mapping[str, Any]]
_FRESH = ("v", "rest")  # empty in the stream that the first head reads


def write_position(given: Given, answer: Answer, _: Earlier) -> Verdict:
    """2e: all position coordinates go to v by an invertible map, and nothing else is read or written."""
    space = given.space
    W_OV = _unit(answer["W_O"]) @ _unit(answer["W_V"])  # any size is right here; products of huge ones would overflow
    names = list(space.bases)
    written = {  # what each kind of feature sends where: [to, from] blocks, positions with their amplitudes
        (to, source): space.read(to) @ W_OV @ space.write(source) for to in names for source in names
    }
    total = max(float(block.abs().max()) for block in written.values())
    size = max(float(written[to, "position"].abs().max()) for to in names)
    picture = _block_picture(given, written["v", "position"])
    if total == 0:
        return failed(given.id, "ZERO")
    if size <= EXACT * total:
        source = max(names, key=lambda name: max(float(written[to, name].abs().max()) for to in names))
        return failed(given.id, "WRONG_READ", {"reads": source, "rank": 0, "wanted": 8}, picture=picture)
    problem = _misplaced(given, answer, written, size) or _extra_read(given, W_OV, size)
    if problem is not None:
        return failed(given.id, problem[0], problem[1], picture=picture)
    block = written["v", "position"]
    found, all_of_them = rank(block), len(block)
    if found < all_of_them:
        facts = {"reads": f"{found} of the {all_of_them} position coordinates", "rank": found, "wanted": all_of_them}
        return failed(given.id, "WRONG_READ", facts, picture=picture)
    plain = block[0, 0] * torch.eye(len(block), dtype=block.dtype)
    notes = () if float((block - plain).abs().max()) <= EXACT * size else (Note("OWN_MAP"),)
    harmless = [name for name in _FRESH if float(written["v", name].abs().max()) > EXACT * size]
    notes += (Note("HARMLESS_READ", {"reads": ", ".join(harmless)}),) if harmless else ()
    return passed(given.id, notes=notes, picture=picture)


def _misplaced(
    given: Given, answer: Answer, written: Mapping[tuple[str, str], Tensor], size: float
) -> tuple[str, dict[str, Any]] | None:
    """Position written anywhere but to v: with reading rows used to write, onto what is occupied, or into the blue."""
    outside = {to: float(written[to, "position"].abs().max()) for to in ("position", "content", "rest")}
    place = max(outside, key=lambda to: outside[to])
    if outside[place] <= EXACT * size:
        return None
    rows = given.v.T
    fit = torch.linalg.lstsq(rows, answer["W_O"]).solution
    if float((rows @ fit - answer["W_O"]).abs().max()) <= EXACT * float(answer["W_O"].abs().max()):
        return "WRONG_WRITE", {"writes": "v's reading rows", "repair": "V_WRITE"}
    if place == "rest":
        return "WRONG_WRITE", {"writes": "directions outside v", "repair": ""}
    return "OVERLAP", {"with": place, "repair": ""}


def _extra_read(given: Given, W_OV: Tensor, size: float) -> tuple[str, dict[str, Any]] | None:
    """What a token's content adds to the output: judged on the tokens of the exercise, since only they are ever read."""
    space = given.space
    from_tokens = torch.cat([space.read(name) @ W_OV @ given.tokens.T for name in space.bases])
    extra = float(from_tokens.abs().max())
    return ("EXTRA_READ", {"reads": "content", "size": extra / size}) if extra > EXACT * size else None


def _unit(matrix: Tensor) -> Tensor:
    """The matrix with its largest entry 1; zero stays zero."""
    return matrix / (float(matrix.abs().max()) or 1.0)


def _block_picture(given: Given, block: Tensor) -> Picture:
    """Position coordinates to v: yours, the plain copy, and their difference; yours scaled to unit mean square."""
    wanted = torch.eye(len(block), dtype=block.dtype)
    norm = float(block.norm())
    yours = block * (float(wanted.norm()) / norm) if norm > 0 else block
    columns = tuple(f"{name}{f}" for f in range(len(given.alpha)) for name in ("cos", "sin"))
    rows = tuple(f"v{i}" for i in range(len(block)))
    return Picture("matrix", yours.numpy(), wanted.numpy(), (yours - wanted).numpy(), rows, columns)


def write_all(given: Given) -> dict[str, Tensor]:
    """The published answer: every pair is read, and written to v as it is."""
    return {"W_V": pairs(given, *range(len(given.alpha))), "W_O": given.v_write}


PREDICATES = {"2e": write_position}
REFERENCES = {"2e": write_all}
