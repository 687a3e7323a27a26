"""Room for the large tensors of a recording, from huge pages where the system has them.

A recording keeps two [dst, src] tensors a layer. First touch of that much fresh memory in 4 KiB pages costs about as much
as the softmax that fills it (benchmarks/README.md); pages of 2 MiB make it nearly free, where they are at hand. So the room
of a recording that is gone is kept for the next, marked as free for the system to take.
"""

from __future__ import annotations

import math
import mmap
import weakref

import torch
from torch import Tensor

_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux only
_FREE = getattr(mmap, "MADV_FREE", None)
_WORTH_IT = 4 << 20
_MOST = 1 << 30  # bytes kept
_SPARE: dict[int, list[mmap.mmap]] = {}


def room(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor like `torch.empty`, of any content.

    >>> room((2, 3), torch.float64, torch.device("cpu")).shape
    torch.Size([2, 3])
    """
    n_bytes = math.prod(shape) * dtype.itemsize
    if _HUGE is None or device.type != "cpu" or n_bytes < _WORTH_IT:
        return torch.empty(shape, dtype=dtype, device=device)
    memory = _taken(n_bytes) or _fresh(n_bytes, _HUGE)
    view = memoryview(memory)
    # The view lives as long as the tensor's memory is in use, whoever shares it.
    weakref.finalize(view, _give_back, memory).atexit = False
    return torch.frombuffer(view, dtype=dtype).view(shape)


def _fresh(n_bytes: int, huge: int) -> mmap.mmap:
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(huge)
    return memory


def _taken(n_bytes: int) -> mmap.mmap | None:
    """Room of this size that a recording gave back, if there is any."""
    try:
        return _SPARE[n_bytes].pop()
    except (KeyError, IndexError):
        return None


def _give_back(memory: mmap.mmap) -> None:
    """Keep it for the next recording; the system may take its pages whenever it is short of memory."""
    kept = sum(size * len(spare) for size, spare in _SPARE.items())
    if _FREE is not None and kept + len(memory) <= _MOST:
        memory.madvise(_FREE)
        _SPARE.setdefault(len(memory), []).append(memory)
