"""What each goroutine did, moment by moment, and what ended its waits: the parts of chains.

A span of a timeline says that a goroutine ran. Parts have more: whether it marked for the garbage
collector then, or its thread had no processor; whether the world was stopped while it was runnable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.timeline.spans import RUNNABLE, RUNNING, SYSCALL, WAITING, Span, spans
from ebpfprof.timeline.steps import BY_NETWORK, BY_TIMER, StepKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ebpfprof.timeline.model import Timeline

_COLLECTOR: Final = ("GC ", "garbage collection", "wait for GC cycle", "force gc", "preempted")


class Did(Enum):
    """What a goroutine did; of waits, what ended them."""

    RUN = auto()
    ASSIST = auto()  # it marked for the garbage collector
    NO_PROCESSOR = auto()  # it ran, but the kernel ran another thread, or read a page
    QUEUE = auto()
    STOPPED = auto()  # it was runnable while the world was stopped
    CALL = auto()  # a system call that blocks
    FOR_GOROUTINE = auto()
    FOR_NETWORK = auto()
    FOR_TIMER = auto()
    FOR_COLLECTOR = auto()
    GOES_ON = auto()  # nothing ended it before the timeline's end
    NOT_KNOWN = auto()
    NOT_CREATED = auto()  # there is no such goroutine yet; what it waits for is its creator

    @property
    def is_wait(self) -> bool:
        """Whether it is a wait, of one that is there."""
        return self in _WAITS


_WAITS: Final = frozenset(
    {
        Did.FOR_GOROUTINE,
        Did.FOR_NETWORK,
        Did.FOR_TIMER,
        Did.FOR_COLLECTOR,
        Did.GOES_ON,
        Did.NOT_KNOWN,
    }
)
# Waits that only one thing ends, which need not have ended them yet.
_KNOWN_WORDS: Final = {"sleep": Did.FOR_TIMER, "IO wait": Did.FOR_NETWORK}
_OF_STATES: Final = {RUNNING: Did.RUN, RUNNABLE: Did.QUEUE, SYSCALL: Did.CALL}


class GoroutinePart(NamedTuple):
    """A time in which a goroutine did one thing.

    `word` is the reason of a wait. `stack` and `on` are keys of Timeline.stacks and .objects.
    `waker` is the goroutine that ended the wait, or created this one; 0 if it was none.
    """

    begin_ns: int
    end_ns: int
    did: Did
    word: str = ""
    stack: int = 0
    on: int = 0
    waker: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts, by goid, in the order of time, none of them empty; and who created whom."""

    of: Mapping[int, Sequence[GoroutinePart]]
    creators: Mapping[int, int]

    def before(self, since: Mapping[int, int]) -> dict[int, GoroutinePart]:
        """Did.NOT_CREATED parts, by goid, where others wait for one that is not there yet.

        `since` are goroutines of which more is wanted, and from when on.
        """
        wanted = dict(since)
        for parts_ in self.of.values():
            for part in parts_:
                if part.waker and part.begin_ns < self.of[part.waker][0].begin_ns:
                    wanted[part.waker] = min(part.begin_ns, wanted.get(part.waker, part.begin_ns))
        first_parts = {}
        # Creators are older: each is examined after those that it created.
        for goid in sorted(self.creators, key=lambda goid: -self.of[goid][0].begin_ns):
            first_ns, creator = self.of[goid][0].begin_ns, self.creators[goid]
            begin_ns = wanted.get(goid, first_ns)
            if begin_ns < first_ns:
                first_parts[goid] = GoroutinePart(
                    begin_ns, first_ns, Did.NOT_CREATED, waker=creator
                )
                wanted[creator] = min(begin_ns, wanted.get(creator, begin_ns))
        return first_parts


def parts(timeline: Timeline) -> Parts:
    """All parts of a timeline."""
    by_goid: dict[int, list[Span]] = defaultdict(list)
    for span in spans(timeline):
        by_goid[span.goid].append(span)
    during = _During(timeline)
    lived = {goid for goid, of in by_goid.items() if of[-1].end_ns > of[0].begin_ns}
    made: dict[int, list[GoroutinePart]] = {}
    for goid in lived:
        mine = made[goid] = []
        of = by_goid[goid]
        for number, span in enumerate(of):
            if span.end_ns > span.begin_ns:
                mine += [_wait(of, number, lived)] if span.state == WAITING else during.of(span)
    lived -= {goid for goid in lived if not made[goid]}
    creators = {goid: by_goid[goid][0].by for goid in lived if by_goid[goid][0].by in lived}
    return Parts({goid: made[goid] for goid in lived}, creators)


