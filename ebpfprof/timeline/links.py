"""Links of chains: what goroutines of one group did, or waited for, in words of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.profile.idle import rule_of
from ebpfprof.profile.model import Location, Sample
from ebpfprof.profile.operations import caller_outside_library, operation_of
from ebpfprof.timeline.model import UNNAMED, StackCall, WaitObject
from ebpfprof.timeline.parts import Did, GoroutinePart, Parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.profile.model import Frame
    from ebpfprof.timeline.model import Timeline

_OLD_WORD: Final = "semacquire"  # of all locks before Go 1.20
_LOCKS: Final = ("Mutex.Lock", "RWMutex.Lock", "RWMutex.RLock")
_KIND: Final = "wall"  # the profile kind with all waits that idle rules know
SYSTEM: Final = "Go's runtime"
"""Why waits of the runtime's own goroutines are idle."""


class TracedGroup(NamedTuple):
    """Goroutines that begin with the same function and were created at the same place."""

    name: str
    created: str = ""
    is_system: bool = False


class Link(NamedTuple):
    """What goroutines of a class did. `word` is the reason of a wait, or names a system call.

    `where` is the function of the program that waited. `on` is what it waited for, if that has a
    name. `idle` is the name of the rule that makes the wait idle, or "".
    """

    who: TracedGroup
    did: Did
    word: str = ""
    where: str = ""
    on: WaitObject | None = None
    idle: str = ""

    @property
    def is_lock(self) -> bool:
        """Whether it waits for a lock, so that the one that woke it had that lock."""
        return self.word.removeprefix("sync.") in _LOCKS


class Links:
    """Numbers for the links of a timeline's parts; the same number for the same link."""

    def __init__(self, timeline: Timeline, parts: Parts) -> None:
        self._timeline = timeline
        self.all: list[Link] = []
        self.groups: dict[int, TracedGroup] = {}
        """By goid."""
        self._numbers: dict[Link, int] = {}
        self._by_part: dict[tuple[TracedGroup, Did, str, int, int], int] = {}
        self._places: dict[int, tuple[str, str, str]] = {}
        self.of = {goid: [self._of(goid, part) for part in of] for goid, of in parts.of.items()}
        """By goid, for each part."""

    def not_created(self, goid: int) -> int:
        """The link of a goroutine before it is there."""
        return self._of_link(Link(self.groups[goid], Did.NOT_CREATED))

    def _of(self, goid: int, part: GoroutinePart) -> int:
        who = self.groups.get(goid)
        if who is None:
            who = self.groups[goid] = self._group(goid)
        key = (who, part.did, part.word, part.stack, part.on)
        number = self._by_part.get(key)
        if number is None:
            number = self._by_part[key] = self._of_link(self._link(who, part))
        return number

    def _of_link(self, link: Link) -> int:
        number = self._numbers.get(link)
        if number is None:
            number = self._numbers[link] = len(self.all)
            self.all.append(link)
        return number

    def _group(self, goid: int) -> TracedGroup:
        goroutine = self._timeline.goroutines.get(goid)
        if goroutine is None:
            return TracedGroup(UNNAMED)
        at = goroutine.created
        created = f"{at.function} ({at.file.rpartition('/')[2]}:{at.line})" if at else ""
        return TracedGroup(goroutine.name, created, goroutine.is_system)

    def _link(self, who: TracedGroup, part: GoroutinePart) -> Link:
        word, idle, where = self._place(part.stack)
        if part.did.is_wait:
            word = word if part.word == _OLD_WORD and word else part.word
            idle = SYSTEM if who.is_system else idle
        elif part.did is not Did.CALL:
            word = idle = where = ""
        on = self._timeline.objects.get(part.on)
        return Link(who, part.did, word, where, on if on and on.is_named else None, idle)

    def _place(self, stack: int) -> tuple[str, str, str]:
        """What is done at a stack, why that is idle, and in which function of the program."""
        if stack not in self._places:
            calls = self._timeline.stacks.get(stack, ())
            sample = Sample(_locations(calls), (1, 1))
            idle = rule_of(_KIND, sample)
            self._places[stack] = (
                operation_of(sample)[0] if calls else "",
                idle.name if idle else "",
                caller_outside_library(sample.frames).function if calls else "",
            )
        return self._places[stack]


def _locations(calls: Sequence[StackCall]) -> tuple[Location, ...]:
    """The physical frames of a stack: calls that were inlined have the address of the outer one."""
    locations: list[tuple[int, list[Frame]]] = []
    for call in calls:
        if not locations or locations[-1][0] != call.address:
            locations.append((call.address, []))
        locations[-1][1].append(call.frame)
    return tuple(Location(address, None, tuple(frames)) for address, frames in locations)
