"""Locks for which goroutines wait for a large part of their time, and what the holders do."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import duration, percent
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import part, place
from ebpfprof.profile.operations import caller, caller_outside_library, operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.work import Activity
    from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
    from ebpfprof.profile.model import Frame

_OPERATIONS: Final = frozenset({"Mutex.Lock", "RWMutex.Lock", "RWMutex.RLock"})
_LEAST_SHARE: Final = 0.15
"""Of the time: below, removing the lock would hardly be noticed."""
_LEAST_WAITING: Final = 0.25
"""Goroutines that wait for it at a time: fewer are a lock that a few share for moments."""
_MOST: Final = 2


@dataclass(slots=True)
class _Contended:
    """A lock, by the places where goroutines wait for it."""

    name: str | None
    activities: list[Activity] = field(default_factory=list)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Each lock that takes a large part of the time, the worst first."""
    work = evidence.work
    names = _locks_by_place(evidence.dumps)
    contended: dict[object, _Contended] = {}
    for activity in work.where(lambda one: one.operation in _OPERATIONS):
        known = names.get(activity.place)
        key: object = known or activity.place
        one = contended.setdefault(key, _Contended(known[1] if known else None))
        one.activities.append(activity)
    ordered = sorted(contended.items(), key=lambda item: -work.share(item[1].activities).value)
    for key, lock in ordered[:_MOST]:
        share = work.share(lock.activities)
        if share.least >= _LEAST_SHARE and work.mean(lock.activities) >= _LEAST_WAITING:
            address = key[0] if isinstance(key, tuple) else 0
            yield _finding(evidence, lock, address)


def fine(evidence: Evidence) -> str:
    """The time for which goroutines waited for locks."""
    work = evidence.work
    share = work.share(work.where(lambda one: one.operation in _OPERATIONS))
    return f"locks {percent(share.value)}"


def _finding(evidence: Evidence, lock: _Contended, address: int) -> Finding:
    work, pid = evidence.work, evidence.program.pid
    share = work.share(lock.activities)
    first = lock.activities[0]
    name = lock.name or f"a lock in {place(first.place)}"
    lines = [f"{first.operation} in {place(first.place)}: {_waiting(evidence, address, lock)}"]
    lines += _holders(evidence.dumps, address)
    return Finding(
        kind="hot_lock",
        level=Level.SLOW,
        title=f"Lock {name}: {part(share)} of {work.of}.",
        lines=tuple(lines),
        share=share.value,
        error=share.error,
        next=f"attach --pid {pid} --profile block,mutex --by-lock",
        place=first.place,
    )


def _waiting(evidence: Evidence, address: int, lock: _Contended) -> str:
    mean = evidence.work.mean(lock.activities)
    longest_ns = max(
        (
            goroutine.waited_ns
            for dump in evidence.dumps
            for goroutine in dump.goroutines
            if goroutine.waits_for.lock and goroutine.waits_for.lock.address == address
        ),
        default=0,
    )
    seen = f", one for {duration(longest_ns, 2)}" if longest_ns else ""
    return f"{mean:.1f} goroutines wait on average{seen}."


def _holders(dumps: tuple[GoroutineDump, ...], address: int) -> list[str]:
    """What goroutines that hold the lock did while others waited for it."""
    did = Counter(words for dump in dumps if (words := _holder(dump, address)))
    if not did:
        return []
    words, number = did.most_common(1)[0]
    return [f"Its holder: {words} ({number} of {did.total()} samples)."]


def _holder(dump: GoroutineDump, address: int) -> str:
    """What the holder of a lock did at a moment, in words; "" if nobody waited for it then."""
    for goroutine in dump.goroutines:
        waits, lock = goroutine.waits_for, goroutine.waits_for.lock
        if lock is None or lock.address != address:
            continue
        by_id = {one.goid: one for one in dump.goroutines}
        ids = waits.surely_hold or waits.may_hold
        holders = [by_id[goid] for goid in ids if goid in by_id]
        if not lock.is_locked and not lock.readers:
            return "none, it was free, and the next owner had not run yet"
        if not holders:
            return "a goroutine that runs"
        return _does(holders[0]) if len(holders) == 1 else "several goroutines"
    return ""


def _does(goroutine: DumpedGoroutine) -> str:
    wait = goroutine.waits_for.file_wait
    where = f" in {place(caller_outside_library(goroutine.frames))}" if goroutine.frames else ""
    if wait and wait.file.peer:
        return f"waits for {wait.file.peer}{where}"
    if goroutine.state in ("running", "runnable"):
        return f"{'runs' if goroutine.state == 'running' else 'waits for a processor'}{where}"
    name = operation(goroutine.frames) if goroutine.frames else goroutine.state
    return f"waits ({name}){where}"


def _locks_by_place(dumps: tuple[GoroutineDump, ...]) -> dict[Frame, tuple[int, str | None]]:
    """The lock for which most goroutines waited at each place: its address and its name."""
    seen: defaultdict[Frame, Counter[tuple[int, str | None]]] = defaultdict(Counter)
    for dump in dumps:
        for goroutine in dump.goroutines:
            lock = goroutine.waits_for.lock
            if lock and lock.type in ("sync.Mutex", "sync.RWMutex"):
                seen[caller(goroutine.frames)][lock.address, lock.name] += 1
    return {frame: locks.most_common(1)[0][0] for frame, locks in seen.items()}
