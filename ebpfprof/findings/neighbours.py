"""Threads that could run but got no processor: others use them, or the machine's host does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.console.text import duration, percent
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import part
from ebpfprof.findings.work import Share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.host import HostChange

_LEAST_SHARE: Final = 0.15
"""Of the time of goroutines: as for locks."""
_LEAST_DELAYED: Final = 0.2
"""Of the time that threads wanted to run: each scheduler makes threads wait a little."""
_LEAST_OTHERS: Final = 0.4
"""Of the machine: if others use less, the process's own threads wait for each other."""
_LEAST_BUSY: Final = 0.8
"""Of the machine: with idle processors, threads wait for a moment only."""
_LEAST_STEAL: Final = 0.1
"""Of the time of processors that were not idle: below, no request is noticeably slower."""
_LEAST_USED: Final = 0.1
"""Of a processor: a process that uses less loses little by steal."""


class _Delay(NamedTuple):
    """For how long threads waited for a processor, without throttling; parts from 0 to 1.

    `of_time` is of the time of goroutines, `of_wanted` of the time that threads ran or could have
    run, `others` what other processes used of the machine, `busy` what all used.
    """

    ns: int
    of_time: Share
    of_wanted: float
    others: float
    busy: float


def find(evidence: Evidence) -> Iterator[Finding]:
    """Processors that other processes use, or that the machine's host took away."""
    change = evidence.host_change
    if change is None or not change.length_ns:
        return
    delay = _delay(evidence, change)
    if delay is not None and _is_noticed(delay):
        yield _neighbours(delay, evidence)
    steal = _steal(change)
    is_used = change.cpu_ns >= _LEAST_USED * change.length_ns
    if steal is not None and steal >= _LEAST_STEAL and is_used:
        yield _stolen(steal, evidence)


def fine(evidence: Evidence) -> str:
    """For how long threads waited for a processor."""
    change = evidence.host_change
    delay = _delay(evidence, change) if change and change.length_ns else None
    return "" if delay is None else f"threads waiting for a CPU {percent(delay.of_time.value)}"


def _is_noticed(delay: _Delay) -> bool:
    is_long = delay.of_time.least >= _LEAST_SHARE and delay.of_wanted >= _LEAST_DELAYED
    return is_long and delay.others >= _LEAST_OTHERS and delay.busy >= _LEAST_BUSY


def _delay(evidence: Evidence, change: HostChange) -> _Delay | None:
    """None if it is unknown."""
    delayed_ns, before, after = change.delayed_ns, change.before.machine, change.after.machine
    if delayed_ns is None or before is None or after is None:
        return None
    busy_ns = after.busy_ns - before.busy_ns
    all_ns = busy_ns + after.idle_ns - before.idle_ns
    if all_ns <= 0:
        return None
    processors = evidence.runtime.after.processors if evidence.runtime else None
    throttling = change.throttling
    # While it is throttled, up to GOMAXPROCS threads wait on each processor that is stopped.
    stopped_ns = min(throttling.stopped_ns, change.length_ns) if throttling else 0
    own_ns = max(0, delayed_ns - stopped_ns * (processors or after.processors))
    work = evidence.work
    # A goroutine that runs has a thread that may wait; others are behind it in Go's queue.
    share = work.share(work.where(lambda one: one.state in ("running", "runnable")))
    of_wanted = own_ns / (own_ns + change.cpu_ns) if own_ns else 0.0
    return _Delay(
        own_ns,
        Share(of_wanted * share.value, of_wanted * share.error),
        of_wanted,
        max(0, busy_ns - change.cpu_ns) / all_ns,
        busy_ns / all_ns,
    )


def _neighbours(delay: _Delay, evidence: Evidence) -> Finding:
    return Finding(
        kind="neighbours",
        level=Level.SLOW,
        title=f"Busy machine: waiting for a CPU takes {part(delay.of_time)} of {evidence.work.of}.",
        lines=(
            f"Other processes use {percent(delay.others)} of the machine's CPU time. Threads of "
            f"this one waited {duration(delay.ns / evidence.seconds, 2)} a second.",
        ),
        share=delay.of_time.value,
        error=delay.of_time.error,
        next=f"attach --pid {evidence.program.pid} --profile wall,cpu",
    )


def _steal(change: HostChange) -> float | None:
    before, after = change.before.machine, change.after.machine
    if before is None or after is None:
        return None
    steal_ns, busy_ns = after.steal_ns - before.steal_ns, after.busy_ns - before.busy_ns
    return max(0.0, steal_ns / (steal_ns + busy_ns)) if steal_ns + busy_ns > 0 else None


def _stolen(steal: float, evidence: Evidence) -> Finding:
    work = evidence.work
    running = work.share(work.where(lambda one: one.state == "running"))
    return Finding(
        kind="steal",
        level=Level.SLOW,
        title=f"Steal: the host of this virtual machine took {percent(steal)} of its CPU time.",
        lines=("Other virtual machines use its processors, or it has a limit.",),
        share=steal * running.value,
        error=steal * running.error,
    )
