"""What Go's runtime counts in a process, at a moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebpfprof.profile.memory import CollectorCpu, MemoryStatistics
    from ebpfprof.profile.model import Frame
    from ebpfprof.profile.time_histogram import TimeHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeMoment:
    """Counters of the runtime since the process began; None for what could not be read.

    `collector_cpu` counts until the last collection that ended. `waits_to_run` are times for which
    goroutines were runnable before they ran, of one in eight. `mutex_wait_ns` is the time that
    goroutines waited for locks of package sync. `stops_to_collect` and `other_stops` are pauses of
    all goroutines. `processors` is GOMAXPROCS, `timers` how many are set, `threads` how many were
    made. `pauses_ns` are the pauses of the last 256 collections, by their number modulo 256.
    """

    memory: MemoryStatistics | None = None
    collector_cpu: CollectorCpu | None = None
    waits_to_run: TimeHistogram | None = None
    mutex_wait_ns: int | None = None
    stops_to_collect: TimeHistogram | None = None
    other_stops: TimeHistogram | None = None
    processors: int | None = None
    timers: int | None = None
    threads: int | None = None
    pauses_ns: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class HeapMoment:
    """The heap at a moment (ns of a monotonic clock): bytes that the last of `cycles` collections
    found in use, and with what was allocated since."""

    at_ns: int
    cycles: int
    marked: int
    live: int


@dataclass(frozen=True, slots=True)
class GrowingStack:
    """A stack of the program's own memory profile, innermost frame first, and how many bytes more
    of what it allocated are in use than before: an estimate."""

    frames: tuple[Frame, ...]
    bytes: int
