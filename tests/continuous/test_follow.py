"""Go processes are added as they start."""

from __future__ import annotations

from typing import cast

import pytest

from ebpfprof.continuous.follow import Follower
from ebpfprof.discovery.processes import ProcessTable, Survey
from tests.continuous.fakes import FakeFollower, FakeLive, FakeTarget, go_process, managed
from tests.continuous.loops import run


def test_all_go_processes_are_followed() -> None:
    async def work() -> None:
        targets = {pid: FakeTarget(pid) for pid in (1, 2, 3, 4)}
        manager = managed(FakeLive(targets))
        here = {"container": "abc"}
        follower = FakeFollower(
            manager,
            go_process(1, **here),
            go_process(2, **here, supported=False, why_not="too old"),
            go_process(3, container="xyz"),
            go_process(5),
            follows=True,
            containers=["ab"],
            capacity=2,
        )

        def served() -> list[int]:
            return [process.pid for process in manager.processes if process.ending is None]

        await follower.survey()
        assert served() == [1]
        assert [(each.pid, each.why_not) for each in follower.unrecorded] == [(2, "too old")]
        follower.found = [go_process(pid, **here) for pid in (1, 3, 4)]
        await follower.survey()
        assert served() == [1, 3]
        assert [each.pid for each in follower.unrecorded] == [4]
        follower.found = [go_process(pid, **here) for pid in (3, 4)]
        await follower.survey()
        gone = manager.find(1)
        assert gone is not None
        assert gone.ending == "process 1 ended"
        assert served() == [3, 4]
        # The kernel gave the PID to a new process.
        follower.found = [go_process(pid, **here, command="successor") for pid in (1, 4)]
        await follower.survey()
        assert served() == [1, 4]
        await manager.stop()

    run(work())


def test_what_does_not_answer_is_reported_once_and_only_if_it_would_be_followed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For processes that were chosen by name, the search for them has said it."""

    async def work() -> None:
        manager = managed(FakeLive({}))
        for follows in (False, True):
            follower = Follower(manager, cast("ProcessTable", StuckTable()), follows=follows)
            for _ in range(2):
                await follower.survey()
                follower._surveyed_s = 0.0
        await manager.stop()

    run(work())
    assert capsys.readouterr().err.count("did not respond") == 1


class StuckTable:
    """One process lies on a file system that does not answer."""

    def survey(self) -> Survey:
        return Survey((), 0, unanswered=(1,))
