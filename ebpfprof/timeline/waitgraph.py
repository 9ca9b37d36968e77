"""Who waits for whom: groups of goroutines and what is outside, and time handed on along chains.

While A waits for B, B may wait for C, or for the network: that part of A's wait is for them in the
end. The edges of A add up to all that A waits, and the causes of an edge to the edge.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from ebpfprof.timeline.critical import Chains
from ebpfprof.timeline.links import Link, TracedGroup
from ebpfprof.timeline.model import Timeline
from ebpfprof.timeline.parts import Did
from ebpfprof.timeline.peers import Peers
from ebpfprof.timeline.sampled_goroutines import NOT_RECORDED
from ebpfprof.timeline.steps import StepKind
from ebpfprof.timeline.sweep import NOTHING, START

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ebpfprof.timeline.parts import GoroutinePart
    from ebpfprof.timeline.steps import TraceStep

SLEEP: Final = "sleep"
_NAMED: Final = (Did.CALL, Did.GOES_ON, Did.NOT_KNOWN, Did.FOR_GOROUTINE)


class OutsideCause(NamedTuple):
    """What is no goroutine: `did` says what kind.

    `name` is whom a socket is connected with, SLEEP, or the reason of a wait that nothing ended.
    """

    did: Did
    name: str = ""


class Cause(NamedTuple):
    """What was waited for in the end: what goroutines of a class did then.

    `detail` is the name of a system call, or that of what is outside and they waited for.
    """

    who: TracedGroup
    did: Did
    detail: str = ""


class LongestWait(NamedTuple):
    """A wait: how long, since when, whose, and for which goroutine, 0 for none.

    `is_cut`: a pause of the recording cuts it, so `length_ns` and `begin_ns` are those of the
    longest part that was recorded, and it lasted longer.
    """

    length_ns: int
    begin_ns: int
    goid: int
    waker: int
    link: Link
    is_cut: bool = False


@dataclass(slots=True)
class WaitEdge:
    """The waits of one group for another, or for what is outside.

    `count` is the number of waits. `reasons` have the ns by what the
    waiters were in, `causes` by what they waited for in the end.
    """

    waiter: TracedGroup
    waited_for: TracedGroup | OutsideCause
    is_idle: bool
    ns: int = 0
    count: int = 0
    longest: LongestWait | None = None
    reasons: Counter[Link] = field(default_factory=Counter)
    causes: Counter[Cause] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """All edges, longest first; `hidden` has the ns of idle waits by the rule's name.

    `members` has the number of goroutines of each class, `length_ns` is how long the
    timeline was recorded.
    """

    edges: list[WaitEdge]
    hidden: Counter[str]
    members: Counter[TracedGroup]
    length_ns: int

    @property
    def shown(self) -> list[WaitEdge]:
        """The edges without idle waits."""
        return [edge for edge in self.edges if not edge.is_idle]


_GRAPHS: Final = WeakKeyDictionary[Timeline, WaitGraph]()


def graph_of(timeline: Timeline) -> WaitGraph:
    """The graph of a timeline; it is worked out once, for a file and for a table."""
    graph = _GRAPHS.get(timeline)
    if graph is None:
        graph = _GRAPHS[timeline] = wait_graph(Chains(timeline))
    return graph


def wait_graph(chains: Chains) -> WaitGraph:
    """The graph of the chains of a timeline."""
    edges = _Edges(chains)
    hidden: Counter[str] = Counter()
    walk = _Pairs(chains.links.all)
    for (state, last), ns in chains.sweep.sums(chains.everyone(), walk).items():
        waiter, waited_for = walk.pair(state, last)
        if waiter is None or not waiter.did.is_wait or waiter.word == NOT_RECORDED:
            continue
        if waiter.idle:
            hidden[waiter.idle] += ns
        edge = edges.between(waiter, waited_for)
        edge.ns += ns
        edge.reasons[waiter] += ns
        edge.causes[edges.cause(waiter if last == NOTHING else chains.links.all[last])] += ns
    edges.count()
    timeline = chains.timeline
    return WaitGraph(
        sorted((edge for edge in edges.edges.values() if edge.ns), key=lambda edge: -edge.ns),
        hidden,
        Counter(chains.links.groups.values()),
        recorded_ns(timeline),
    )


def recorded_ns(timeline: Timeline) -> int:
    """How long a timeline is without the pauses of the recording."""
    paused_ns = sum(gap.other - gap.at_ns for gap in _gaps(timeline))
    return timeline.end_ns - timeline.begin_ns - paused_ns


def _gaps(timeline: Timeline) -> list[TraceStep]:
    """The pauses of the recording."""
    return [step for step in timeline.steps if step.kind is StepKind.GAP]


class _Edges:
    """Edges as they are found."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._peers = Peers(chains.timeline.objects.values())
        gaps = _gaps(chains.timeline)
        self._pause_begins = {gap.at_ns for gap in gaps}
        self._pause_ends = {gap.other for gap in gaps}
        self.edges: dict[tuple[TracedGroup, TracedGroup | OutsideCause, bool], WaitEdge] = {}

    def between(self, waiter: Link, waited_for: TracedGroup | None) -> WaitEdge:
        """The edge of a wait; `waited_for` is None for what is outside."""
        other = waited_for or OutsideCause(waiter.did, self._detail(waiter))
        key = (waiter.who, other, bool(waiter.idle))
        edge = self.edges.get(key)
        if edge is None:
            edge = self.edges[key] = WaitEdge(*key)
        return edge

    def cause(self, last: Link) -> Cause:
        """What the last link of a chain is."""
        return Cause(last.who, last.did, self._detail(last))

    def count(self) -> None:
        """Count the waits, and find the longest."""
        links = self._chains.links
        for goid, of in self._chains.parts.of.items():
            for first, last in _whole_waits(of):
                part = of[last]
                link = links.all[links.of[goid][last]]
                edge = self.between(link, links.groups.get(part.waker))
                edge.count += 1
                longest = max(of[first : last + 1], key=lambda part: part.end_ns - part.begin_ns)
                length_ns = longest.end_ns - longest.begin_ns
                is_cut = first < last or self._is_cut(part)
                wait = LongestWait(length_ns, longest.begin_ns, goid, part.waker, link, is_cut)
                if edge.longest is None or wait.length_ns > edge.longest.length_ns:
                    edge.longest = wait

    def _is_cut(self, part: GoroutinePart) -> bool:
        return part.begin_ns in self._pause_ends or part.end_ns in self._pause_begins

    def _detail(self, link: Link) -> str:
        if link.did is Did.FOR_NETWORK:
            return self._peers.name(link.on)
        is_named = link.did in _NAMED or (link.did is Did.FOR_TIMER and link.word == SLEEP)
        peer = self._peers.name(link.on) if link.on and link.on.file else ""
        return " ".join(filter(None, (link.word, peer))) if is_named else ""


