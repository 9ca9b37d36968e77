"""Goroutines that wait for a processor: GOMAXPROCS is too low, or the program is at its limit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import duration, percent
from ebpfprof.findings.finding import MOST_CPU_TIME, Finding, Level
from ebpfprof.findings.words import mean, part, place
from ebpfprof.findings.work import Share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.profile.time_histogram import TimeHistogram

_LEAST_SHARE: Final = 0.25
"""Of the time of goroutines at work: below, other causes are as large."""
_LEAST_WAITING: Final = 0.5
"""Goroutines that wait at a time: fewer are bursts that are soon over."""
_LEAST_BUSY: Final = 0.85
"""Of the time of all processors: with idle ones, goroutines wait for something else."""
_LEAST_WAIT_NS: Final = 500_000
"""Of one wait in a hundred: a shorter one is not felt by a request."""
_ON_CPU: Final = 0.35
"""Of the busy time: with less, a quota or other processes are the cause, not GOMAXPROCS."""
_YIELD_NS: Final = 1024
"""Shorter waits are those of goroutines that let others run when there are none, such as the
collector's sweeper, which does so millions of times."""
_P99: Final = 0.99


def find(evidence: Evidence) -> Iterator[Finding]:
    """Goroutines of a server wait for processors, all of which are busy."""
    share, number = waiting(evidence)
    busy, queue = busy_share(evidence), run_queue(evidence)
    if not evidence.work.is_server or busy is None or busy < _LEAST_BUSY:
        return
    if share.least < _LEAST_SHARE or number < _LEAST_WAITING or _is_kept_from_cpus(evidence, busy):
        return
    p99_ns = queue.quantile_ns(_P99) if queue else 0.0
    if queue and p99_ns < _LEAST_WAIT_NS:
        return
    runtime = evidence.runtime
    processors = runtime.after.processors if runtime else None
    wait = f" for {duration(p99_ns, 2)} (p99)" if queue else ""
    limit = f"GOMAXPROCS={processors}" if processors else "The processors"
    lines = [
        f"{mean(number)} goroutines wait{wait}. {limit}: {percent(busy)} busy.",
        *_hottest(evidence),
    ]
    yield Finding(
        kind="few_processors",
        level=Level.SLOW,
        title=f"Too few processors: goroutines wait for one {part(share)} of their time at work.",
        lines=tuple(lines),
        share=share.value,
        error=share.error,
        next=f"attach --pid {evidence.program.pid} --profile cpu",
        about=frozenset({MOST_CPU_TIME}),
    )


def fine(evidence: Evidence) -> str:
    """How long goroutines waited in the run queue."""
    queue = run_queue(evidence)
    return f"run queue {duration(queue.quantile_ns(_P99), 2)} (p99)" if queue else ""


def waiting(evidence: Evidence) -> tuple[Share, float]:
    """The part of the time at work for which goroutines were runnable, and how many they were."""
    work = evidence.work
    runnable = work.where(lambda one: one.state == "runnable")
    total_ns = work.total_ns
    if not total_ns:
        return Share(0.0, 0.0), 0.0
    # Not WorkTime.share: a request that has not been read yet is not known as one.
    value = sum(one.ns for one in runnable) / total_ns
    error = math.sqrt(sum(one.variance for one in runnable)) / total_ns
    return Share(value, error * (1 - value)), work.mean(runnable)


def run_queue(evidence: Evidence) -> TimeHistogram | None:
    """How long goroutines waited for a processor, but for yields; None if that is not known."""
    runtime = evidence.runtime
    if runtime is None:
        return None
    before, after = runtime.before.waits_to_run, runtime.after.waits_to_run
    if before is None or after is None:
        return None
    queue = (after - before).from_ns(_YIELD_NS)
    return queue if queue.total else None


def busy_share(evidence: Evidence) -> float | None:
    """The part of the time of all processors of the scheduler that was not idle.

    By the runtime's own account if collections brought it up to date, else by the CPU time; None if
    neither is known. A processor whose thread waits for a CPU is busy.
    """
    runtime = evidence.runtime
    if runtime is None:
        return None
    processors = runtime.after.processors
    before, after = runtime.before.collector_cpu, runtime.after.collector_cpu
    if before and after and processors:
        passed = after - before
        if passed.total_ns >= evidence.length_ns * processors / 2:
            return max(0.0, min(1.0, passed.busy_ns / passed.total_ns))
    if not processors or evidence.host is None:
        return None
    used_ns = evidence.host.after.cpu_ns - evidence.host.before.cpu_ns
    return min(1.0, used_ns / (evidence.length_ns * processors))


def _is_kept_from_cpus(evidence: Evidence, busy: float) -> bool:
    """Whether the threads of busy processors had no CPU for much of the time."""
    runtime, host = evidence.runtime, evidence.host
    if not runtime or not host or not runtime.after.processors:
        return False
    used_ns = host.after.cpu_ns - host.before.cpu_ns
    return used_ns < _ON_CPU * busy * runtime.after.processors * evidence.length_ns


def _hottest(evidence: Evidence) -> list[str]:
    cpu = evidence.cpu_time
    hottest = cpu.hottest(cpu.stacks) if cpu else None
    if hottest is None:
        return []
    return [f"Most CPU time: {place(hottest.place)}, {part(hottest.share)}."]
