"""Waiting for what a thread of a sink does."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from tests.targets_run import DEADLINE_S


def wait_until(is_so: Callable[[], bool]) -> None:
    """Fails if it does not come in time."""
    until = monotonic() + DEADLINE_S
    while not is_so():
        assert monotonic() < until
        sleep(0.001)
