"""A machine of which an agent records the processes, on a live session without a kernel."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.identity.service import Identifier
from ebpfprof.agent.log import Log
from ebpfprof.agent.roster import Roster
from ebpfprof.agent.rounds import Rounds
from ebpfprof.agent.scheduler import Key
from ebpfprof.agent.settings import Settings
from ebpfprof.agent.sinks.sink import Item
from ebpfprof.discovery.processes import GoProcess, Survey
from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.profile.service import ServiceWindow, Unwatched
from tests.continuous.fakes import ALL_KINDS, FakeLive, FakeTarget

RICH = Settings(kinds=ALL_KINDS, max_node_overhead=100, window=3600, node="n1", explain=0.0)
"""Settings of a node on which all may be recorded; a round lasts until the test ends it."""
DROP_DASH = '[[rules]]\naction = "drop"\nsource = "service"\nregex = "dash"'


@dataclass
class Live(FakeLive):
    """Of some processes, opening or recording them does what the test says."""

    refusals: dict[int, Exception] = field(default_factory=dict)
    costs_ns: dict[int, float] = field(default_factory=dict)
    opened: list[int] = field(default_factory=list)

    def add(self, pid: int) -> FakeTarget:
        self.opened.append(pid)
        if pid in self.refusals:
            raise self.refusals[pid]
        found = super().add(pid)
        found.is_removed = False
        return found

    def overhead(self, target: FakeTarget) -> Overhead:
        return Overhead(Runs(), Runs(1, self.costs_ns.get(target.pid, 0.0)), 0.0, cpu_ns=1)


class Node:
    """An agent's rounds on a machine with the processes that the test names."""

    def __init__(self, *found: GoProcess, settings: Settings = RICH) -> None:
        self.found: list[GoProcess] = []
        self.given: list[Item] = []
        self.said: list[str] = []
        self.live = Live()
        for each in found:
            self.join(each)
        table = cast("Any", SimpleNamespace(survey=lambda **_: Survey(tuple(self.found), 0)))
        log = Log(self.said.append)
        self.roster = Roster(table, identifier(settings), settings, log)
        self.rounds = Rounds(self.live, self.roster, settings, log, self.given.append)
        self.roster.survey()

    def join(self, process: GoProcess) -> None:
        """From now on this process is there."""
        self.found.append(process)
        self.live.targets[process.pid] = FakeTarget(process.pid, kinds=ALL_KINDS)

    async def begin(self) -> None:
        self.rounds.begin()
        await self.settled()

    async def settled(self) -> None:
        """Wait until all that have their turn are recorded, or failed."""
        async with asyncio.timeout(60):
            while self.rounds.starting:
                self.rounds.start_some()
                await asyncio.sleep(0.001)
                self.rounds._drop_ended()

    async def survey(self) -> None:
        """What the agent does every few seconds."""
        self.roster.survey()
        await self.rounds.settle()
        await self.settled()

    async def turn(self) -> None:
        """End a round that seems to have been long, so that ours is a small part of it."""
        self.rounds._begun_s -= 100
        self.rounds._windows_begun = -1e9, 0.0
        await self.rounds.turn()
        await self.settled()

    async def end(self) -> None:
        await self.rounds.stop()

    @property
    def recorded(self) -> dict[Key, Any]:
        return {key: each.process for key, each in self.rounds._recorded.items()}

    def target(self, pid: int) -> FakeTarget:
        return self.live.targets[pid]

    def windows(self, pid: int) -> list[ServiceWindow]:
        found = [each for each in self.given if isinstance(each, ServiceWindow)]
        return [each for each in found if each.pid == pid]

    def events(self, pid: int) -> list[int]:
        """How many events each window of a process has."""
        found = (window.profiles["block"].samples for window in self.windows(pid))
        return [sum(s.values[0] for s in each if s.values[1] >= 1000) for each in found]

    def unwatched(self, pid: int) -> list[Unwatched]:
        found = [each for each in self.given if isinstance(each, Unwatched)]
        return [each for each in found if each.pid == pid]


def identifier(settings: Settings) -> Identifier:
    return Identifier(settings, Pods("/nowhere", []))
