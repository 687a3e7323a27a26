"""Calls as users make them: without the type checks that tests switch on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from jaxtyping import config


@contextmanager
def as_users_run_it() -> Generator[None]:
    """No run-time type check inside, so that our own validators see the odd input they are for."""
    config.update("jaxtyping_disable", value=True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", value=False)
