"""What holds for every test: no network, a fixed seed, deterministic kernels, reproducible examples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

from support import network

network.block()

# The same examples on every machine, and no stopwatch: the first call of a test may import torch or compile a kernel.
settings.register_profile("headway", derandomize=True, deadline=None, database=None, max_examples=50)
settings.load_profile("headway")

torch.use_deterministic_algorithms(mode=True)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Every test starts from the same random state, whatever ran before it."""
    torch.manual_seed(0)
