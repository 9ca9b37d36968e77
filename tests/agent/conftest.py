"""What tests of sinks have in common."""

from __future__ import annotations

import pytest

from ebpfprof.agent.sinks import queued


@pytest.fixture
def retries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that could not deliver tries again at once, and beats often."""
    monkeypatch.setattr(queued, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(queued, "BEAT_S", 0.01)
