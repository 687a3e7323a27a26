"""Pairs of heads for tests of composition: circuits multiplied out, random rotations, planted pairs among others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.model.head import Head
from headway.model.weights import Weights
from headway.tables.table import Table

HEAD_TENSORS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")
Key = tuple[str, str, str]


def by_pair(table: Table) -> dict[Key, dict[str, Any]]:
    """Rows by (via, reader, writer)."""
    return {(row["via"], row["reader"], row["writer"]): row for row in table.rows()}


def circuits(head: Head, offset: int = 0) -> dict[str, Tensor]:
    """What each via multiplies with the writer's W_OV, multiplied out."""
    W_QK = head.qk(offset).dense()
    return {"Q": W_QK.T, "K": W_QK, "V": head.W_O @ head.W_V}


def rotations(draws: int, d: int, *, centred: bool = False, seed: int = 5) -> Tensor:
    """Haar matrices [draws, d, d]; centred: those of d - 1 dimensions that leave the all-ones direction alone."""
    random = torch.Generator().manual_seed(seed)
    free = d - centred
    q, r = torch.linalg.qr(torch.randn(draws, free, free, dtype=torch.float64, generator=random))
    q = q * torch.sign(r.diagonal(dim1=-2, dim2=-1))[:, None, :]
    if not centred:
        return q
    ones = torch.full((d, 1), d**-0.5, dtype=torch.float64)
    basis = torch.linalg.svd(torch.eye(d, dtype=torch.float64) - ones @ ones.T).U[:, :free]
    return basis @ q @ basis.T + ones @ ones.T


def agrees_with_draws(squares: Tensor, row: dict[str, Any]) -> bool:
    """Whether mean and variance behind null_rms and z of a row are those of the draws of its squared score."""
    mean, variance = squares.mean(), squares.var()
    fourth = (squares - mean).pow(4).mean()
    errors = (variance / len(squares)).sqrt(), ((fourth - variance**2) / len(squares)).sqrt()
    stated = row["null_rms"] ** 2
    spread = ((row["score"] ** 2 - stated) / row["z"]) ** 2
    return bool((mean - stated).abs() < 3.5 * errors[0]) and bool((variance - spread).abs() < 3.5 * errors[1])


def among_others(weights: Weights, others: int = 2, *, seed: int = 3) -> Weights:
    """The model with `others` more heads a layer, of random directions and of the sizes of the layer's own first head.

    Heads of the model stay first. What the others do is nobody's plan: a planted pair must stand out from them.
    """
    random = torch.Generator().manual_seed(seed)
    c = weights.config
    fields = c.to_dict() | {"n_heads": c.n_heads + others, "n_kv_heads": c.n_heads + others}
    more: dict[str, Tensor] = {}
    for name in HEAD_TENSORS:
        tensor = getattr(weights, name)
        if tensor is not None:
            shape = (c.n_layers, others, *tensor.shape[2:])
            noise = torch.randn(shape, dtype=tensor.dtype, generator=random)
            if name[0] == "b":
                noise = torch.zeros_like(noise)
            elif c.rotary_dims and name in {"W_Q", "W_K"}:
                noise[:, :, : c.rotary_dims] = 0
            more[name] = torch.cat((tensor, noise / max(tensor.shape[-1], 1) ** 0.5), dim=1)
    return replace(weights, config=type(c).from_dict(fields), **more)


def stands_out(
    table: Table, planted: Key, value: Callable[[dict[str, Any]], float | None] = lambda r: r["score"]
) -> bool:
    """Whether the planted row has a larger value than every other row of the table."""
    rows = {(row["via"], row["reader"], row["writer"]): value(row) for row in reversed(table.rows())}
    best = rows.pop(planted)
    return best is not None and all(other is None or other < best for other in rows.values())
