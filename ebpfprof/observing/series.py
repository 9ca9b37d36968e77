"""What a process uses and what its goroutines do, at moments, for strips over time.

A moment takes about 2 ms: one read of the table of goroutines, the runtime's counters from
memory, and some files of /proc and of control groups. It places no probe.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import NotGoProgram, TargetGone
from ebpfprof.findings.host import HostChange, HostMoment, difference
from ebpfprof.findings.runtime import RuntimeMoment
from ebpfprof.goruntime.goroutines.state_counts import StateCounter
from ebpfprof.observing.host import HostReader
from ebpfprof.observing.runtime import RuntimeReader
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.findings.host import MemoryGroup
    from ebpfprof.goruntime.open_processes import OpenProcess
    from ebpfprof.goruntime.process import GoTarget

_MOST_GOROUTINES: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """Processors: how many were `used` on average since the moment before, how many the tightest
    quota allows, and GOMAXPROCS. `throttled` is the part of the time (0 to 1) for which the group
    with the quota was stopped."""

    used: float | None = None
    throttled: float | None = None
    quota: float | None = None
    gomaxprocs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """The heap with what was allocated since the last collection, its size at which the
    next one ends, GOMEMLIMIT; what of the process is in memory; and of the control group that is
    nearest to its limit, what it can't reclaim, and the limit."""

    heap_bytes: int | None = None
    goal_bytes: int | None = None
    gomemlimit_bytes: int | None = None
    resident_bytes: int | None = None
    group_used_bytes: int | None = None
    group_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collections:
    """Garbage collections that ended since the moment before, and the part of the time (0 to 1) for
    which they stopped all goroutines."""

    count: int
    stopped: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """A process at `time_s` (Unix time). Rates are of the `seconds` since the moment before, None
    for the first one. What could not be read is None."""

    time_s: float
    seconds: float | None
    goroutines: Mapping[str, int] | None
    """How many, by the groups of state_counts.GROUPS."""
    cpu: CpuUse
    memory: MemoryUse
    collections: Collections | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMoment:
    """All counters of a process at a moment (CLOCK_MONOTONIC), before rates are made of them."""

    at_ns: int
    host: HostMoment
    runtime: RuntimeMoment | None = None
    goroutines: Mapping[str, int] | None = None


class SeriesReader:
    """Reads one process, any number of times. For one thread at a time."""

    def __init__(self, process: OpenProcess) -> None:
        """Of a program that is not Go's, only the kernel's counters are read.

        Raises any of ebpfprof.errors or a SymbolizerError.
        """
        self._target = process.target
        self._host = HostReader(process.target)
        self._runtime: RuntimeReader | None = None
        self._goroutines: StateCounter | None = None
        with suppress(NotGoProgram):  # then only the kernel's counters are read
            self._open(process.go())
        self._before: ProcessMoment | None = None

    def _open(self, go: GoTarget) -> None:
        self._runtime = RuntimeReader(go)
        with suppress(SymbolizerError):  # then there are no states
            self._goroutines = StateCounter(go, most=_MOST_GOROUTINES)

    def read(self) -> SeriesPoint:
        """The process now. Raises TargetGone."""
        moment = ProcessMoment(
            at_ns=time.monotonic_ns(),
            host=self._host.read_use(),
            runtime=self._runtime.read() if self._runtime else None,
            goroutines=self._states(),
        )
        if ending := self._target.ending():  # then counters are 0
            raise TargetGone(f"{ending.text[:1].upper()}{ending.text[1:]}.")
        point = point_of(self._before, moment, time.time())
        self._before = moment
        return point

    def _states(self) -> Mapping[str, int] | None:
        with suppress(TargetGone, UnreadableMemory, SymbolizerError):  # then there are none
            return self._goroutines.read() if self._goroutines else None
        return None


def point_of(before: ProcessMoment | None, now: ProcessMoment, time_s: float) -> SeriesPoint:
    """What is shown of a moment, with rates since the one before."""
    length_ns = now.at_ns - before.at_ns if before else 0
    is_rate = before is not None and length_ns > 0
    change = HostChange(before.host, now.host, length_ns) if before and is_rate else None
    throttling = change.throttling if change else None
    memory = now.runtime.memory if now.runtime else None
    collector = memory.collector if memory else None
    group = _nearest(now.host.memory_groups)
    return SeriesPoint(
        time_s=time_s,
        seconds=length_ns / 1e9 if is_rate else None,
        goroutines=now.goroutines,
        cpu=CpuUse(
            used=change.cpu_ns / length_ns if change else None,
            throttled=throttling.stopped_share(length_ns) if throttling else None,
            quota=now.host.quota_cpus,
            gomaxprocs=now.runtime.processors if now.runtime else None,
        ),
        memory=MemoryUse(
            heap_bytes=collector.live if collector else None,
            goal_bytes=collector.goal if collector else None,
            gomemlimit_bytes=collector.limit if collector else None,
            resident_bytes=now.host.resident_bytes,
            group_used_bytes=group.needed_bytes if group else None,
            group_limit_bytes=group.limit_bytes if group else None,
        ),
        collections=_collections(before.runtime, now.runtime, length_ns)
        if before and is_rate
        else None,
    )


def _collections(
    before: RuntimeMoment | None, now: RuntimeMoment | None, length_ns: int
) -> Collections | None:
    if not (before and before.memory and now and now.memory):
        return None
    earlier, later = before.memory.collector, now.memory.collector
    count = difference(earlier.cycles, later.cycles) or 0
    stopped_ns = difference(earlier.paused_ns, later.paused_ns) or 0
    return Collections(count=count, stopped=min(1.0, stopped_ns / length_ns))


def _nearest(groups: tuple[MemoryGroup, ...]) -> MemoryGroup | None:
    """The group that is nearest to its limit; None if none has a limit, or that is unknown."""
    limited = [one for one in groups if one.limit_bytes and one.needed_bytes is not None]
    return max(
        limited, key=lambda one: (one.needed_bytes or 0) / (one.limit_bytes or 1), default=None
    )
