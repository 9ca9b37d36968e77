"""Counters of the runtime made by hand: before and after ten seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ebpfprof.findings.evidence import BeforeAndAfter
from ebpfprof.findings.host import HostMoment
from ebpfprof.findings.runtime import HeapMoment, RuntimeMoment
from ebpfprof.profile.memory import Collector, CollectorCpu, MemoryStatistics
from ebpfprof.profile.time_histogram import TimeHistogram
from tests.unit.findings.evidence import LENGTH_NS, SECONDS

MIB: Final = 1 << 20
PROCESSORS: Final = 4
_BUCKETS: Final = 160
_BITS: Final = (9, 2)
_COLLECTOR: Final = Collector(100, 0, 0, 0, 0, 100, None, 80 * MIB, 50 * MIB, 40 * MIB, 0.0)
_STATISTICS: Final = MemoryStatistics(*(0,) * 19, _COLLECTOR, (), True)


def histogram(of: Mapping[int, int]) -> TimeHistogram:
    """A histogram of Go 1.20 or later: numbers by duration (ns)."""
    empty = TimeHistogram((0,) * _BUCKETS, *_BITS)
    counts = [0] * _BUCKETS
    for ns, number in of.items():
        bucket = max(at for at in range(_BUCKETS) if empty.lower_ns(at) <= ns)
        counts[bucket] += number
    return replace(empty, counts=tuple(counts))


def collections(
    number: int = 5,
    *,
    forced: int = 0,
    allocated: int = 100 * MIB,
    objects: int = 0,
    **now: Any,  # noqa: ANN401 - those of Collector
) -> BeforeAndAfter[RuntimeMoment]:
    """`number` collections and allocations in the time; `now` are fields of the collector."""
    collector = replace(_COLLECTOR, cycles=100 + number, forced=forced, **now)
    after = replace(_STATISTICS, total_allocated=allocated, mallocs=objects, collector=collector)
    return moments(RuntimeMoment(memory=_STATISTICS), RuntimeMoment(memory=after))


def counted(
    runtime: BeforeAndAfter[RuntimeMoment] | None = None,
    *,
    waits: Mapping[int, int] | None = None,
    busy: float = 0.5,
    collecting: float = 0.0,
    stops: Mapping[int, int] | None = None,
    other_stops: Mapping[int, int] | None = None,
    **after: Any,  # noqa: ANN401 - those of RuntimeMoment
) -> BeforeAndAfter[RuntimeMoment]:
    """The same with counters of the scheduler: waits to run and stops by length (ns).

    `busy` is the part of processors that was not idle, `collecting` the part of it of collections.
    """
    total = PROCESSORS * LENGTH_NS
    cpu = CollectorCpu(
        assist_ns=0,
        dedicated_ns=round(total * busy * collecting),
        idle_workers_ns=0,
        paused_ns=0,
        scavenger_ns=0,
        idle_ns=round(total * (1 - busy)),
        user_ns=round(total * busy * (1 - collecting)),
        total_ns=total,
    )
    none = histogram({})
    runtime = runtime or collections()
    return BeforeAndAfter(
        replace(
            runtime.before,
            collector_cpu=cpu - cpu,
            waits_to_run=none,
            stops_to_collect=none,
            other_stops=none,
            processors=PROCESSORS,
        ),
        replace(
            runtime.after,
            collector_cpu=cpu,
            waits_to_run=histogram(waits or {}),
            stops_to_collect=histogram(stops or {}),
            other_stops=histogram(other_stops or {}),
            **({"processors": PROCESSORS} | after),
        ),
    )


def moments(before: RuntimeMoment, after: RuntimeMoment) -> BeforeAndAfter[RuntimeMoment]:
    """Counters at the beginning and the end."""
    return BeforeAndAfter(before, after)


def used(processors: float) -> BeforeAndAfter[HostMoment]:
    """The CPU time of the process, in processors."""
    return BeforeAndAfter(HostMoment(cpu_ns=0), HostMoment(cpu_ns=round(processors * LENGTH_NS)))


def heap(
    *marked_mib: float, first: int = 10, live_mib: float | None = None
) -> tuple[HeapMoment, ...]:
    """The heap after one collection after another, at equal distances, each seen twice."""
    found = []
    for number, mib in enumerate(marked_mib):
        at_ns = round(number * SECONDS / max(1, len(marked_mib) - 1) * 1e9)
        marked = round(mib * MIB)
        live = round((mib if live_mib is None else live_mib) * MIB)
        found += [
            HeapMoment(at_ns, first + number, marked, live),
            HeapMoment(at_ns + 1000, first + number, marked, live),
        ]
    return tuple(found)
