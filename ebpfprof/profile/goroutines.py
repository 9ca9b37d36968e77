"""A dump: the goroutines of a program at one moment. Independent of how they were read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ebpfprof.profile.model import Frame, Label
from ebpfprof.profile.waiting_for import NOTHING, WaitsFor

MAIN_GOROUTINE: Final = 1
# The words of tracebacks (runtime/runtime2.go, waitReasonStrings, Go 1.19 to 1.27).
_NIL_CHANNEL: Final = ("chan receive (nil chan)", "chan send (nil chan)")
_EMPTY_SELECT: Final = "select (no cases)"


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel: its address, how many values it holds and can hold; whether it is closed."""

    address: int
    length: int
    capacity: int
    is_closed: bool


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that a goroutine handles: as the client sent it, and the route of net/http's mux.

    `pattern` is "" before Go 1.23, and where another router chose the handler.
    """

    method: str
    path: str
    pattern: str

    @property
    def route(self) -> str:
        """The method and the pattern, or the path if there is no pattern: "GET /items/{id}"."""
        name = self.pattern or self.path
        return name if name.startswith(f"{self.method} ") else f"{self.method} {name}"


@dataclass(frozen=True, slots=True)
class DumpedGoroutine:
    """A goroutine. `state` is the word of Go's own tracebacks: "running", "chan receive".

    `frames` are logical frames, innermost first; () for a goroutine that runs, or kept moving.
    `stood_ns` is the time between the first sample and the last if it did not move, else 0.
    `waited_ns` is a lower bound of how long it waits, 0 if unknown. `created_by` is the line of its
    `go` statement, None for the main goroutine, `parent` the id of the goroutine that executed it,
    0 if unknown.
    `channels` are those for which it waits: several in a select, () for nil channels. `is_leaked`:
    the runtime found that nothing can wake it (Go 1.26 on, after a goroutineleak profile).
    `wait` is the number of its wait: an equal one in a later dump is the same; None if it does not
    wait.
    """

    goid: int
    state: str
    frames: tuple[Frame, ...]
    is_whole: bool
    stood_ns: int
    waited_ns: int
    is_locked: bool
    created_by: Frame | None
    parent: int
    labels: tuple[Label, ...]
    channels: tuple[Channel, ...] = ()
    waits_for: WaitsFor = NOTHING
    is_leaked: bool = False
    wait: int | None = None
    request: HttpRequest | None = None
    """The request of net/http that it handles, if it waits and this could be read."""
    is_unreachable: bool = False
    """Whether nothing that can run refers to what it waits for; False if that is not known."""

    @property
    def can_never_go_on(self) -> bool:
        """Whether nothing can wake it: a nil channel, or select{} outside the main goroutine.

        Also if it is unreachable.

        The main goroutine in select{} keeps a program alive, on purpose.
        """
        return (
            self.is_unreachable
            or self.state in _NIL_CHANNEL
            or (self.state == _EMPTY_SELECT and self.goid != MAIN_GOROUTINE)
        )


@dataclass(frozen=True, slots=True)
class Outside:
    """What else could wake goroutines of a program in which all are asleep and no timer is set.

    `foreign_threads` are those that are not Go's, None if that is not known.
    """

    foreign_threads: int | None


@dataclass(frozen=True, slots=True)
class GrowingSite:
    """Goroutines created by one line, of which there were more at each of three samples.

    There were `before` at the first, and are `now` at the last. `ended` of the first had ended by
    then. `example` is one of them.
    """

    created_by: Frame
    before: int
    now: int
    ended: int
    example: DumpedGoroutine


@dataclass(frozen=True, slots=True)
class GoroutineDump:
    """The goroutines of a process, without the runtime's own, by their ids; what is missing.

    `apart_ns` is the time between the first sample and the last. `system` counts the runtime's own
    goroutines, `moved` those whose stack could not be read because they kept moving, `beyond` those
    beyond the limit of what we read, `unlabelled` those whose labels could not be read. `read_ns`
    is the time of the sample that is shown (CLOCK_MONOTONIC). `outside` is None unless further
    samples found that all goroutines are asleep. There were `samples` before these. `growing` are
    lines that created more and more goroutines meanwhile; looked for within a second or more only.
    `leads_ns` says how long before `read_ns` samples were taken that show how old waits are, the
    last one first: it came right before.
    """

    pid: int
    name: str
    version: str
    apart_ns: int
    goroutines: tuple[DumpedGoroutine, ...]
    system: int
    moved: int
    beyond: int
    unlabelled: int = 0
    read_ns: int = 0
    outside: Outside | None = None
    samples: int = 4
    growing: tuple[GrowingSite, ...] = ()
    leads_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GoroutineGroup:
    """Goroutines in the same state with the same stack, created by the same line."""

    goroutines: tuple[DumpedGoroutine, ...]

    @property
    def first(self) -> DumpedGoroutine:
        """One of them."""
        return self.goroutines[0]

    @property
    def standing(self) -> int:
        """How many of them did not move between the samples."""
        return sum(goroutine.stood_ns > 0 for goroutine in self.goroutines)

    @property
    def longest_ns(self) -> int:
        """A lower bound of the longest wait among them; 0 if unknown."""
        return max(goroutine.waited_ns for goroutine in self.goroutines)

    @property
    def newest_ns(self) -> int:
        """A lower bound of the shortest wait that is known among them; 0 if none is."""
        return min(
            (goroutine.waited_ns for goroutine in self.goroutines if goroutine.waited_ns), default=0
        )

    @property
    def timed(self) -> int:
        """Of how many of them it is known for how long they wait."""
        return sum(goroutine.waited_ns > 0 for goroutine in self.goroutines)

    @property
    def channels(self) -> set[Channel]:
        """All channels for which they wait."""
        return {channel for goroutine in self.goroutines for channel in goroutine.channels}


def groups(goroutines: Iterable[DumpedGoroutine]) -> list[GoroutineGroup]:
    """The goroutines in groups, the largest first, then those that wait longest."""
    by_key = defaultdict(list)
    for goroutine in goroutines:
        by_key[group_key(goroutine)].append(goroutine)
    made = [GoroutineGroup(tuple(members)) for members in by_key.values()]
    return sorted(
        made, key=lambda group: (-len(group.goroutines), -group.longest_ns, group.first.goid)
    )


def group_key(goroutine: DumpedGoroutine) -> tuple[object, ...]:
    """What all goroutines of a group have in common."""
    key = (
        goroutine.state,
        goroutine.frames,
        goroutine.created_by,
        goroutine.is_locked,
        goroutine.can_never_go_on,
    )
    return *key, goroutine.is_leaked