def _whole_waits(of: Sequence[GoroutinePart]) -> Iterator[tuple[int, int]]:
    """The first and the last part of each wait: a pause of the recording divides one in two."""
    first: int | None = None
    for number, part in enumerate(of):
        if not part.did.is_wait or part.word == NOT_RECORDED:
            continue
        first = number if first is None else first
        after = of[number + 1] if number + 1 < len(of) else None
        goes_on = (
            after is not None
            and after.begin_ns > part.end_ns
            and after.did.is_wait
            and (after.word, after.stack, after.on) == (part.word, part.stack, part.on)
        )
        if not goes_on:
            yield first, number
            first = None


class _Pairs:
    """A walk that remembers the first link of a chain, and the class of the second."""

    def __init__(self, links: list[Link]) -> None:
        self._links = links
        self._pairs: list[tuple[int, TracedGroup | None]] = [(NOTHING, None)]
        self._states: dict[tuple[int, TracedGroup | None], int] = {}

    def after(self, state: int, link: int) -> int:
        """The state behind one more link."""
        if state == START:
            return self._state(link, None)
        first, second = self._pairs[state]
        return self._state(first, self._links[link].who) if second is None else state

    def pair(self, state: int, last: int) -> tuple[Link | None, TracedGroup | None]:
        """The first link of a chain, and the class for which it waited, None for none."""
        if state == START:
            return (None if last == NOTHING else self._links[last]), None
        first, second = self._pairs[state]
        if second is None and last != NOTHING:
            second = self._links[last].who
        return self._links[first], second

    def _state(self, first: int, second: TracedGroup | None) -> int:
        number = self._states.get((first, second))
        if number is None:
            number = self._states[first, second] = len(self._pairs)
            self._pairs.append((first, second))
        return number
