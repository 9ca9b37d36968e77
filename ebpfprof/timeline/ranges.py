"""Times of the runtime in a replay: garbage collections, stops of the world, assists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.timeline.events import Event, EventKind
from ebpfprof.timeline.steps import StepKind

if TYPE_CHECKING:
    from ebpfprof.timeline.replayed import ReplayedThread
    from ebpfprof.timeline.step_log import StepLog


class RuntimeRanges:
    """Each begins and ends in turn, as readers demand: what does not fit is left out."""

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self._collects = False
        self._stopped_by = 0
        self._assists: set[int] = set()

    def take(self, event: Event, thread: ReplayedThread, goid: int) -> None:
        """Add the step of an event; `goid` is the goroutine that the thread runs."""
        match event.kind:
            case EventKind.GC_BEGIN if not self._collects:
                self._collects = True
                self._step(event, thread, StepKind.GC_BEGIN, goid)
            case EventKind.GC_END if self._collects:
                self._collects = False
                self._step(event, thread, StepKind.GC_END, goid)
            case EventKind.STOP_WORLD if not self._stopped_by:
                self._stopped_by = goid
                self._step(event, thread, StepKind.STOP_WORLD, goid)
            case EventKind.START_WORLD if self._stopped_by == goid:
                self._stopped_by = 0
                self._step(event, thread, StepKind.START_WORLD, goid)
            case EventKind.ASSIST if goid not in self._assists:
                self._assists.add(goid)
                self._step(event, thread, StepKind.ASSIST, goid)
            case EventKind.ASSIST_END if goid in self._assists:
                self._assists.remove(goid)
                self._step(event, thread, StepKind.ASSIST_END, goid)

    def _step(self, event: Event, thread: ReplayedThread, kind: StepKind, goid: int) -> None:
        word = event.word if kind is StepKind.STOP_WORLD else ""
        self._log.step(thread, event.at_ns, kind, goid=goid, word=word)
