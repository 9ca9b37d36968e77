"""Disks for which goroutines in the background wait, with others behind them.

A write-ahead log is like that: one goroutine is in fsync, and requests wait for it through a
channel or a lock, which does not show what they wait for. That these belong together is likely if
their stacks have a package in common, and the waits are long and end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import percent
from ebpfprof.findings import calls
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.moments import SHORT_NS, lasting
from ebpfprof.findings.waits import Waits
from ebpfprof.findings.words import part, place
from ebpfprof.profile.operations import is_in_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ebpfprof.findings.activity import Activity
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.moments import Doing
    from ebpfprof.profile.model import Frame

_KIND: Final = "slow_disk"
_LEAST_ON_DISK: Final = 0.4
"""Of the time of a goroutine: with less, requests wait longer for something else."""
_LEAST_OF_OTHERS: Final = 0.8
"""The same in a program without requests: such a goroutine does nothing but wait for the disk."""
_LEAST_STALLED: Final = 0.2
"""Of the time: the kernel's own measure of disks must support the finding."""
_LEAST_SHARE: Final = 0.4
"""Of the time of requests: these may wait for other goroutines, too."""
_LEAST_WAITING: Final = 1.0
"""Requests at a time: fewer may wait for something else."""
_LEAST_FOR_LOCKS: Final = 0.5
"""Goroutines that wait for a lock at a time, in a program without requests."""
_LEAST_OLD: Final = 0.4
"""Of the waits in progress that are 25 ms old or older: with a fast disk, none is."""
_LOCKS: Final = frozenset({"Mutex.Lock", "RWMutex.Lock", "RWMutex.RLock"})
_FOR_OTHERS: Final = _LOCKS | {"select", "chan receive", "Cond.Wait", "WaitGroup.Wait"}


def find(evidence: Evidence) -> Iterator[Finding]:
    """The goroutine that waits most for a disk, if others wait for it."""
    change, is_server = evidence.host_change, evidence.work.is_server
    stalled = change.stalled("io") if change else 0.0
    if stalled < _LEAST_STALLED or _is_found(evidence):
        return
    background = _background(evidence)
    function, on_disk = max(
        background.items(), key=lambda one: evidence.work.mean(one[1]), default=("", [])
    )
    busy = evidence.work.mean(on_disk)
    if busy < (_LEAST_ON_DISK if is_server else _LEAST_OF_OTHERS):
        return
    waits = _behind(evidence, {name for of in background.values() for name in _packages(of)})
    share, mean = waits.share(evidence), waits.mean(evidence)
    least = _LEAST_WAITING if is_server else _LEAST_FOR_LOCKS
    if (
        mean < least
        or (is_server and share.least < _LEAST_SHARE)
        or lasting(waits.seen, SHORT_NS) < _LEAST_OLD
    ):
        return
    worst = max(on_disk, key=lambda call: call.ns)
    name = _call_of(worst)
    of = f": {part(share)} of {evidence.work.of}" if is_server else ""
    yield Finding(
        kind=_KIND,
        level=Level.SLOW,
        title=f"Slow disk: {_short(function)} waits for {name} "
        f"{percent(min(1.0, busy))} of the time.",
        lines=(
            f"{mean:.1f} {'requests' if is_server else 'goroutines'} wait for it, most likely, in "
            f"{place(waits.place)}{of}.",
            f"Tasks in the container waited for disks {percent(stalled)} of the time.",
        ),
        share=min(1.0, busy) * (share.value if is_server else 1.0),
        error=share.error,
        next=f"dump --pid {evidence.program.pid}",
        place=worst.place,
    )


def fine(evidence: Evidence) -> str:
    """Nothing: the time of requests is reported with other calls."""
    return ""


def _is_found(evidence: Evidence) -> bool:
    """Whether requests wait for the disk themselves."""
    return any(finding.kind == _KIND for finding in calls.find(evidence))


def _background(evidence: Evidence) -> dict[str, list[Activity]]:
    """What goroutines that serve no request do at disks, by the function that they began with."""
    by_function: dict[str, list[Activity]] = defaultdict(list)
    for activity in evidence.work.where(
        lambda activity: not activity.is_request and bool(activity.frames)
    ):
        if calls.is_of_disk(_call_of(activity)):
            by_function[activity.frames[-1].function].append(activity)
    return by_function


def _call_of(activity: Activity) -> str:
    """The system call by its name, "" if it is in none."""
    first, _, name = activity.operation.partition(" ")
    return name if first == "syscall" else ""


def _behind(evidence: Evidence, packages: set[str]) -> Waits:
    """The waits for other goroutines that end, of stacks with one of these packages."""
    waits, is_server = Waits(), evidence.work.is_server
    standing = _standing(evidence)
    for activity in evidence.work.activities:
        is_wait = activity.operation in (_FOR_OTHERS if is_server else _LOCKS)
        if is_wait and activity.is_request == is_server and packages & _packages([activity]):
            seen = evidence.moments.of(activity)
            waits.add(activity, (doing for doing in seen if _key(doing) not in standing), len(seen))
    return waits


def _standing(evidence: Evidence) -> set[tuple[int, int | None]]:
    """The waits that are in progress in two dumps, such as those of long polls."""
    numbers = Counter(_key(doing) for moment in evidence.moments.all for doing in moment.all)
    return {key for key, number in numbers.items() if number > 1}


def _key(doing: Doing) -> tuple[int, int | None]:
    return doing.goroutine.goid, doing.goroutine.wait


def _packages(activities: Iterable[Activity]) -> set[str]:
    """The packages of the program on some stacks."""
    return {
        _package(frame)
        for activity in activities
        for frame in activity.frames
        if not is_in_library(frame.function)
    }


def _package(frame: Frame) -> str:
    path, slash, name = frame.function.rpartition("/")
    return path + slash + name.partition(".")[0]


def _short(function: str) -> str:
    return function.rpartition("/")[2]
