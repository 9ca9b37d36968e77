"""Timelines that a test tells, moment by moment: events of goroutines that each have a thread."""

from __future__ import annotations

from ebpfprof.profile.model import Frame
from ebpfprof.timeline.events import NO_ANNOTATION, Annotation, Event, EventKind, Known
from ebpfprof.timeline.model import StackCall, Timeline, TimelineGoroutine, WaitObject
from ebpfprof.timeline.replay import Replay

NETWORK_TID = 9999


class Story:
    """What goroutines do; those of `names` are there from the beginning, and runnable.

    Times are ns from the beginning, and must not go back.
    """

    def __init__(self, names: dict[int, str]) -> None:
        known = {goid: Known(goid, 0, "runnable", "", 0, 0, 0, 0, 0) for goid in names}
        self._replay = Replay(0, known)
        self._goroutines = {goid: _goroutine(goid, name) for goid, name in names.items()}
        self._stacks: dict[tuple[str, ...], int] = {}
        self._objects: dict[WaitObject, int] = {}
        for goid in names:
            self.run(0, goid)

    def run(self, at_ns: int, goid: int) -> None:
        self._take(at_ns, EventKind.RUN, goid, goid)

    def park(
        self,
        at_ns: int,
        goid: int,
        word: str,
        *functions: str,
        on: WaitObject | None = None,
    ) -> None:
        """It begins to wait, with a stack of these functions, innermost first."""
        number = self._objects.setdefault(on, len(self._objects) + 1) if on else 0
        self._take(
            *(at_ns, EventKind.PARK, goid, goid),
            by=goid,
            word=word,
            stack=self._stack(functions),
            on=number,
        )

    def wake(self, at_ns: int, goid: int, by: int, *, run_ns: int | None = None) -> None:
        """A goroutine wakes it; it runs at once unless `run_ns` says when."""
        self._take(at_ns, EventKind.READY, goid, by, by=by)
        self.run(at_ns if run_ns is None else run_ns, goid)

    def network(self, at_ns: int, goid: int, *, by: int = 0, run_ns: int | None = None) -> None:
        """What it waits for of the network is there; `by` has just looked, if any."""
        self._take(at_ns, EventKind.NET_READY, goid, by or NETWORK_TID, by=by)
        self.run(at_ns if run_ns is None else run_ns, goid)

    def timer(self, at_ns: int, goid: int) -> None:
        self._take(at_ns, EventKind.READY, goid, NETWORK_TID)
        self.run(at_ns, goid)

    def create(self, at_ns: int, goid: int, by: int, name: str) -> None:
        self._goroutines[goid] = _goroutine(goid, name, by)
        self._take(at_ns, EventKind.CREATE, goid, by, by=by, more=0x1000)
        self.run(at_ns, goid)

    def end(self, at_ns: int, goid: int) -> None:
        self._take(at_ns, EventKind.EXIT, goid, goid, by=goid)

    def of_thread(self, at_ns: int, kind: EventKind, goid: int, word: str = "") -> None:
        """An event of the goroutine's thread."""
        self._take(at_ns, kind, goid, goid, by=goid, word=word, is_made=True)

    def annotate(self, at_ns: int, kind: EventKind, goid: int, note: Annotation) -> None:
        """It reports a task, a region or a message."""
        self._take(at_ns, kind, goid, goid, by=goid, note=note)

    def pause(self, begin_ns: int, end_ns: int) -> None:
        """Nothing is recorded in between."""
        self._replay.pause(begin_ns, end_ns, {})

    def timeline(self, end_ns: int) -> Timeline:
        self._replay.end(end_ns)
        calls = {
            number: tuple(
                StackCall(0x100 + at, Frame(name, "", 1), 0x100 + at)
                for at, name in enumerate(names)
            )
            for names, number in self._stacks.items()
        }
        objects = {number: each for each, number in self._objects.items()}
        return Timeline(
            *(1, "t", "go1.27", 0, end_ns, 0, self._replay.taken(), calls),
            *(self._goroutines, {}, {}, {}),
            objects=objects,
        )

    def _stack(self, functions: tuple[str, ...]) -> int:
        return self._stacks.setdefault(functions, len(self._stacks) + 1) if functions else 0

    def _take(
        self,
        at_ns: int,
        kind: EventKind,
        goid: int,
        tid: int,
        *,
        by: int = 0,
        word: str = "",
        stack: int = 0,
        on: int = 0,
        more: int = 0,
        is_made: bool = False,
        note: Annotation = NO_ANNOTATION,
    ) -> None:
        self._replay.take(
            Event(at_ns, kind, goid, by, stack, tid, tid, 0, word, more, is_made, on=on, note=note)
        )


def _goroutine(goid: int, name: str, parent: int = 0) -> TimelineGoroutine:
    return TimelineGoroutine(goid, StackCall(9, Frame(name, "", 1), 9), None, parent)
