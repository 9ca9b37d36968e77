"""When last words are kept: at once, and not again for some minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from ebpfprof.agent import memory_guard as module
from ebpfprof.agent.log import Log
from ebpfprof.agent.memory_guard import MemoryGuard
from ebpfprof.discovery.processes import GoProcess
from ebpfprof.errors import TargetGone, UnsupportedGo
from ebpfprof.observing.memory_limits import NearLimit
from ebpfprof.profile.service import ServiceFindings, ServiceWindow
from ebpfprof.server.last_words import LastWords
from tests.agent.node import Node
from tests.continuous.loops import run, until
from tests.unit.export.small_profile import SMALL

MIB = 1 << 20


@dataclass
class Machine:
    """Processes that are near their limits, and what could be read of them."""

    near: dict[int, NearLimit] = field(default_factory=dict)
    checks: int = 0
    asked: list[int] = field(default_factory=list)
    error: Exception | None = None

    def find(self, pids: Collection[int]) -> dict[int, NearLimit]:
        self.checks += 1
        return {pid: self.near[pid] for pid in pids if pid in self.near}

    def keep(self, pid: int) -> LastWords:
        self.asked.append(pid)
        if self.error:
            raise self.error
        return LastWords({"goroutine": SMALL}, ("12.0 MiB are of type main.tile.",))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_S", 0.001)


def guarded(machine: Machine, *found: GoProcess) -> tuple[Node, MemoryGuard, list[str]]:
    node, said = Node(*found), list[str]()
    log = Log(said.append)
    return node, MemoryGuard(node.rounds, machine.find, machine.keep, log, node.given.append), said


def test_they_are_kept_at_once_and_not_again_for_minutes(three: list[GoProcess]) -> None:
    async def work() -> None:
        machine = Machine()
        node, guard, said = guarded(machine, *three)
        await node.begin()
        running = asyncio.ensure_future(guard.run())
        await until(lambda: machine.checks > 3)
        assert machine.asked == []
        pid = three[1].pid
        machine.near[pid] = NearLimit(243 * MIB, 256 * MIB)
        await until(lambda: machine.asked == [pid])
        checks = machine.checks
        await until(lambda: machine.checks > checks + 3)
        assert machine.asked == [pid]
        (window,) = (each for each in node.given if isinstance(each, ServiceWindow))
        assert (window.pid, {*window.profiles}) == (pid, {"goroutine"})
        assert window.start_s == window.end_s
        (findings,) = (each for each in node.given if isinstance(each, ServiceFindings))
        (finding,) = findings.findings
        assert findings.time_s == finding.since_s == window.end_s
        assert finding.lines == ("12.0 MiB are of type main.tile.",)
        text = "Last words: the container needs 243 MiB of 256 MiB; goroutine profile was kept."
        assert finding.title == text
        assert said == [f"ebpfprof: dash (pid {pid}): {text}"]
        guard._kept_s[pid, three[1].started_ns] -= 300
        await until(lambda: machine.asked == [pid, pid])
        guard.stop()
        await running

    run(work())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TargetGone("It ended."), ""),
        (UnsupportedGo("Too new."), "is near its memory limit: Too new."),
        (ZeroDivisionError("x"), "can't be checked: ZeroDivisionError: x"),
    ],
    ids=["ended", "typed", "unexpected"],
)
def test_what_can_not_be_read_is_reported_and_ends_nothing(
    shop: GoProcess, error: Exception, said: str
) -> None:
    async def work() -> None:
        machine = Machine({shop.pid: NearLimit(MIB, MIB)}, error=error)
        node, guard, lines = guarded(machine, shop)
        await node.begin()
        running = asyncio.ensure_future(guard.run())
        await until(lambda: machine.asked == [shop.pid])
        checks = machine.checks
        await until(lambda: machine.checks > checks + 3)
        guard.stop()
        await running
        assert not any(isinstance(each, ServiceFindings) for each in node.given)
        assert [line for line in lines if said and said in line] == lines

    run(work())
