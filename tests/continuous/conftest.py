"""The manager checks its processes often, so that tests need not wait."""

from __future__ import annotations

import pytest

from ebpfprof.continuous import manager


@pytest.fixture(autouse=True)
def _check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "CHECK_S", 0.005)
