"""What each goroutine of some dumps did, by place: how many wait there, for how long, for what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.handlers import is_in_request
from ebpfprof.profile.network_peers import NetworkPeers, local_port
from ebpfprof.profile.operations import caller_outside_library, operation_in

if TYPE_CHECKING:
    from ebpfprof.findings.activity import Activity, Place
    from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
    from ebpfprof.profile.model import Frame
    from ebpfprof.profile.waiting_for import FileWait

SHORT_NS: Final = 25_000_000
LONG_NS: Final = 100_000_000
"""Before each dump, samples find which waits are at least that old."""
_LEAST_AGES: Final = 5  # waits seen in progress: of fewer nothing is said


@dataclass(frozen=True, slots=True)
class Doing:
    """What a goroutine did at the moment of a dump. `place` has an unknown frame if it ran.

    `peer` is the address for which it waits, "" if it waits for none, or for an unknown one.
    `moment` is the index of the dump. `leads` of the samples right before it saw this wait, too.
    """

    goroutine: DumpedGoroutine
    place: Place
    is_request: bool
    peer: str = ""
    moment: int = 0
    leads: int = 0

    @property
    def operation(self) -> str:
        """In words."""
        return self.place[0]


@dataclass(frozen=True)
class GoroutineMoment:
    """The goroutines of one dump."""

    all: tuple[Doing, ...]

    @cached_property
    def by_place(self) -> dict[Place, list[Doing]]:
        """The same by what they did."""
        places = defaultdict["Place", list[Doing]](list)
        for doing in self.all:
            places[doing.place].append(doing)
        return places

    @cached_property
    def by_id(self) -> dict[int, Doing]:
        """The same by their ids."""
        return {doing.goroutine.goid: doing for doing in self.all}

    def at(self, places: Iterable[Place]) -> list[Doing]:
        """Those that were at one of these places."""
        return [doing for place in places for doing in self.by_place.get(place, ())]


@dataclass(frozen=True)
class Moments:
    """All dumps, in order. `accepting` are the functions in which goroutines accept connections,
    `ports` those of their listeners. `leads_ns` is how long before a dump the samples came, on
    average, which show how old waits are: the last one first."""

    all: tuple[GoroutineMoment, ...]
    accepting: frozenset[str]
    ports: frozenset[str]
    leads_ns: tuple[float, ...] = ()

    def at(self, places: Iterable[Place]) -> list[Doing]:
        """The goroutines that were at one of these places, of all dumps."""
        wanted = tuple(places)
        return [doing for moment in self.all for doing in moment.at(wanted)]

    @cached_property
    def _by_stack(self) -> dict[tuple[Frame, ...], list[Doing]]:
        by_object = defaultdict[int, list[Doing]](list)
        for moment in self.all:
            for doing in moment.all:
                by_object[id(doing.goroutine.frames)].append(doing)
        by_stack = defaultdict[tuple["Frame", ...], list[Doing]](list)
        for members in by_object.values():  # few: to hash each stack would take long
            by_stack[members[0].goroutine.frames] += members
        return by_stack

    def with_stack(self, frames: tuple[Frame, ...]) -> Sequence[Doing]:
        """The goroutines of all dumps that had this stack."""
        return self._by_stack.get(frames, ())

    def of(self, activity: Activity) -> list[Doing]:
        """The goroutines of all dumps that did the same with the same stack."""
        return [
            goroutine
            for goroutine in self.with_stack(activity.frames)
            if goroutine.place == activity.at
        ]

    def where(self, is_wanted: Callable[[Doing], bool]) -> list[Doing]:
        """The goroutines that are wanted, of all dumps."""
        return [doing for moment in self.all for doing in moment.all if is_wanted(doing)]

    def is_of_client(self, wait: FileWait | None) -> bool:
        """Whether it waits for a client of this process: on a connection that was accepted."""
        return wait is not None and not wait.file.is_listener and local_port(wait) in self.ports

    @cached_property
    def client_waits(self) -> frozenset[tuple[Frame, ...]]:
        """The stacks that only wait for clients to send something."""
        of_clients: set[tuple[Frame, ...]] = set()
        of_others: set[tuple[Frame, ...]] = set()
        for moment in self.all:
            for doing in moment.all:
                wait = doing.goroutine.waits_for.file_wait
                if wait is not None and not wait.is_write:
                    stacks = of_clients if self.is_of_client(wait) else of_others
                    stacks.add(doing.goroutine.frames)
        return frozenset(of_clients - of_others)

    @cached_property
    def serving(self) -> frozenset[str]:
        """The functions of goroutines that an accept loop has started: each serves a connection."""
        return frozenset(
            doing.goroutine.frames[-1].function
            for moment in self.all
            for doing in moment.all
            if doing.goroutine.frames
            and doing.goroutine.created_by is not None
            and doing.goroutine.created_by.function in self.accepting
        )


def moments_of(dumps: Iterable[GoroutineDump]) -> Moments:
    """What the goroutines of dumps did."""
    known: dict[tuple[str, int], tuple[Place, bool]] = {}
    moments = []
    accepting, ports = set(), set()
    kept: list[Sequence[Frame]] = []  # so that no id is used again
    dumped = tuple(dumps)
    for index, dump in enumerate(dumped):
        all_of_it = []
        peers = NetworkPeers(dump)
        for goroutine in dump.goroutines:
            frames = goroutine.frames
            key = (goroutine.state, id(frames))
            if key not in known:
                known[key] = operation_in(goroutine.state, frames), is_in_request(frames)
                kept.append(frames)
            place, is_request = known[key]
            wait = goroutine.waits_for.file_wait
            peer = peers.of(goroutine, place[0])
            leads = sum(goroutine.waited_ns >= lead_ns for lead_ns in dump.leads_ns)
            all_of_it.append(Doing(goroutine, place, is_request, peer, index, leads))
            if wait is not None and wait.file.is_listener:
                accepting.add(caller_outside_library(frames).function)
                ports.add(local_port(wait))
        moments.append(GoroutineMoment(tuple(all_of_it)))
    leads_ns = tuple(map(fmean, zip(*(dump.leads_ns for dump in dumped), strict=False)))
    return Moments(tuple(moments), frozenset(accepting), frozenset(ports - {""}), leads_ns)


def lasting(seen: Sequence[Doing], ns: int) -> float:
    """The part of the waits in progress that had lasted `ns` or longer; 0 if too few are known."""
    waits = [doing for doing in seen if doing.goroutine.wait is not None]
    if len(waits) < _LEAST_AGES:
        return 0.0
    return sum(doing.goroutine.waited_ns >= ns for doing in waits) / len(waits)


def typical_ns(seen: Sequence[Doing]) -> float:
    """About how long waits take of which these are in progress; 0 if most are short, or too few.

    As many waits begin as end. If a part p of those in progress began within the last t, and none
    is shorter than t, their mean length is t/p (Little's law).
    """
    for ns, least in ((LONG_NS, 1 / 4), (SHORT_NS, 1 / 2)):
        old = lasting(seen, ns)
        if old >= least:
            return ns / max(1 - old, 1 / (len(seen) + 1))
    return 0.0
