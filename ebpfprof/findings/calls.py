"""System calls and calls of C that keep threads: for a disk, for something else, or in C.

The wall profile has the time of each place, dumps have what the thread waits for there.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import percent
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import mean, part, place
from ebpfprof.findings.work import Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ebpfprof.findings.activity import Activity, Place
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.moments import Moments
    from ebpfprof.profile.goroutines import DumpedGoroutine
    from ebpfprof.profile.model import Frame
    from ebpfprof.profile.waiting_for import SystemCall

_LEAST_SHARE: Final = 0.15
"""Of the time: as for locks."""
_LEAST_WAITING: Final = 0.25
"""Threads at a time: fewer are calls that some requests make for moments."""
_LEAST_THREADS: Final = 4.0
"""Threads at a time outside of requests: programs have a few that wait for a terminal or a child,
and these wait for nothing else."""
_LEAST_STALLED: Final = 0.05
"""Of the time: then the kernel's own measure of disks supports the finding."""
_IN_C: Final = "C"
_SYSCALL: Final = "syscall"
_OF_DISKS: Final = frozenset(
    {
        *("fsync", "fdatasync", "syncfs", "sync", "msync", "sync_file_range", "close", "fallocate"),
        *("truncate", "ftruncate", "open", "openat", "openat2", "creat", "getdents64", "stat"),
        *("lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "readlink", "readlinkat"),
        *("unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir"),
    }
)
"""System calls that wait for nothing but a file system."""
_NO_DISKS: Final = ("/proc/", "/sys/", "/dev/", "anon_inode:", "/memfd:")


@dataclass(slots=True)
class _Calls:
    """The calls at one place: what threads did there in dumps."""

    operation: str
    place: Frame
    activities: list[Activity] = field(default_factory=list)
    blocked: list[SystemCall] = field(default_factory=list)
    known: int = 0
    """Threads of which it is known what they did: some ran."""
    standing: int = 0
    """Those of `blocked` that are in the same call in the first dump and in the last."""

    @property
    def kind(self) -> str:
        """The kind of finding that these calls may be."""
        if self.operation.split(" ")[0] == _IN_C:
            return "cgo_calls"
        of_disks = sum(map(_waits_for_disk, self.blocked))
        return "slow_disk" if 2 * of_disks > len(self.blocked) else "system_calls"

    @property
    def blocked_part(self) -> Share:
        """The part of the time in these calls for which the thread waited, and did not run."""
        if not self.known:
            return Share(0.0, 0.0)
        value = len(self.blocked) / self.known
        return Share(value, math.sqrt(value * (1 - value) / self.known))

    @property
    def is_standing(self) -> bool:
        """Whether most of its threads are in one call all the time."""
        return 2 * self.standing > len(self.blocked)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Each kind of calls in which threads wait for a large part of the time."""
    places = _places(evidence)
    for kind in _TITLES:
        of_kind = [group for group in places if group.blocked and group.kind == kind]
        finding = _finding(kind, of_kind, evidence)
        if finding:
            yield finding


def fine(evidence: Evidence) -> str:
    """The time for which goroutines waited for a disk."""
    disk = [group for group in _places(evidence) if group.blocked and group.kind == "slow_disk"]
    return f"disk {percent(_share(disk, evidence).value)}"


def _places(evidence: Evidence) -> list[_Calls]:
    places: dict[Place, _Calls] = {}
    work, moments = evidence.work, evidence.moments
    for activity in work.where(lambda activity: activity.state == _SYSCALL):
        # Of a server, only requests count: what works in the background may wait.
        if activity.is_request or not work.is_server:
            places.setdefault(activity.at, _Calls(*activity.at)).activities.append(activity)
    for at, calls in places.items():
        for doing in moments.at([at]):
            if doing.goroutine.state == _SYSCALL:
                _add(calls, doing.goroutine, moments)
    return list(places.values())


def _add(calls: _Calls, goroutine: DumpedGoroutine, moments: Moments) -> None:
    thread = goroutine.waits_for.thread
    if thread is None:
        return
    calls.known += 1
    if thread.call is not None:
        calls.blocked.append(thread.call)
        both = [moment.by_id.get(goroutine.goid) for moment in (moments.all[0], moments.all[-1])]
        waits = {moment.goroutine.wait if moment else None for moment in both}
        calls.standing += len(moments.all) > 1 and waits == {goroutine.wait}


def is_of_disk(name: str) -> bool:
    """Whether this system call waits for nothing but a file system."""
    return name in _OF_DISKS


def _waits_for_disk(call: SystemCall) -> bool:
    if call.file is None:
        return is_of_disk(call.name)
    return call.file.kind == "file" and not call.file.path.startswith(_NO_DISKS)


def _share(calls: Iterable[_Calls], evidence: Evidence) -> Share:
    """The part of the time for which threads waited in these calls."""
    value = variance = 0.0
    for group in calls:
        share, blocked = evidence.work.share(group.activities), group.blocked_part
        value += share.value * blocked.value
        variance += (share.error * blocked.value) ** 2 + (share.value * blocked.error) ** 2
    return Share(value, math.sqrt(variance))


def _finding(kind: str, calls: list[_Calls], evidence: Evidence) -> Finding | None:
    work = evidence.work
    if kind != "slow_disk" and not work.is_server:
        calls = [group for group in calls if not group.is_standing]
    share = _share(calls, evidence)
    waiting = sum(work.mean(group.activities) * group.blocked_part.value for group in calls)
    is_disk_or_server = kind == "slow_disk" or work.is_server
    least = _LEAST_WAITING if is_disk_or_server else _LEAST_THREADS
    if share.least < _LEAST_SHARE or waiting < least:
        return None
    worst = max(calls, key=lambda group: _share([group], evidence).value)
    names = Counter(call.name for call in worst.blocked)
    name = names.most_common(1)[0][0]
    of_c = worst.operation.partition(" ")[2] or "a function"
    title = _TITLES[kind].format(
        name=of_c if kind == "cgo_calls" else name, share=part(share), of=work.of
    )
    lines = [
        f"{place(worst.place)}: {mean(waiting)} threads wait on average, in {_what(worst, name)}."
    ]
    change = evidence.host_change
    stalled = change.stalled("io") if change and kind == "slow_disk" else 0.0
    if stalled >= _LEAST_STALLED:
        lines.append(f"Tasks in the container waited for disks {percent(stalled)} of the time.")
    return Finding(
        kind=kind,
        level=Level.SLOW,
        title=title,
        lines=tuple(lines),
        share=share.value,
        error=share.error,
        next=f"attach --pid {evidence.program.pid} --profile wall",
        place=worst.place,
    )


_TITLES: Final = {
    "slow_disk": "Slow disk: {share} of {of} ({name}).",
    "system_calls": "Blocking system calls: {share} of {of} ({name}); each keeps a thread.",
    "cgo_calls": "Calls of C: {share} of {of} ({name}); each keeps a thread.",
}


def _what(calls: _Calls, name: str) -> str:
    """The system call with its file, if most calls have the same one."""
    paths = Counter(
        call.file.path or f"a {call.file.kind}" for call in calls.blocked if call.file is not None
    )
    if not paths:
        return name
    path, number = paths.most_common(1)[0]
    others = "" if 2 * number > len(calls.blocked) else f" and {len(paths) - 1} other files"
    return f"{name} of {path.removesuffix(' (deleted)')}{others}"
