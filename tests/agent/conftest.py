"""What tests of sinks have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ebpfprof.agent.sinks import queued
from ebpfprof.discovery.processes import GoProcess
from tests.agent.processes import described, with_environment


@pytest.fixture
def retries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that could not deliver tries again at once, and beats often."""
    monkeypatch.setattr(queued, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(queued, "BEAT_S", 0.01)


@pytest.fixture
def shop() -> Iterator[GoProcess]:
    """A process that runs."""
    with with_environment() as pid:
        yield described(pid)


@pytest.fixture
def three() -> Iterator[list[GoProcess]]:
    """Three of them."""
    with ExitStack() as held:
        yield [described(held.enter_context(with_environment())) for _ in range(3)]
