"""What Go's scheduler counts: waits for a processor and for locks, stops of the world, threads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.profile.time_histogram import TimeHistogram
from symbolizer.codeanalysis.globals import allp_address, scheduler_address
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from symbolizer.go.runtime_layout import RuntimeLayout

_WORD_BYTES: Final = 8
_TRACKED: Final = 8  # gTrackingPeriod: one goroutine's run in eight has its times taken


@dataclass(frozen=True, slots=True)
class SchedulerCounters:
    """Counters since the program began; None for what this version of Go does not count.

    `waits_to_run` are the times for which goroutines were runnable before they ran, of one in
    eight. `mutex_wait_ns` is the time that goroutines waited for a sync.Mutex or sync.RWMutex, an
    estimate of one in eight. `stops_to_collect` and `other_stops` are pauses of all goroutines.
    `threads` were made, whether they exist or not.
    """

    threads: int
    waits_to_run: TimeHistogram
    mutex_wait_ns: int | None
    stops_to_collect: TimeHistogram | None
    other_stops: TimeHistogram | None


class SchedulerReader:
    """Reads runtime.sched of one target (runtime/runtime2.go, Go 1.19 to 1.27)."""

    def __init__(self, go: GoTarget) -> None:
        """Find the counters; what is not found is None later."""
        self._memory, self._layout = go.target.memory, go.binary.layout
        self._address: int | None = None
        self._processors: int | None = None
        with suppress(SymbolizerError):  # then they are None
            address = scheduler_address(go.binary)
            self._address = None if address is None else address + go.load_bias
        with suppress(SymbolizerError):  # then it is None
            address = allp_address(go.binary)
            self._processors = None if address is None else address + go.load_bias

    def read(self) -> SchedulerCounters | None:
        """The counters now; None if they were not found. Raises TargetGone or UnreadableMemory."""
        if self._address is None:
            return None
        layout = self._layout
        data = self._memory.read(self._address, layout.size("schedt"))

        def word(name: str) -> int | None:
            if not layout.has("schedt", name):
                return None
            at = layout.offset("schedt", name)
            return int.from_bytes(data[at : at + _WORD_BYTES], "little")

        def histogram(name: str) -> TimeHistogram | None:
            if not layout.has("schedt", name):
                return None
            return histogram_of(layout, data[layout.offset("schedt", name) :])

        waits = histogram("timeToRun")
        assert waits is not None  # every version has it
        return SchedulerCounters(
            word("mnext") or 0,
            waits,
            word("totalMutexWaitTime"),
            histogram("stwTotalTimeGC"),
            histogram("stwTotalTimeOther"),
        )

    def processors(self) -> int | None:
        """GOMAXPROCS, the length of runtime.allp. Raises TargetGone or UnreadableMemory."""
        if self._processors is None:
            return None
        data = self._memory.read(self._processors + _WORD_BYTES, _WORD_BYTES)
        return int.from_bytes(data, "little")


def histogram_of(layout: RuntimeLayout, data: bytes) -> TimeHistogram:
    """The runtime.timeHistogram at the beginning of the data."""
    words = np.frombuffer(data, "<u8", layout.size("timeHistogram") // _WORD_BYTES).tolist()
    least_bits, part_bits = layout.time_histogram_bits
    # Behind the buckets is what was below zero, then, unless the buckets reach as far, above them.
    buckets = len(words) - (len(words) % (1 << part_bits))
    above = words[buckets + 1 :]
    return TimeHistogram(tuple(words[:buckets]), least_bits, part_bits, sum(above))
