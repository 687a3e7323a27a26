"""Room for the large tensors of a recording, from huge pages where the system has them.

A recording keeps two [dst, src] tensors a layer. First touch of that much fresh memory in 4 KiB pages costs about as much
as the softmax that fills it (benchmarks/README.md); pages of 2 MiB make it nearly free.
"""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor

_HUGE = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux only
_WORTH_IT = 4 << 20


def room(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor like `torch.empty`, of any content.

    >>> room((2, 3), torch.float64, torch.device("cpu")).shape
    torch.Size([2, 3])
    """
    n_bytes = math.prod(shape) * dtype.itemsize
    if _HUGE is None or device.type != "cpu" or n_bytes < _WORTH_IT:
        return torch.empty(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(_HUGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
