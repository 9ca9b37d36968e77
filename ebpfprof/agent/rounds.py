"""Rounds: at their end windows end, costs are measured, and other processes may be recorded."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.costs import OPENING_S, Costs
from ebpfprof.agent.figures import Figures
from ebpfprof.agent.handover import Handover
from ebpfprof.agent.scheduler import PLACES, Candidate, Key, TurnScheduler
from ebpfprof.agent.service_sums import ServiceSums
from ebpfprof.continuous.leases import FOREVER
from ebpfprof.continuous.manager import Manager
from ebpfprof.discovery.processes import started_ns
from ebpfprof.errors import TargetGone
from ebpfprof.system.heap import give_back_free_pages
from ebpfprof.system.own_usage import OwnUsage, own_usage

if TYPE_CHECKING:
    from ebpfprof.agent.log import Log
    from ebpfprof.agent.roster import Member, Roster
    from ebpfprof.agent.settings import Settings
    from ebpfprof.agent.sinks.sink import Item
    from ebpfprof.continuous.process import Live, RecordedProcess

SPARE_PLACES: Final = 8
"""Places of the live session for processes that are being closed."""
RENEW_S: Final = 3600.0
"""How long a process is recorded before it is opened again: its sums only grow."""
RENEWED_AT_ONCE: Final = 4
_STARTED_AT_ONCE: Final = 2
GROWTH: Final = 1.5
MORE_AT_ONCE: Final = 8
"""Each round records up to GROWTH times the previous number of processes, plus MORE_AT_ONCE."""
_GROWING_S: Final = 5.0
"""When more processes may start, if only that limit keeps them waiting."""
_ROOMY: Final = 0.75
"""The part of max_memory to plan with: windows and their ends need the rest."""
_LEAST_EACH_BYTES: Final = 1 << 18  # per recorded process
_FEWER: Final = 0.75


@dataclass(eq=False, slots=True)
class _Recorded:
    """A process that is recorded, or soon will be."""

    member: Member
    process: RecordedProcess
    since_s: float
    cost_ns: float = 0.0


class Rounds:
    """Records the processes of a roster within the budget, and passes the profiles to `give`."""

    def __init__(
        self,
        live: Live,
        roster: Roster,
        settings: Settings,
        log: Log,
        give: Callable[[Item], None],
    ) -> None:
        self._live, self._roster, self._log = live, roster, log
        self.settings = settings
        self.figures = Figures(services=ServiceSums(settings.metrics_services))
        self._handover = Handover(give, self.figures)
        self.manager = Manager(
            live,
            kinds=settings.kinds,
            interval_s=math.inf,
            on_window=self._handover.on_window,
            notify=log.say,
        )
        self.costs = Costs()
        self.scheduler = TurnScheduler()
        self.waiting: dict[Key, str] = {}
        """The processes that wait, and why."""
        self._recorded: dict[Key, _Recorded] = {}
        self._opened, self._explained_s = 0, 0.0  # in this round; the CPU time of explanations
        self._queue: list[Key] = []  # chosen, but not yet opened
        self._places = settings.max_processes
        self._is_growing = False
        self._processors = os.cpu_count() or 1
        self._begun_s = self._begun_unix_s = 0.0
        self._windows_begun = 0.0, 0.0  # CLOCK_MONOTONIC and Unix time
        self._cpu_s = 0.0
        self._idle_bytes = 0  # memory of an agent that records nothing

    @property
    def income(self) -> float:
        """The budget of a round, in processors."""
        return self.settings.max_node_overhead / 100 * self._processors

    @property
    def processors(self) -> int:
        """The number of processors of this machine."""
        return self._processors

    @property
    def recorded(self) -> int:
        """How many processes are recorded now."""
        recorded = list(self._recorded.values())  # a copy: the thread of /metrics calls this, too
        return sum(one.process.is_recording for one in recorded)

    @property
    def starting(self) -> int:
        """How many processes were chosen, but are not yet recorded."""
        return len(self._recorded) - self.recorded + len(self._queue)

    @property
    def members(self) -> Mapping[Key, Member]:
        """The Go processes of the machine."""
        return self._roster.members

    def recorded_for(self, seconds: float) -> list[Member]:
        """The processes that have been recorded for so long."""
        since_s = time.monotonic() - seconds
        return [
            one.member
            for one in self._recorded.values()
            if one.process.is_recording and one.process.since_s <= since_s
        ]

    @property
    def has_budget(self) -> bool:
        """Whether the budget is not overspent."""
        return self.scheduler.left > 0

    def explanation_s(self, part: float) -> float:
        """How many seconds pass from one explanation to the next within a part of the budget."""
        return self.costs.explaining_s / (self.income * part)

    def note_explanation(self) -> None:
        """Take the expected cost of an explanation from the budget of this round."""
        self._explained_s += self.costs.explaining_s
        self.scheduler.spend(self.costs.explaining_s / self.settings.window)

    @property
    def next_turn_s(self) -> float:
        """When this round ends, or earlier if more processes may start, CLOCK_MONOTONIC."""
        grows_s = self._begun_s + _GROWING_S if self._is_growing else math.inf
        return min(_end_s(*self._windows_begun, self.settings.window), grows_s)

    def begin(self) -> None:
        """Begin the first round."""
        usage = own_usage()
        self._idle_bytes = usage.memory_bytes
        self._note_begin(usage, has_windows=True)
        self._queue = list(self._planned(spent=0.0, lasted=1.0))
        self.start_some()

    async def turn(self) -> None:
        """End the round, and begin the next one.

        While the cost of recording is unknown, a part of a round ends: more processes start, and
        the windows of recorded processes continue.
        """
        is_end = time.monotonic() >= _end_s(*self._windows_begun, self.settings.window)
        self._drop_ended()
        await asyncio.to_thread(self._roster.judge, list(self._recorded))
        spent = await asyncio.to_thread(self._spent)
        self._fit_memory()
        ended_s, begun_s = time.time(), self._begun_unix_s
        self._tell_unwatched(begun_s, ended_s)
        before = dict(self._recorded)
        lasted = (time.monotonic() - self._begun_s) / self.settings.window
        chosen = self._planned(spent, lasted, () if is_end else self._recorded)
        leaving = [one for key, one in before.items() if key not in chosen]
        renewed = _to_renew(before, chosen) if is_end else []
        self._note_begin(self.figures.usage, has_windows=is_end)
        await asyncio.gather(
            *(self._release(one, "other processes are recorded in this round") for one in leaving),
            *(self._release(one, "its sums start again at 0") for one in renewed),
            *(
                self.manager.readings.end_window(one.process)
                for key, one in before.items()
                if is_end and key in chosen and one not in renewed
            ),
        )
        self._queue = [key for key in chosen if key not in self._recorded]
        self.start_some()
        self.figures.rounds += is_end
        if is_end:  # to make profiles took memory that none of them has
            await asyncio.to_thread(give_back_free_pages)

    def start_some(self) -> None:
        """Begin to record some of the chosen processes.

        Only a few, since processes are opened one after the other, and other work must not wait.
        """
        while self._queue and self.starting - len(self._queue) < _STARTED_AT_ONCE:
            self._start(self._queue.pop())

    async def settle(self) -> None:
        """Remove processes that ended or failed, and add new ones if this round has room."""
        self._drop_ended()
        refused = [one for one in self._recorded.values() if self._roster.why_not(one.member)]
        await asyncio.gather(*(self._release(one, "the rules changed") for one in refused))
        known = {*self._recorded, *self.waiting, *self._queue}
        for candidate in self._roster.candidates(self.costs, self._recorded):
            if candidate.key not in known:
                self._admit(candidate)

    async def stop(self) -> None:
        """End all windows. The live session still has to be closed, to remove all probes."""
        await self.manager.stop_at_once(ends_windows=True)

    def _admit(self, candidate: Candidate) -> None:
        if why := self.scheduler.admit(candidate):
            self.waiting[candidate.key] = why
        else:
            self._queue.append(candidate.key)

    def _planned(self, spent: float, lasted: float, kept: Collection[Key] = ()) -> set[Key]:
        """Plan the next round; `lasted` is the last one's length in windows."""
        self.costs.forget(self._roster.members)
        places = min(self._places, int(GROWTH * len(self._recorded)) + MORE_AT_ONCE)
        plan = self.scheduler.plan(
            self._roster.candidates(self.costs, self._recorded),
            income=self.income,
            places=places,
            spent=spent,
            lasted=lasted,
            kept=kept,
        )
        self._is_growing = places < self._places and PLACES in plan.waiting.values()
        self.waiting = dict(plan.waiting)
        return set(plan.chosen)

    def _start(self, key: Key) -> None:
        """Begin to record a process, unless it is being recorded."""
        member = self._roster.members.get(key)
        if member is None or key in self._recorded:
            return
        process = self.manager.add_found(member.about)
        self._recorded[key] = _Recorded(member, process, time.monotonic())
        self._handover.add(process, member)
        self._opened += 1
        self.manager.leases.lease(process, FOREVER)

    async def _release(self, recorded: _Recorded, why: str) -> None:
        self._recorded.pop(recorded.member.key, None)
        await self.manager.leases.release(recorded.process, why)

    def _drop_ended(self) -> None:
        for key, one in list(self._recorded.items()):
            if one.process.take_problem():
                self.manager.note_ending(one.process, "it could not be recorded")
            if one.process.ending is not None:
                del self._recorded[key]
                if started_ns(one.process.pid) != one.member.about.started_ns:
                    self._handover.ended(one.process, one.member)
                elif not one.process.since_s:  # it runs, but opening it failed
                    one.member.fail()
        self._handover.keep(self.manager.processes)

    def _note_begin(self, usage: OwnUsage, *, has_windows: bool) -> None:
        self._begun_s, self._begun_unix_s = time.monotonic(), time.time()
        if has_windows:
            self._windows_begun = self._begun_s, self._begun_unix_s
        self._cpu_s = usage.cpu_s
        self.figures.usage = usage

    def _spent(self) -> float:
        """The cost of this round, in processors. Blocks."""
        elapsed_s = max(1e-3, time.monotonic() - self._begun_s)
        costs = {}
        for key, one in list(self._recorded.items()):
            target = one.process.target
            if target is None:
                continue
            try:
                cost_ns = self._live.overhead(target).ns
            except TargetGone:
                continue
            costs[key] = max(0.0, cost_ns - one.cost_ns) / 1e9 / elapsed_s
            one.cost_ns = cost_ns
        counts = Counter[str]()
        for loss in self._live.losses():
            counts[loss.name] += loss.count
        self.figures.losses = counts
        usage = own_usage()
        own = max(0.0, usage.cpu_s - self._cpu_s) / elapsed_s
        figures = self.figures
        figures.usage = usage
        figures.spent_on_self, figures.spent_on_targets = own, sum(costs.values())
        apart = (self._opened * OPENING_S + self._explained_s) / elapsed_s
        self._opened, self._explained_s = 0, 0.0
        spent = self.costs.note(costs, own, apart)
        if not figures.rounds:  # the agent starts: imports, first reads of programs
            spent -= max(0.0, own - self.income)
        return spent

    def _fit_memory(self) -> None:
        """Adapt the number of processes to the memory, by the use of those that are recorded."""
        used, most = self.figures.usage.memory_bytes, self.settings.max_memory
        recorded = len(self._recorded)
        if used > most:
            self._places = max(1, int(min(self._places, recorded) * _FEWER))
            number = "1 process" if self._places == 1 else f"{self._places} processes"
            self._log.say(
                f"The agent uses {used >> 20} MiB of memory, more than max_memory "
                f"({most >> 20} MiB): from now on it records {number} at once."
            )
            gc.collect()
        else:
            per_process = max(_LEAST_EACH_BYTES, (used - self._idle_bytes) / max(1, recorded))
            more = max(0, int((_ROOMY * most - used) / per_process))
            self._places = min(self.settings.max_processes, max(1, recorded + more))

    def _tell_unwatched(self, begun_s: float, ended_s: float) -> None:
        """Report the processes that were not recorded in this round, and why."""
        for key, member in self._roster.members.items():
            reason = self._roster.why_not(member) or self.waiting.get(key, "")
            if key not in self._recorded and reason:
                self._handover.unwatched(member, reason, begun_s, ended_s)


def _end_s(begun_s: float, begun_unix_s: float, window_s: float) -> float:
    """The end of a round: at a multiple of the window in Unix time.

    If that is less than half a window away, the round lasts one window more.
    """
    left_s = window_s - begun_unix_s % window_s
    return begun_s + left_s + (window_s if left_s < window_s / 2 else 0.0)


def _to_renew(recorded: Mapping[Key, _Recorded], chosen: set[Key]) -> list[_Recorded]:
    """Processes that have been recorded for longer than RENEW_S, the longest first."""
    since = time.monotonic() - RENEW_S
    old = [one for key, one in recorded.items() if key in chosen and one.since_s < since]
    return sorted(old, key=lambda one: one.since_s)[:RENEWED_AT_ONCE]
