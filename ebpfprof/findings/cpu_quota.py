"""How much CPU time the container may use: its quota, and Go's GOMAXPROCS beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import duration, percent
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import cpus, mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.host import HostChange, Throttling

_LEAST_STOPPED: Final = 0.05
"""Of the time: shorter stops come with any quota that is used well, in bursts."""
_LEAST_PERIODS: Final = 5
"""Fewer periods with a stop are one burst, such as a collection."""
_TOO_MANY: Final = 2.0
"""GOMAXPROCS above the quota by this factor uses up a period's quota within half of it."""
_GOS_LEAST: Final = 2
"""What Go itself sets where the quota is lower (runtime/cgroup_linux.go, Go 1.25 on)."""
_LEAST_RUNNABLE: Final = 0.15
"""Of the time: goroutines that wait for a processor of Go's for less are not noticed."""
_BUSY: Final = 0.8
"""Of GOMAXPROCS: only if all of these are in use, more would help."""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Throttling, or the GOMAXPROCS that causes it; else a GOMAXPROCS that is too small."""
    change = evidence.host_change
    if change is None:
        return
    processors = evidence.runtime.after.processors if evidence.runtime else None
    throttling = change.throttling
    if throttling is not None and _is_throttled(throttling, change):
        yield _throttled(evidence, throttling, change, processors)
    elif processors is not None:
        yield from _too_few(evidence, change, processors)


def fine(evidence: Evidence) -> str:
    """The time for which the container was throttled, if it has a quota."""
    change = evidence.host_change
    throttling = change.throttling if change else None
    if change is None or throttling is None:
        return ""
    return f"CPU quota: throttled {percent(throttling.stopped_share(change.length_ns))}"


def _is_throttled(throttling: Throttling, change: HostChange) -> bool:
    is_often = throttling.throttled >= _LEAST_PERIODS
    return is_often and throttling.stopped_share(change.length_ns) >= _LEAST_STOPPED


def _throttled(
    evidence: Evidence, throttling: Throttling, change: HostChange, processors: int | None
) -> Finding:
    quota = throttling.group.quota_cpus or 0.0
    stopped = throttling.stopped_share(change.length_ns)
    used = throttling.used_cpus
    if used is None:  # of version 1: what this process alone used
        used = change.cpu_ns / change.length_ns
    is_too_many = processors is not None and processors >= _TOO_MANY * math.ceil(quota)
    is_too_many &= (processors or 0) > _GOS_LEAST
    period_ns = 1000 * (throttling.group.period_us or 0)
    lines = [
        f"Stopped in {throttling.throttled} of {throttling.periods} periods of "
        f"{duration(period_ns, 2)}, for {duration(throttling.stop_ns, 2)} on average."
    ]
    pid = evidence.program.pid
    # Below one CPU, a single thread is throttled, too.
    if is_too_many and quota >= 1:
        kind = "gomaxprocs"
        title = (
            f"GOMAXPROCS is {processors}, above the CPU quota ({cpus(quota)}): throttled for "
            f"{percent(stopped)} of the time."
        )
        lines.append(f"It used {cpus(used)} on average. Set GOMAXPROCS={math.ceil(quota)}.")
    else:
        kind = "throttling"
        title = (
            f"CPU quota: the container was throttled for {percent(stopped)} of the time "
            f"({cpus(quota)})."
        )
        lines += [f"GOMAXPROCS is {processors}."] if is_too_many else []
    return Finding(
        kind=kind,
        level=Level.SLOW,
        title=title,
        lines=tuple(lines),
        share=stopped,
        next=f"attach --pid {pid} --profile cpu",
    )


def _too_few(evidence: Evidence, change: HostChange, processors: int) -> Iterator[Finding]:
    """GOMAXPROCS below what the process may use, while goroutines wait for a processor of Go's."""
    may_use = change.after.processors
    if may_use is None or processors >= math.floor(may_use) or not change.length_ns:
        return
    work = evidence.work
    runnable = work.where(lambda one: one.state == "runnable")
    share = work.share(runnable)
    used = change.cpu_ns / change.length_ns
    if share.least < _LEAST_RUNNABLE or used < _BUSY * processors:
        return
    yield Finding(
        kind="gomaxprocs",
        level=Level.SLOW,
        title=f"GOMAXPROCS is {processors}, but {cpus(may_use)} could be used: goroutines wait "
        f"for a processor for {percent(share.value)} of {work.of}.",
        lines=(f"{mean(work.mean(runnable))} goroutines wait on average.",),
        share=share.value,
        error=share.error,
        next=f"attach --pid {evidence.program.pid} --profile cpu",
    )
