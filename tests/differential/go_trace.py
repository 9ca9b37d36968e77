"""What Go's own execution trace says of goroutines: how long each was in which state.

`go tool trace -d=parsed` replays a trace and prints a block of lines for each event. Its times are
those of CLOCK_MONOTONIC, in steps of 64 ns (runtime/trace.go, traceClockNow, Go 1.22 on).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_TRANSITION = re.compile(
    r"^M=.* G=(-?\d+) StateTransition Time=(\d+) GoID=(\d+) (\w+)->(\w+) Reason=\"(.*)\"",
    re.ASCII,
)
_FRAME = re.compile(r"^\t(\S+) @ 0x[0-9a-f]+$")
_ANNOTATION = re.compile(r"^M=.* G=(-?\d+) ((?:Task|Region|Log)\w*) Time=(\d+) (.*)$", re.ASCII)
_PLACE = re.compile(r"^\t\t(\S+):(\d+)$")
_STACK_OF = "TransitionStack="
WAITING = "Waiting"


class Transition(NamedTuple):
    """That a goroutine came from state `before` into another.

    `start` is its first function, if it begins. `by` is the goroutine of the thread, -1 for none.
    """

    time_ns: int
    goid: int
    before: str
    state: str
    reason: str
    start: str
    by: int = -1

    @property
    def is_same(self) -> bool:
        """Whether nothing changed."""
        return self.before == self.state


class Reported(NamedTuple):
    """What a goroutine reported by runtime/trace: "RegionBegin", 'Task=3 Type="cook"'.

    `stack` has the functions and lines, innermost first.
    """

    time_ns: int
    goid: int
    kind: str
    text: str
    stack: tuple[tuple[str, int], ...]


class Group(NamedTuple):
    """Goroutines that began with this function, in this state: in lower case, or the reason."""

    start: str
    state: str


@dataclass(slots=True)
class Spent:
    """The time of all goroutines of a group together, and how often one came into it."""

    ns: int = 0
    times: int = 0


@dataclass(slots=True)
class _Goroutine:
    state: str
    since_ns: int


@dataclass(slots=True)
class _Replay:
    begin_ns: int
    end_ns: int
    starts: dict[int, str] = field(default_factory=dict)
    now: dict[int, _Goroutine] = field(default_factory=dict)
    spent: dict[Group, Spent] = field(default_factory=lambda: defaultdict(Spent))

    def change(self, event: Transition) -> None:
        if event.is_same:  # a new part of the trace repeats what each goroutine does
            return
        self._leave(event.goid, event.time_ns)
        if event.start:
            self.starts[event.goid] = event.start
        state = event.reason if event.state == WAITING else event.state.lower()
        if event.state != "NotExist":
            self.now[event.goid] = _Goroutine(state, event.time_ns)

    def finish(self) -> None:
        for goid in tuple(self.now):
            self._leave(goid, self.end_ns)

    def _leave(self, goid: int, until_ns: int) -> None:
        found = self.now.pop(goid, None)
        if found is None or goid not in self.starts:
            return
        length_ns = min(until_ns, self.end_ns) - max(found.since_ns, self.begin_ns)
        if length_ns > 0:
            spent = self.spent[Group(self.starts[goid], found.state)]
            spent.ns += length_ns
            spent.times += 1


def time_spent(text: Iterable[str], begin_ns: int, end_ns: int) -> dict[Group, Spent]:
    """The times between two moments (CLOCK_MONOTONIC), of goroutines that began in the trace.

    `text` are the lines that `go tool trace -d=parsed` printed.
    """
    replay = _Replay(begin_ns, end_ns)
    for event in transitions(text):
        replay.change(event)
    replay.finish()
    return dict(replay.spent)


def transitions(text: Iterable[str]) -> Iterator[Transition]:
    """The events that change the state of a goroutine."""
    pending: Transition | None = None
    is_stack = False
    for line in text:
        if line.startswith("M="):
            if pending:
                yield pending
            found = _TRANSITION.match(line)
            pending, is_stack = None, False
            if found:
                by, time_ns, goid, before, after, reason = found.groups()
                event = Transition(int(time_ns), int(goid), before, after, reason, "", int(by))
                if before == "NotExist":
                    pending = event  # what follows tells its first function
                else:
                    yield event
        elif line.startswith(_STACK_OF):
            is_stack = True
        elif is_stack and pending:
            # The outermost function, which is the last one.
            if frame := _FRAME.match(line):
                pending = pending._replace(start=frame[1])
            is_stack = bool(line.strip())
    if pending:
        yield pending


def reported(text: Iterable[str]) -> Iterator[Reported]:
    """The annotations, with their stacks."""
    pending: Reported | None = None
    function = ""
    for line in text:
        if line.startswith("M="):
            if pending:
                yield pending
            found = _ANNOTATION.match(line)
            pending = None
            if found:
                goid, kind, time_ns, fields = found.groups()
                pending = Reported(int(time_ns), int(goid), kind, fields, ())
        elif pending and (frame := _FRAME.match(line)):
            function = frame[1]
        elif pending and (place := _PLACE.match(line)):
            pending = pending._replace(stack=(*pending.stack, (function, int(place[2]))))
    if pending:
        yield pending
