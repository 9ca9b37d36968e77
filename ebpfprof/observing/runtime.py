"""Reads what Go's runtime counts in a process, from its memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ebpfprof.errors import TargetGone
from ebpfprof.findings.runtime import HeapMoment, RuntimeMoment
from ebpfprof.goruntime.goroutines.scheduler_counters import SchedulerReader
from ebpfprof.goruntime.heap.collector_cpu import CollectorCpuReader
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.goruntime.waits.timers import TimerReader
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.memory_globals import memory_globals
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget

_Value = TypeVar("_Value")


class RuntimeReader:
    """Reads the runtime's counters of one process, any number of times."""

    def __init__(self, go: GoTarget) -> None:
        """Find the counters; those of which the places are not found are None later."""
        self._memory: MemoryStatisticsReader | None = None
        with suppress(SymbolizerError):  # then they are None
            self._memory = MemoryStatisticsReader(
                go.target.memory, go.binary, memory_globals(go.binary), go.load_bias
            )
        self._scheduler = SchedulerReader(go)
        self._collector_cpu = CollectorCpuReader(go)
        self._timers = TimerReader(go, go.target.memory)

    def read(self) -> RuntimeMoment:
        """The counters now."""
        memory, scheduler = self._memory, _read(self._scheduler.read)
        pauses = _read(memory.pauses) if memory else None
        return RuntimeMoment(
            memory=_read(memory.read) if memory else None,
            collector_cpu=_read(self._collector_cpu.read),
            waits_to_run=scheduler.waits_to_run if scheduler else None,
            mutex_wait_ns=scheduler.mutex_wait_ns if scheduler else None,
            stops_to_collect=scheduler.stops_to_collect if scheduler else None,
            other_stops=scheduler.other_stops if scheduler else None,
            processors=_read(self._scheduler.processors),
            timers=_read(self._timers.pending),
            threads=scheduler.threads if scheduler else None,
            pauses_ns=pauses[0] if pauses else None,
        )

    def heap(self) -> HeapMoment | None:
        """The heap now; None if it can't be read."""
        sizes = _read(self._memory.heap) if self._memory else None
        return HeapMoment(time.monotonic_ns(), *sizes) if sizes else None


def _read(read: Callable[[], _Value]) -> _Value | None:
    """What it reads; None if the memory can't be read."""
    with suppress(TargetGone, UnreadableMemory):  # then it is None
        return read()
    return None
