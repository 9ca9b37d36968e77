"""Goroutines that hang: they wait for long for what others should do, in a lock or a send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.model import Frame
from ebpfprof.profile.operations import caller, operation

HANGS_NS: Final = 5_000_000_000
"""For how long a goroutine has not moved that hangs."""
NEVER_IDLE: Final = ("chan send", "Mutex.Lock", "RWMutex.Lock", "RWMutex.RLock")
"""A goroutine that waits for these waits for another to do its work: it is never idle."""
_LOCKS: Final = NEVER_IDLE[1:]


@dataclass(frozen=True, slots=True)
class Hanging:
    """Goroutines that hang in an operation that is called from one line, `place`."""

    operation: str
    place: Frame
    goroutines: tuple[DumpedGoroutine, ...]

    @property
    def is_lock(self) -> bool:
        """Whether they wait for a lock."""
        return self.operation in _LOCKS


def hanging(goroutines: Iterable[DumpedGoroutine]) -> list[Hanging]:
    """Those that have not moved for HANGS_NS or longer, by place, the most goroutines first."""
    by_place = defaultdict[tuple[str, Frame], list[DumpedGoroutine]](list)
    for goroutine in goroutines:
        if goroutine.waited_ns >= HANGS_NS and goroutine.wait is not None and goroutine.frames:
            name = operation(goroutine.frames)
            if name in NEVER_IDLE:
                by_place[name, caller(goroutine.frames)].append(goroutine)
    made = [Hanging(*key, tuple(members)) for key, members in by_place.items()]
    return sorted(
        made, key=lambda group: (-len(group.goroutines), group.operation, group.place.line)
    )


@dataclass(frozen=True, slots=True)
class Hang:
    """Groups of goroutines that hang for one reason: that with most goroutines comes first.

    `holder` holds the lock for which they wait, or the lock for which that one waits that does, and
    so on; None if it is not known, or they wait for no lock.
    """

    groups: tuple[Hanging, ...]
    holder: DumpedGoroutine | None

    @property
    def goroutines(self) -> tuple[DumpedGoroutine, ...]:
        """All of them."""
        return tuple(member for group in self.groups for member in group.goroutines)


def hangs(groups: Iterable[Hanging], goroutines: Iterable[DumpedGoroutine]) -> list[Hang]:
    """The groups by what they wait for in the end, the most goroutines first."""
    by_id = {goroutine.goid: goroutine for goroutine in goroutines}
    own = list(groups)
    holders = {
        member.goid: holder
        for group in own
        for member in group.goroutines
        if (holder := _last_holder(member, by_id))
    }
    last = {holder.goid for holder in holders.values()}
    by_reason = defaultdict[object, list[Hanging]](list)
    for group in own:
        parts = defaultdict[object, list[DumpedGoroutine]](list)
        for member in group.goroutines:
            parts[_reason(member, group, holders.get(member.goid), last)].append(member)
        for reason, members in parts.items():
            by_reason[reason].append(Hanging(group.operation, group.place, tuple(members)))
    made = []
    for of_reason in by_reason.values():
        of_reason.sort(key=lambda one: -len(one.goroutines))
        made.append(Hang(tuple(of_reason), holders.get(of_reason[0].goroutines[0].goid)))
    return sorted(made, key=lambda one: -len(one.goroutines))


def _reason(
    member: DumpedGoroutine, group: Hanging, holder: DumpedGoroutine | None, last: Collection[int]
) -> object:
    """What a goroutine waits for in the end: goroutines with an equal one hang for one reason."""
    if holder is not None:
        return holder.goid
    if member.goid in last:
        return member.goid
    lock = member.waits_for.lock
    return lock.address if lock else group.place


def _last_holder(
    goroutine: DumpedGoroutine, by_id: Mapping[int, DumpedGoroutine]
) -> DumpedGoroutine | None:
    """The goroutine at the end of the line of those that hold locks of each other."""
    way = {goroutine.goid}
    last = None
    while True:
        waits = (last or goroutine).waits_for
        ids = waits.surely_hold or waits.may_hold
        following = by_id.get(ids[0]) if ids else None
        if following is None or following.goid in way:
            return last
        way.add(following.goid)
        last = following
