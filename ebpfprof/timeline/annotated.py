"""What a program reports of its own work, in a replay: tasks and regions, without contradiction.

Readers demand that a task which has begun does not begin again before its end, and that the regions
of a goroutine are nested (internal/trace/order.go, Go 1.23 to 1.27).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ebpfprof.timeline.events import Annotation, Event, EventKind
from ebpfprof.timeline.steps import StepKind

if TYPE_CHECKING:
    from ebpfprof.timeline.replayed import ReplayedThread
    from ebpfprof.timeline.step_log import StepLog


class AnnotatedWork:
    """Adds a step for each annotation that fits, and for ends of regions that no event showed."""

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self._tasks: set[int] = set()
        """Those that have begun."""
        self._regions: dict[int, list[tuple[int, str]]] = defaultdict(list)
        """By goid, the outermost first: the task and the type of each that has begun."""

    def take(self, event: Event, thread: ReplayedThread) -> bool:
        """Add the step of an annotation of the thread's goroutine; False if it contradicts others.

        A region ends those inside of it of which no end was recorded.
        """
        note, goid = event.note, event.goid
        match event.kind:
            case EventKind.TASK_BEGIN:
                if note.task in self._tasks:
                    return False
                self._tasks.add(note.task)
            case EventKind.TASK_END:
                self._tasks.discard(note.task)
            case EventKind.REGION_BEGIN:
                self._regions[goid].append((note.task, note.name))
            case EventKind.REGION_END:
                if not self._end_inner(event, thread):
                    return False
        kind = StepKind[event.kind.name]
        self._log.step(thread, event.at_ns, kind, goid=goid, stack=event.stack, note=note)
        return True

    def forget(self, goid: int) -> None:
        """The goroutine ends, and with it its regions."""
        self._regions.pop(goid, None)

    def _end_inner(self, event: Event, thread: ReplayedThread) -> bool:
        """End all regions inside the one that ends; False if another one has begun instead."""
        regions = self._regions[event.goid]
        region = event.note.task, event.note.name
        if not regions:  # it had begun before the recording
            return True
        if region not in regions:
            return False
        while (inner := regions.pop()) != region:
            self._log.step(
                thread,
                event.at_ns,
                StepKind.REGION_END,
                goid=event.goid,
                inferred=True,
                note=Annotation(*inner),
            )
        return True
