"""Comparing what a head moves with what it should move, dim by dim: named near misses of a wanted copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

EXACT = 1e-6  # relative size below which a difference is rounding

Problem = tuple[str, dict[str, Any]]


def close(yours: Tensor, wanted: Tensor) -> bool:
    """Equal up to a relative 1e-6 of the largest entry wanted.

    >>> close(torch.tensor([1.0]), torch.tensor([1.0 + 1e-9]))
    True
    """
    size = float(wanted.abs().max()) if wanted.numel() else 0.0
    return yours.shape == wanted.shape and float((yours - wanted).abs().max()) <= EXACT * size


def rank(matrix: Float[Tensor, "row column"]) -> int:
    """How many singular values are more than rounding beside the largest.

    >>> rank(torch.diag(torch.tensor([1.0, 1e-9, 0.0])))
    1
    """
    values = torch.linalg.svdvals(matrix)
    return int((values > EXACT * values.max()).sum()) if values.numel() else 0


def copying(pairs: Mapping[int, int], d_model: int) -> Float[Tensor, "d_model d_model"]:
    """W_OV that copies dim `read` to dim `written` for each read: written, at scale 1.

    >>> copying({0: 1}, 2).tolist()
    [[0.0, 0.0], [1.0, 0.0]]
    """
    found = torch.zeros(d_model, d_model, dtype=torch.float64)
    for read, written in pairs.items():
        found[written, read] = 1.0
    return found


def dims_text(dims: Sequence[int]) -> str:
    """Dims for a sentence.

    >>> dims_text([4]), dims_text([0, 1, 2, 3]), dims_text([1, 5])
    ('dim 4', 'dims 0 to 3', 'dims 1, 5')
    """
    if len(dims) == 1:
        return f"dim {dims[0]}"
    run = list(dims) == list(range(dims[0], dims[-1] + 1)) if dims else False
    return f"dims {dims[0]} to {dims[-1]}" if run and len(dims) > 2 else "dims " + ", ".join(map(str, dims))


def used(W_OV: Float[Tensor, "written read"], axis: int, size: float) -> list[int]:
    """Dims that W_OV reads (axis 0: columns that are not zero) or writes (axis 1), beside entries of this size."""
    return [int(i) for i in (W_OV.abs().amax(axis) > EXACT * size).nonzero()[:, 0]]


def overflow(name: str, product: Tensor) -> Problem | None:
    """NONFINITE where finite factors have a product that float64 cannot hold.

    >>> overflow("W_OV", torch.tensor([torch.inf, 1.0]))
    ('NONFINITE', {'name': 'W_OV', 'count': 1})
    """
    beyond = int((~product.isfinite()).sum())
    return ("NONFINITE", {"name": name, "count": beyond}) if beyond else None


def copy_problem(W_OV: Float[Tensor, "written read"], pairs: Mapping[int, int]) -> Problem | None:
    """Why W_OV is not the wanted copy, most telling reason first; None when it is.

    ZERO; SCALE and SIGN: the right places at another size; WRONG_WRITE: the reverse copy, or other places; ORDER: an
    invertible mixture inside the right places; EXTRA_READ: the right copy and something else; RANK: a part is missing.
    """
    wanted = copying(pairs, len(W_OV))
    if close(W_OV, wanted):
        return None
    beyond = overflow("W_OV", W_OV)
    if beyond is not None:
        return beyond
    size = float(W_OV.abs().max())
    if size == 0:
        return "ZERO", {}
    reads, writes = sorted(pairs), sorted(pairs.values())
    block = W_OV[writes][:, reads]
    inside = torch.zeros_like(W_OV)
    inside[[[w] for w in writes], reads] = block
    if close(inside, W_OV):
        return _inside(block, wanted[writes][:, reads])
    if close(W_OV / size, wanted.T):
        return "WRONG_WRITE", {"writes": dims_text(reads) + f" what it reads from {dims_text(writes)}", "repair": ""}
    if close(block, wanted[writes][:, reads]):
        return _outside(W_OV, wanted, reads, writes)
    return _elsewhere(W_OV, size, reads, writes)


def _inside(block: Tensor, wanted: Tensor) -> Problem:
    """Everything comes from and goes to the right dims, but not as asked."""
    found = rank(block)
    if found < len(block):
        return "RANK", {"got": str(found), "wanted": str(len(block))}
    if close(block * (wanted != 0), block):
        factors = block[wanted != 0]
        worst = float(factors[int((factors.abs().log()).abs().argmax())]) if bool((factors != 1).any()) else 1.0
        if bool((factors < 0).any()):
            return "SIGN", {"factor": float(factors.min()), "repair": ""}
        return "SCALE", {"factor": worst}
    return "ORDER", {}


def _outside(W_OV: Tensor, wanted: Tensor, reads: list[int], writes: list[int]) -> Problem:
    """The wanted copy is there, and something else too."""
    rest = W_OV - wanted
    extra, places = used(rest, 0, 1.0), used(rest, 1, 1.0)
    size = float(rest.abs().max())
    if not set(extra) <= set(reads):
        others = [dim for dim in extra if dim not in reads]
        return "EXTRA_READ", {"reads": dims_text(others), "size": size, "repair": ""}
    if close(rest[reads][:, reads], torch.eye(len(reads), dtype=rest.dtype)) and places == reads:
        return "EXTRA_READ", {"reads": f"{dims_text(reads)} once more, for {dims_text(reads)} itself", "size": size}
    others = [dim for dim in places if dim not in writes] or places
    return "WRONG_WRITE", {"writes": f"{dims_text(others)} as well", "repair": ""}


def _elsewhere(W_OV: Tensor, size: float, reads: list[int], writes: list[int]) -> Problem:
    read, written = used(W_OV, 0, size), used(W_OV, 1, size)
    if not set(read) <= set(reads):
        return "WRONG_READ", {"reads": dims_text([dim for dim in read if dim not in reads]), "repair": ""}
    others = [dim for dim in written if dim not in writes]
    return "WRONG_WRITE", {"writes": dims_text(others or written), "repair": ""}
