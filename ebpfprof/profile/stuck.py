"""Goroutines that can never continue, or likely can't: deadlocks, lost wakes, a program asleep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ebpfprof.profile.asleep import Asleep, asleep
from ebpfprof.profile.deadlocks import Circle, circles
from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
from ebpfprof.profile.waiting_for import LockState, Sureness

_LOCKS = ("sync.Mutex", "sync.RWMutex")


@dataclass(frozen=True, slots=True)
class LostWake:
    """Goroutines that wait for a lock which is free, or a WaitGroup that is done."""

    goroutines: tuple[DumpedGoroutine, ...]
    lock: LockState
    sureness: Sureness


Stuck = Circle | LostWake | Asleep


@dataclass(frozen=True, slots=True)
class Held:
    """Goroutines that have not moved while they waited for a lock, and those that may hold it."""

    goroutines: tuple[DumpedGoroutine, ...]
    lock: LockState
    holders: tuple[DumpedGoroutine, ...]


def stuck(dump: GoroutineDump) -> list[Stuck]:
    """All that is stuck in a dump: what is certain first; of that, circles, lost wakes, all asleep.

    A wake may be lost for goroutines that are in no circle.
    """
    findings: list[Stuck] = [*circles(dump.goroutines), *lost_wakes(dump.goroutines)]
    if (whole := asleep(dump)) is not None:
        findings.append(whole)
    return sorted(findings, key=lambda one: one.sureness is not Sureness.CERTAIN)


def lost_wakes(goroutines: Iterable[DumpedGoroutine]) -> list[LostWake]:
    """The lost wakes that further samples found, by lock."""
    wakes = defaultdict[tuple[LockState, Sureness], list[DumpedGoroutine]](list)
    for goroutine in goroutines:
        waits = goroutine.waits_for
        if goroutine.stood_ns and waits.lock and waits.lost_wake:
            wakes[waits.lock, waits.lost_wake].append(goroutine)
    return [LostWake(tuple(members), lock, sureness) for (lock, sureness), members in wakes.items()]


def held(dump: GoroutineDump, findings: Iterable[Stuck]) -> list[Held]:
    """Waits for locks that did not move and are in none of the circles or lost wakes, by lock."""
    by_id = {goroutine.goid: goroutine for goroutine in dump.goroutines}
    reported = {
        goroutine.goid
        for finding in findings
        if not isinstance(finding, Asleep)
        for goroutine in finding.goroutines
    }
    waiting = defaultdict[LockState, list[DumpedGoroutine]](list)
    for waiter in dump.goroutines:
        lock = waiter.waits_for.lock
        if waiter.stood_ns and lock and lock.type in _LOCKS and waiter.goid not in reported:
            waiting[lock].append(waiter)
    made = []
    for lock, members in waiting.items():
        first = members[0].waits_for
        ids = dict.fromkeys((*first.surely_hold, *first.may_hold))
        holders = tuple(by_id[goid] for goid in ids if goid in by_id)
        made.append(Held(tuple(members), lock, holders))
    return sorted(made, key=lambda group: (-len(group.goroutines), group.lock.address))
