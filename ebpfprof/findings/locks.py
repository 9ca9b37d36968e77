"""Locks for which goroutines wait for a large part of their time, and what the holders do.

A lock is hot because it is held for long, or it is a convoy: it is free, or was handed over to a
goroutine that has not run yet, at most moments at which others wait.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import duration, percent
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.holds import HoldTime, LockHolder
from ebpfprof.findings.pace import often
from ebpfprof.findings.words import mean, part, place, routes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.activity import Activity, Place
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.moments import Doing, GoroutineMoment
    from ebpfprof.profile.goroutines import DumpedGoroutine
    from ebpfprof.profile.model import Frame
    from ebpfprof.profile.waiting_for import LockState

_OPERATIONS: Final = frozenset({"Mutex.Lock", "RWMutex.Lock", "RWMutex.RLock"})
_LEAST_SHARE: Final = 0.15
"""Of the time: below, removing the lock would hardly be noticed."""
_LEAST_WAITING: Final = 0.25
"""Goroutines that wait for it at a time: fewer are a lock that a few share for moments."""
_MOST: Final = 2
_CONVOY: Final = 0.5
"""Of the moments at which goroutines wait: it is free in more of them, so the hand-over takes
longer than the hold."""
_LEAST_MOMENTS: Final = 5
_LEAST_LONG_NS: Final = 5_000_000  # a shorter wait is not worth a word
_QUEUE: Final = 3  # goroutines that wait for a lock which is free: fewer are about to get it
_RUNS: Final = 0.5
"""Of the time for which goroutines wait: with more CPU time below it, its holder mostly runs."""
_UNSEEN: Final = "No sample showed who holds it. A longer --duration may."
_MUTEX: Final = "sync.Mutex"
_LOCKS: Final = (_MUTEX, "sync.RWMutex")


@dataclass(slots=True)
class _Contended:
    """A lock, by the places where goroutines wait for it. `address` is 0 if it is not known."""

    address: int
    name: str | None
    activities: list[Activity] = field(default_factory=list)

    @property
    def places(self) -> set[Place]:
        """Where they wait."""
        return {activity.at for activity in self.activities}

    @property
    def locked_at(self) -> dict[str, int]:
        """The first line in which each function waits for it."""
        lines: dict[str, int] = {}
        for _, frame in self.places:
            lines[frame.function] = min(frame.line, lines.get(frame.function, frame.line))
        return lines


@dataclass(frozen=True, slots=True)
class _LockMoment:
    """A lock at a moment at which goroutines wait for it, with its holders if they are known."""

    holders: tuple[LockHolder, ...] = ()
    is_free: bool = False


def find(evidence: Evidence) -> Iterator[Finding]:
    """Each lock that takes a large part of the time, the worst first."""
    work = evidence.work
    known = _locks_by_place(evidence.moments.all)
    contended: dict[object, _Contended] = {}
    for activity in work.where(lambda activity: activity.operation in _OPERATIONS):
        address, name = known.get(activity.at, (0, None))
        lock = contended.setdefault(address or activity.place, _Contended(address, name))
        lock.activities.append(activity)
    ordered = sorted(contended.values(), key=lambda lock: -work.share(lock.activities).value)
    for lock in ordered[:_MOST]:
        share = work.share(lock.activities)
        if share.least >= _LEAST_SHARE and work.mean(lock.activities) >= _LEAST_WAITING:
            yield _finding(evidence, lock)


def fine(evidence: Evidence) -> str:
    """The time for which goroutines waited for locks."""
    work = evidence.work
    share = work.share(work.where(lambda activity: activity.operation in _OPERATIONS))
    return f"locks {percent(share.value)}"


def _finding(evidence: Evidence, lock: _Contended) -> Finding:
    work, pid = evidence.work, evidence.program.pid
    share = work.share(lock.activities)
    first = lock.activities[0]
    name = f"lock {lock.name}" if lock.name else f"a lock in {place(first.place)}"
    moments = [locked for moment in evidence.moments.all if (locked := _moment(moment, lock))]
    free = sum(moment.is_free for moment in moments)
    is_convoy = len(moments) >= _LEAST_MOMENTS and free > _CONVOY * len(moments)
    seen = [waiter for waiter in evidence.moments.at(lock.places) if _is_for(waiter, lock.address)]
    lines = [f"{first.operation} in {place(first.place)}: {_waiting(evidence, lock, seen)}"]
    lines += routes(waiter.goroutine for waiter in seen)
    if is_convoy:
        title = f"Convoy at {name}: {part(share)} of {work.of}."
        lines.append(
            f"It was free in {free} of {len(moments)} samples: to hand it over takes longer than "
            "to hold it."
        )
    else:
        title = f"{name[0].upper()}{name[1:]}: {part(share)} of {work.of}."
        lines += _held(evidence, lock, moments)
    return Finding(
        kind="convoy" if is_convoy else "hot_lock",
        level=Level.SLOW,
        title=title,
        lines=tuple(lines),
        share=share.value,
        error=share.error,
        next=f"attach --pid {pid} --profile block,mutex --by-lock",
        place=first.place,
        about=frozenset({*({lock.address} - {0}), *(frame for _, frame in lock.places)}),
    )


def _waiting(evidence: Evidence, lock: _Contended, seen: Sequence[Doing]) -> str:
    waiting = evidence.work.mean(lock.activities)
    pace = often(evidence.moments, seen, waiting)
    longest_ns = max((waiter.goroutine.waited_ns for waiter in seen), default=0)
    is_long = longest_ns >= _LEAST_LONG_NS
    longest = f", one for {duration(longest_ns, 2)} or longer" if is_long else ""
    return f"{mean(waiting)} goroutines wait on average{pace}{longest}."


def _is_for(waiter: Doing, address: int) -> bool:
    lock = waiter.goroutine.waits_for.lock
    return lock is not None and lock.address == address


def _held(evidence: Evidence, lock: _Contended, moments: Sequence[_LockMoment]) -> list[str]:
    """What those that hold the lock do while others wait for it, in sentences."""
    locked = [moment for moment in moments if not moment.is_free]
    time = HoldTime(
        evidence, [holder for moment in locked for holder in moment.holders], lock.locked_at
    )
    held_ns = evidence.length_ns * len(locked) / len(evidence.moments.all)
    is_seen = any(holder.by for moment in locked for holder in moment.holders)
    # The stack of a goroutine that runs is not known.
    if time.runs_in and locked and not is_seen and time.cpu_ns >= _RUNS * held_ns:
        return [f"Its holder runs, mostly in {place(time.runs_in)}."]
    return time.sentences() or [_UNSEEN]


def _moment(moment: GoroutineMoment, lock: _Contended) -> _LockMoment | None:
    """The lock at a moment; None if nobody waited then, or it is not known whether it was held."""
    waiting = [waiter for waiter in moment.at(lock.places) if _is_for(waiter, lock.address)]
    if not waiting:
        return None
    waits = waiting[0].goroutine.waits_for
    state = waits.lock
    assert state is not None
    if state.type == _MUTEX and 2 * state.waiters < len(waiting):
        return None  # it was read when they had got it
    if _is_free(state):
        return _LockMoment(is_free=True) if state.waiters >= _QUEUE else None
    ids = waits.surely_hold or waits.may_hold
    holders = [holder for goid in ids if (holder := moment.by_id.get(goid))]
    if len(holders) != 1 and not state.readers:
        return _LockMoment() if state.is_locked else None
    return _LockMoment(tuple(LockHolder(holder, _by(holder.goroutine, lock)) for holder in holders))


def _is_free(state: LockState) -> bool:
    return not state.is_locked and not state.readers and not state.writer_waits


def _by(holder: DumpedGoroutine, lock: _Contended) -> Frame | None:
    """The frame in which a goroutine holds a lock, most likely.

    That of a function that locks it elsewhere, or the innermost method of the type that has it.
    """
    functions = lock.locked_at
    package, _, rest = (lock.name or "").rpartition("/")[2].partition(".")
    method = f"{package}.(*{rest.partition('.')[0]})."
    of_type = None
    for frame in holder.frames:
        if frame.function in functions:
            return frame
        if rest and frame.function.rpartition("/")[2].startswith(method):
            of_type = of_type or frame
    return of_type


def _locks_by_place(moments: Iterable[GoroutineMoment]) -> dict[Place, tuple[int, str | None]]:
    """The lock for which most goroutines waited at each place: its address and its name."""
    seen: defaultdict[Place, Counter[tuple[int, str | None]]] = defaultdict(Counter)
    for moment in moments:
        for waiter in moment.all:
            lock = waiter.goroutine.waits_for.lock
            if lock and lock.type in _LOCKS:
                seen[waiter.place][lock.address, lock.name] += 1
    return {where: locks.most_common(1)[0][0] for where, locks in seen.items()}
