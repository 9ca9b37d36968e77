"""What is stuck in a program, in sentences and as JSON.

Lines are printable: no text of the target reaches a terminal as a control character.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ebpfprof.console.text import counted, listed, printable
from ebpfprof.export.go_quotes import readable
from ebpfprof.export.tables.goroutine_frames import shown_frames
from ebpfprof.export.tables.waiting_for import lock_name
from ebpfprof.profile.asleep import Asleep
from ebpfprof.profile.deadlocks import Circle
from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.stuck import LostWake, Stuck
from ebpfprof.profile.waiting_for import Sureness

_INDENT: Final = "    "
_SYNC: Final = ("sync.", "internal/sync.")
_MAX_SHOWN: Final = 8
_KINDS: Final = {Circle: "deadlock", LostWake: "lost_wake", Asleep: "asleep"}
_WHY_CIRCLE: Final = {
    Sureness.CERTAIN: "Certain: on every path through its code, each goroutine has taken its lock "
    "and not released it.",
    Sureness.LIKELY: "Likely: which goroutine holds a lock is a guess from the stacks.",
}
_WHY_LOST: Final = {
    Sureness.CERTAIN: "Certain: no goroutine is on its way to wake them. Perhaps the lock was "
    "copied or overwritten while they waited, or its memory is corrupt.",
    Sureness.LIKELY: "Likely: a goroutine that ran in each sample may still wake them. Otherwise "
    "the lock was copied or overwritten while they waited.",
}
_WHY_ASLEEP: Final = (
    "Certain: no timer is set, no thread is in a system call or in C, and none waits for the "
    "network or for a signal. Go does not see that itself if the program uses cgo or os/signal."
)


def kind(finding: Stuck) -> str:
    """Its kind in JSON: "deadlock", "lost_wake" or "asleep"."""
    return _KINDS[type(finding)]


def lines(finding: Stuck) -> list[str]:
    """A title, lines that say which goroutines wait and for what, and how sure that is."""
    if isinstance(finding, Circle):
        rows = [*_circle(finding), _WHY_CIRCLE[finding.sureness]]
    elif isinstance(finding, LostWake):
        rows = [*_lost(finding), _WHY_LOST[finding.sureness]]
    else:
        rows = [*_asleep(finding), _why_asleep(finding)]
    return [printable(line) for line in rows]


def as_json(finding: Stuck) -> dict[str, Any]:
    """The same for programs; the last line says why."""
    title, *rest = lines(finding)
    return {
        "kind": kind(finding),
        "certain": finding.sureness is Sureness.CERTAIN,
        "title": title,
        "lines": rest,
        "goroutines": [goroutine.goid for goroutine in finding.goroutines],
    }


def _circle(finding: Circle) -> list[str]:
    circle = finding.goroutines
    is_certain = finding.sureness is Sureness.CERTAIN
    head = "Deadlock" if is_certain else "Probably a deadlock"
    if len(circle) == 1:
        title = f"{head}: goroutine {circle[0].goid} waits for itself."
    else:
        title = f"{head}: {len(circle)} goroutines wait for each other."
    rows = [title]
    holds = "holds it" if is_certain else "may hold it"
    for goroutine, following in zip(circle, (*circle[1:], circle[0]), strict=True):
        lock = goroutine.waits_for.lock
        assert lock
        if goroutine.waits_for.behind == following.goid:
            other = f"goroutine {following.goid} wants to write first"
        elif goroutine is following:
            other = f"it {holds} itself"
        else:
            other = f"goroutine {following.goid} {holds}"
        rows.append(f"{waits(goroutine)},")
        rows.append(f"{_INDENT}for {lock_name(lock)}: {other}")
    return rows


def _lost(finding: LostWake) -> list[str]:
    head = "Lost wake" if finding.sureness is Sureness.CERTAIN else "Probably a lost wake"
    number = len(finding.goroutines)
    state = "is done" if finding.lock.type == "sync.WaitGroup" else "is free"
    title = (
        f"{head}: {counted(number, 'goroutine')} wait{_s(number)} for "
        f"{lock_name(finding.lock)}, which {state}."
    )
    return [title, *_waiting(finding.goroutines)]


def _asleep(finding: Asleep) -> list[str]:
    number = counted(len(finding.goroutines), "goroutine")
    if finding.sureness is Sureness.CERTAIN:
        title = f"All goroutines are asleep: nothing can wake any of {number}."
    else:
        title = f"Probably hung: {number} can only wake each other, and all are asleep."
    return [title, *_waiting(finding.goroutines)]


def _why_asleep(finding: Asleep) -> str:
    if finding.sureness is Sureness.CERTAIN:
        return _WHY_ASLEEP
    others = []
    if finding.accepting:
        others.append("a new connection")
    if finding.for_signals:
        others.append("a signal")
    if finding.foreign_threads is None:
        others.append("C, if it calls Go")
    elif finding.foreign_threads:
        threads = counted(finding.foreign_threads, "thread")
        verb = "is" if finding.foreign_threads == 1 else "are"
        others.append(f"C, in {threads} that {verb} not Go's")
    return f"Likely: no timer is set; only {listed(others)} can still start anything."


def _waiting(goroutines: Sequence[DumpedGoroutine]) -> list[str]:
    rows = [f"{waits(goroutine)} ({goroutine.state})" for goroutine in goroutines[:_MAX_SHOWN]]
    more = len(goroutines) - _MAX_SHOWN
    return [*rows, f"and {more} more"] if more > 0 else rows


def waits(goroutine: DumpedGoroutine) -> str:
    """ "goroutine 7 waits in main.f, f.go:3", innermost outside of runtime and sync."""
    frames = [frame for frame in shown_frames(goroutine) if not frame.function.startswith(_SYNC)]
    where = f" in {readable(frames[0].function)}" if frames else ""
    place = f", {frames[0].position}" if frames else ""
    return f"goroutine {goroutine.goid} waits{where}{place}"


def _s(number: int) -> str:
    return "s" if number == 1 else ""
