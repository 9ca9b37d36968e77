"""Goroutines that are locked to their threads and hand over to each other all the time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import percent
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import place
from ebpfprof.profile.operations import caller

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.profile.goroutines import DumpedGoroutine

_LEAST_SWITCHES: Final = 5000.0
"""A second, of threads: each takes about 5 µs, so fewer are below 3 % of a processor."""
_LEAST_MEAN: Final = 1.5
"""Goroutines that move, on average: one alone hands over to nobody."""
_LEAST_SHARE: Final = 0.3
"""Of the goroutines at work: fewer are one part of the program among others."""
_LEAST_DUMPS: Final = 3


def find(evidence: Evidence) -> Iterator[Finding]:
    """Locked goroutines that move, with threads that switch very often."""
    change, dumps = evidence.host_change, evidence.dumps
    switches = change.voluntary_switches if change else None
    if switches is None or switches < _LEAST_SWITCHES * evidence.seconds:
        return
    if len(dumps) < _LEAST_DUMPS:
        return
    moving = _moving(evidence)
    mean = len(moving) / len(dumps)
    total = evidence.work.mean(evidence.work.activities)
    share = min(1.0, mean / total) if total else 0.0
    if mean < _LEAST_MEAN or share < _LEAST_SHARE:
        return
    callers = Counter(caller(goroutine.frames) for goroutine in moving if goroutine.frames)
    where, number = callers.most_common(1)[0]
    yield Finding(
        kind="locked_threads",
        level=Level.SLOW,
        title=f"LockOSThread: {percent(share)} of goroutines at work are locked to threads and "
        "take turns.",
        lines=(
            f"Threads switch {switches / evidence.seconds:,.0f} times a second; "
            f"{percent(number / len(moving))} of the goroutines are in {place(where)}.",
        ),
        share=share,
        next=f"dump --pid {evidence.program.pid}",
        place=where,
    )


def fine(_evidence: Evidence) -> str:
    """Nothing: most programs lock no goroutine."""
    return ""


def _moving(evidence: Evidence) -> list[DumpedGoroutine]:
    """The locked goroutines of all dumps that did something else in the dump before or after."""
    waits = [
        {goroutine.goid: goroutine.wait for goroutine in dump.goroutines} for dump in evidence.dumps
    ]
    return [
        goroutine
        for at, dump in enumerate(evidence.dumps)
        for goroutine in dump.goroutines
        if goroutine.is_locked
        and any(
            other.get(goroutine.goid) != goroutine.wait or goroutine.wait is None
            for other in waits[max(0, at - 1) : at + 2]
        )
    ]
