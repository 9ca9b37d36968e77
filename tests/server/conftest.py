"""A process that is served by Go and by us, of the oldest and the newest Go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ebpfprof.continuous import manager
from tests.builds import versions
from tests.server.go_pair import Pair
from tests.server.serving import Server, httppprof


@pytest.fixture(scope="module", params=versions("1.19", "1.27"))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with (
        httppprof(request.param) as (target, go),
        Server("--pid", str(target.pid), "--continuous") as ours,
    ):
        assert ours.ready
        yield Pair(request.param, target, go, ours)


@pytest.fixture
def checks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager checks its processes often, so that tests need not wait."""
    monkeypatch.setattr(manager, "CHECK_S", 0.005)
