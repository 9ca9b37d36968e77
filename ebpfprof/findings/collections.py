"""Garbage collections that take much of the CPU time, or that stop the program for long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import duration, percent, quantity
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import part, place
from ebpfprof.findings.work import Share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.cpu import Burnt, HotStack
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.runtime import RuntimeMoment
    from ebpfprof.profile.memory import MemoryStatistics
    from ebpfprof.profile.time_histogram import TimeHistogram

_LEAST_SHARE: Final = 0.2
"""Of the CPU time: with GOGC=100, programs that allocate much take up to about 15 %."""
_LEAST_CYCLES: Final = 3
"""Collections: the time of fewer says nothing about the next ones."""
_LEAST_PROCESSORS: Final = 0.1
"""Of a CPU: of a program that uses less, collections are cheap whatever their share."""
_STOPPED_SHARE: Final = 0.1
"""Of the time: one request in ten meets a stop."""
_LOW_PERCENT: Final = 50
"""GOGC: below, collections cost more than twice as much as by default."""
_NEAR_LIMIT: Final = 0.7
"""The part of the goal that is in use after collections when a limit forces them."""
_MOSTLY_FORCED: Final = 0.5
_LEAST_ALLOCATING: Final = 0.1
_COLLECTOR: Final = frozenset(
    {
        *("runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep"),
        *("runtime.gcStart", "runtime.gcMarkTermination", "runtime.bgscavenge"),
    }
)
_ALLOCATOR: Final = "runtime.mallocgc"


@dataclass(frozen=True, slots=True)
class _Passed:
    """Collections and allocations during the observation."""

    before: MemoryStatistics
    after: MemoryStatistics

    @property
    def cycles(self) -> int:
        return self.after.collector.cycles - self.before.collector.cycles

    @property
    def forced(self) -> int:
        return self.after.collector.forced - self.before.collector.forced

    @property
    def objects(self) -> int:
        return self.after.mallocs - self.before.mallocs

    @property
    def allocated(self) -> int:
        return self.after.total_allocated - self.before.total_allocated


def find(evidence: Evidence) -> Iterator[Finding]:
    """Collections that take much CPU time, with why; then stops of all goroutines."""
    passed, share = _passed(evidence), collector_share(evidence)
    cpu = evidence.cpu_time
    uses_cpu = cpu is None or cpu.processors >= _LEAST_PROCESSORS
    is_enough = passed is not None and passed.cycles >= _LEAST_CYCLES
    if passed and share and is_enough and uses_cpu and share.least >= _LEAST_SHARE:
        yield _of_cpu(evidence, passed, share)
    else:
        yield from _stops(evidence)


def fine(evidence: Evidence) -> str:
    """The part of the CPU time that collections took."""
    share = collector_share(evidence)
    return f"garbage collection {percent(share.value)}" if share else ""


def collector_share(evidence: Evidence) -> Share | None:
    """The part of the CPU time that collections took, None if that is not known.

    By the runtime's own account, which is exact, if collections brought it up to date; else by the
    CPU profile. Work of processors that had nothing else to do does not count.
    """
    runtime = evidence.runtime
    if runtime and runtime.before.collector_cpu and runtime.after.collector_cpu:
        passed = runtime.after.collector_cpu - runtime.before.collector_cpu
        if passed.busy_ns > 0 and passed.total_ns >= evidence.length_ns / 2:
            return Share(max(0.0, min(1.0, passed.collections_ns / passed.busy_ns)), 0.0)
    cpu = evidence.cpu_time
    if cpu is None or not cpu.total_ns:
        return None
    return cpu.share(cpu.where(_is_collector))


def _is_collector(stack: HotStack) -> bool:
    is_idle = "runtime.gcDrainMarkWorkerIdle" in stack.names
    return not is_idle and not _COLLECTOR.isdisjoint(stack.names)


def _passed(evidence: Evidence) -> _Passed | None:
    runtime = evidence.runtime
    if runtime is None or runtime.before.memory is None or runtime.after.memory is None:
        return None
    return _Passed(runtime.before.memory, runtime.after.memory)


def _of_cpu(evidence: Evidence, passed: _Passed, share: Share) -> Finding:
    pid = evidence.program.pid
    collector = passed.after.collector
    next_ = f"attach --pid {pid} --profile allocs"
    kind, title = "collections", f"Garbage collection takes {part(share)} of the CPU time"
    if passed.forced > _MOSTLY_FORCED * passed.cycles:
        kind, why = "forced_collections", "the program calls runtime.GC again and again"
    elif collector.limit is not None and _is_limited(passed):
        kind, why = "heap_limit", f"GOMEMLIMIT ({quantity(collector.limit, 'bytes')}) is too low"
        next_ = f"memory --pid {pid}"
    elif 0 <= collector.percent < _LOW_PERCENT:
        why = f"GOGC={collector.percent} is low"
    else:
        why = f"it allocates {quantity(passed.allocated / evidence.seconds, 'bytes', 2)} a second"
    every = f"one every {duration(evidence.length_ns / passed.cycles, 2)}"
    goal = f" of {quantity(collector.goal, 'bytes')}" if collector.goal else ""
    lines = (
        f"{passed.cycles:,} collections, {every}; "
        f"{quantity(collector.marked, 'bytes')}{goal} in use after the last one.",
        *_allocations(evidence, passed),
    )
    allocating = _allocating(evidence)
    return Finding(
        kind=kind,
        level=Level.SLOW,
        title=f"{title}: {why}.",
        lines=lines,
        share=share.value,
        error=share.error,
        next=next_,
        place=allocating.place if allocating else None,
    )


def _is_limited(passed: _Passed) -> bool:
    """Whether the limit makes collections more frequent than GOGC alone would."""
    collector = passed.after.collector
    if collector.goal is None:
        return False
    if collector.percent < 0:
        return True
    by_percent = collector.marked * (1 + collector.percent / 100)
    return collector.goal < _NEAR_LIMIT * by_percent or collector.marked > _NEAR_LIMIT * (
        collector.limit or 0
    )


def _allocations(evidence: Evidence, passed: _Passed) -> tuple[str, ...]:
    """The rate of allocations, with the function that takes most CPU time for them."""
    if passed.objects <= 0:
        return ()
    rate = passed.objects / evidence.seconds
    mean = quantity(passed.allocated / passed.objects, "bytes", 2)
    allocating = _allocating(evidence)
    where = f"; most CPU time for them in {place(allocating.place)}" if allocating else ""
    return (f"{_rounded(rate)} objects a second of {mean} on average{where}.",)


def _allocating(evidence: Evidence) -> Burnt | None:
    cpu = evidence.cpu_time
    if cpu is None:
        return None
    stacks = cpu.where(lambda one: any(name.startswith(_ALLOCATOR) for name in one.names))
    hottest = cpu.hottest(stacks)
    if hottest is None:
        return None
    return hottest if hottest.share.value >= _LEAST_ALLOCATING * cpu.share(stacks).value else None


def _rounded(number: float) -> str:
    """With two digits that count: 1,800,000."""
    digits = max(0, len(str(int(number))) - 2)
    return f"{round(number, -digits):,.0f}"


def _stops(evidence: Evidence) -> Iterator[Finding]:
    """All goroutines stand still for a large part of the time."""
    runtime = evidence.runtime
    if runtime is None:
        return
    for name, why in (
        ("stops_to_collect", "to collect garbage"),
        ("other_stops", "for another reason than garbage, such as runtime.ReadMemStats"),
    ):
        stops = _added(runtime.before, runtime.after, name)
        if stops is None or not stops.total:
            continue
        # A thread that has to wait for a CPU makes a few stops long: the median is without these.
        usual_ns = stops.quantile_ns(0.5)
        share = usual_ns * stops.total / evidence.length_ns
        if share < _STOPPED_SHARE:
            continue
        yield Finding(
            kind="stops",
            level=Level.SLOW,
            title=f"All goroutines stand still {percent(share)} of the time, {why}.",
            lines=(
                f"{stops.total:,} stops, half of them for {duration(usual_ns, 2)} or more, "
                f"{duration(stops.longest_ns(), 2)} at most.",
            ),
            share=min(1.0, share),
            next=f"trace --pid {evidence.program.pid}",
        )


def _added(before: RuntimeMoment, after: RuntimeMoment, name: str) -> TimeHistogram | None:
    then, now = getattr(before, name), getattr(after, name)
    return None if then is None or now is None else now - then