def _wait(of: Sequence[Span], number: int, lived: Collection[int]) -> GoroutinePart:
    span = of[number]
    end = number + 1
    # A pause of the recording divides a wait.
    while end < len(of) and of[end].state == WAITING and of[end - 1].is_cut:
        end += 1
    after = of[end] if end < len(of) and of[end].state == RUNNABLE else None
    waker = after.by if after and after.by != span.goid and after.by in lived else 0
    if span.word.startswith(_COLLECTOR):
        did, waker = Did.FOR_COLLECTOR, 0
    elif after is None:
        did = _KNOWN_WORDS.get(span.word, Did.GOES_ON)
    elif after.word == BY_NETWORK:
        did, waker = Did.FOR_NETWORK, 0
    elif waker:
        did = Did.FOR_GOROUTINE
    else:
        did = Did.FOR_TIMER if after.word == BY_TIMER else Did.NOT_KNOWN
    return GoroutinePart(span.begin_ns, span.end_ns, did, span.word, span.stack, span.on, waker)


class _Times:
    """Times from a begin to an end, of one thing for each key."""

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}
        self._found: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def begin(self, key: int, at_ns: int) -> None:
        self._begun.setdefault(key, at_ns)

    def end(self, key: int, at_ns: int) -> None:
        begun_ns = self._begun.pop(key, at_ns)
        if begun_ns < at_ns:
            self._found[key].append((begun_ns, at_ns))

    def of(self, key: int) -> Sequence[tuple[int, int]]:
        return self._found.get(key, ())


class _During:
    """What is in progress: stops of the world, assists by goid, threads without a processor."""

    def __init__(self, timeline: Timeline) -> None:
        self._stops, self._assists, self._off = _Times(), _Times(), _Times()
        for step in timeline.steps:
            match step.kind:
                case StepKind.STOP_WORLD:
                    self._stops.begin(0, step.at_ns)
                case StepKind.START_WORLD:
                    self._stops.end(0, step.at_ns)
                case StepKind.ASSIST:
                    self._assists.begin(step.goid, step.at_ns)
                case StepKind.ASSIST_END:
                    self._assists.end(step.goid, step.at_ns)
                case StepKind.THREAD_OFF:
                    self._off.begin(step.tid, step.at_ns)
                case StepKind.THREAD_ON:
                    self._off.end(step.tid, step.at_ns)

    def of(self, span: Span) -> list[GoroutinePart]:
        """The parts of a span that is no wait."""
        did = _OF_STATES[span.state]
        whole = GoroutinePart(
            *(span.begin_ns, span.end_ns, did, ""), span.stack if did is Did.CALL else 0
        )
        if did is Did.QUEUE:
            return list(_divided(whole, self._stops.of(0), Did.STOPPED))
        if did is Did.CALL:
            return [whole]
        assists = self._assists.of(span.goid)
        parts: list[GoroutinePart] = []
        for part in _divided(whole, self._off.of(span.tid), Did.NO_PROCESSOR):
            is_run = assists and part.did is Did.RUN
            parts += _divided(part, assists, Did.ASSIST) if is_run else (part,)
        return parts


def _divided(
    part: GoroutinePart, times: Sequence[tuple[int, int]], did: Did
) -> Iterator[GoroutinePart]:
    """The part, with those times within it in which it was something else."""
    at_ns = part.begin_ns
    number = max(0, bisect_right(times, (at_ns, 0)) - 1)
    while number < len(times) and times[number][0] < part.end_ns:
        begin_ns, end_ns = max(at_ns, times[number][0]), min(part.end_ns, times[number][1])
        if end_ns > begin_ns:
            if begin_ns > at_ns:
                yield part._replace(begin_ns=at_ns, end_ns=begin_ns)
            yield part._replace(begin_ns=begin_ns, end_ns=end_ns, did=did)
            at_ns = end_ns
        number += 1
    if at_ns < part.end_ns:
        yield part._replace(begin_ns=at_ns)
