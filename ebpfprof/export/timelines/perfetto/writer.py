"""Writes a timeline for Perfetto: tracks of goroutines, Ps and threads, wakes as flows.

States are slices, not state tracks, which older versions of its page do not draw. All times are of
CLOCK_MONOTONIC; a snapshot of the clocks has the time of day.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import printable
from ebpfprof.export.timelines.perfetto.tracks import (
    COUNTER,
    COUNTS,
    INSTANT,
    PS,
    RUNTIME,
    TASKS,
    TracePackets,
    uuid,
)
from ebpfprof.timeline.model import UNNAMED
from ebpfprof.timeline.spans import RUNNABLE, RUNNING, STATES, SYSCALL, WAITING, Span, spans
from ebpfprof.timeline.steps import StepKind, TraceStep
from ebpfprof.timeline.tasks import NO_TASK, annotated
from ebpfprof.timeline.threads import thread_spans, thread_title, woken_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.export.proto_messages import ProtoMessage
    from ebpfprof.timeline.model import Timeline
    from ebpfprof.timeline.tasks import AnnotatedTask, Annotations

_AT_ONCE: Final = 512
_COUNTED_EVERY_NS: Final = 1_000_000
_GAPS, _GC, _STOPS = range(3)
_ASSISTS: Final = 16  # and the goid behind that
_LANE_BITS: Final = 24  # of the numbers of tracks of tasks: one type has several
_COUNTED: Final = (*(f"goroutines {state}" for state in STATES), "heap live", "heap goal")
_ENDS: Final = {
    StepKind.GC_END: StepKind.GC_BEGIN,
    StepKind.START_WORLD: StepKind.STOP_WORLD,
    StepKind.ASSIST_END: StepKind.ASSIST,
}


def encode(timeline: Timeline) -> bytes:
    """The timeline as a trace of Perfetto."""
    return b"".join(_Writer(timeline).pieces())


class _Writer:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._packets = TracePackets(timeline)
        self._flows = {
            key: number for number, key in enumerate(_wakes_by_goroutines(timeline), start=1)
        }

    def pieces(self) -> Iterator[bytes]:
        parts = (
            *(self._goroutines(), self._threads(), self._runtime()),
            *(self._counts(), self._heap(), self._annotations()),
        )
        for what in parts:
            for _ in what:
                if len(self._packets) >= _AT_ONCE:
                    yield self._packets.take()
        yield self._packets.take()

    def _goroutines(self) -> Iterator[None]:
        packets = self._packets
        for span in spans(self._timeline):
            if span.length_ns <= 0 and span.state != RUNNABLE:
                continue
            track = packets.goroutine(span.goid)
            if span.state == RUNNING:
                self._on_p(span)
            event = packets.slice(
                *(span.begin_ns, span.end_ns, track, span.what),
                stack=span.stack if span.state in (WAITING, SYSCALL) else 0,
            )
            flow = self._flows.get((span.goid, span.begin_ns))
            if flow and span.state == RUNNABLE:
                event.terminating_flow_ids.append(flow)
                self._annotate(event, "woken by", packets.title(span.by))
            if span.state == RUNNING:
                self._annotate(event, "P", f"P{span.p}")
                self._annotate(event, "thread", str(span.tid))
            if thing := self._timeline.objects.get(span.on):
                self._annotate(event, "waits to" if thing.file else "waits for", thing.text)
            for label in self._labels(span):
                self._annotate(event, label.key, str(label.value))
            if flow and span.state == RUNNABLE:
                self._wake(span, flow)
            yield

    def _annotate(self, event: ProtoMessage, name: str, text: str) -> None:
        event.debug_annotations.add(
            name=name.encode(errors="replace"), string_value=text.encode(errors="replace")
        )

    def _labels(self, span: Span) -> tuple[Any, ...]:
        labels = self._timeline.label_sets.get(span.labels) if span.labels else None
        return labels or (self._timeline.labels.get(span.goid, ()) if span.is_cut else ())

    def _wake(self, span: Span, flow: int) -> None:
        """An instant on the track of who woke or created the goroutine."""
        packets = self._packets
        name = f"wakes {packets.title(span.goid)}"
        track = packets.goroutine(span.by)
        packets.named(span.begin_ns, INSTANT, track, name, span.stack).flow_ids.append(flow)

    def _on_p(self, span: Span) -> None:
        track = self._packets.describe(uuid("p", span.p + 1), f"P{span.p}", PS, span.p)
        self._packets.slice(span.begin_ns, span.end_ns, track, self._packets.title(span.goid))

    def _threads(self) -> Iterator[None]:
        timeline, packets = self._timeline, self._packets
        flow = len(self._flows)
        for span in thread_spans(timeline):
            track = packets.thread(span.tid)
            event = packets.slice(span.begin_ns, span.end_ns, track, f"on CPU {span.cpu}")
            if span.wake:
                self._annotate(event, "woken by", printable(woken_by(timeline, span.wake)))
            if span.wake and span.wake.other:
                flow += 1
                event.terminating_flow_ids.append(flow)
                waker = packets.thread(span.wake.other)
                name = f"wakes {printable(thread_title(timeline, span.tid))}"
                packets.named(span.wake.at_ns, INSTANT, waker, name).flow_ids.append(flow)
            yield

    def _runtime(self) -> Iterator[None]:
        """Garbage collections, assists, stops of the world, times without a recording."""
        begun: dict[tuple[StepKind, int], TraceStep] = {}
        for step in self._timeline.steps:
            goid = step.goid if step.kind in (StepKind.ASSIST, StepKind.ASSIST_END) else 0
            if step.kind in _ENDS.values():
                begun[step.kind, goid] = step
            elif step.kind in _ENDS:
                first = begun.pop((_ENDS[step.kind], goid), None)
                if first:
                    self._range(first, step.at_ns)
                    yield
            elif step.kind is StepKind.GAP:
                self._range(step, step.other)
                yield
        for first in begun.values():
            self._range(first, self._timeline.end_ns)
            yield

    def _range(self, first: TraceStep, end_ns: int) -> None:
        match first.kind:
            case StepKind.GAP:
                number, title, name = _GAPS, "recording", "not recorded"
            case StepKind.GC_BEGIN:
                number, title, name = _GC, "garbage collections", "garbage collection"
            case StepKind.STOP_WORLD:
                number, title = _STOPS, "stops of the world"
                name = f"world stopped: {first.word}"
            case _:
                number, name = _ASSISTS + first.goid, "GC assist"
                title = f"GC assists of {self._packets.title(first.goid)}"
        track = self._packets.describe(uuid("runtime", number), title, RUNTIME)
        self._packets.slice(first.at_ns, max(first.at_ns, end_ns), track, name)

    def _counts(self) -> Iterator[None]:
        """How many goroutines are in each state, once a millisecond at most."""
        changes: list[tuple[int, str, int]] = []
        for span in spans(self._timeline):
            changes.append((span.begin_ns, span.state, 1))
            changes.append((span.end_ns, span.state, -1))
        changes.sort()
        now: Counter[str] = Counter()
        written: Counter[str] = Counter()
        due_ns = 0
        for at_ns, state, change in changes:
            if at_ns >= due_ns:
                due_ns = at_ns + _COUNTED_EVERY_NS
                for did in STATES:
                    if now[did] != written[did]:
                        written[did] = now[did]
                        name = f"goroutines {did}"
                        self._count(at_ns, name, now[did], unit="goroutines")
                yield
            now[state] += change

    def _heap(self) -> Iterator[None]:
        for moment in self._timeline.heap:
            self._count(moment.at_ns, "heap live", moment.live, unit="bytes")
            if moment.goal is not None:
                self._count(moment.at_ns, "heap goal", moment.goal, unit="bytes")
            yield

    def _annotations(self) -> Iterator[None]:
        """Regions and messages on a track of each goroutine, tasks on tracks of their type."""
        annotations = annotated(self._timeline)
        packets = self._packets
        # Those outside first: slices of one track are nested.
        for region in sorted(annotations.regions, key=lambda of: (of.begin_ns, -of.end_ns)):
            track = self._regions(region.goid)
            event = packets.slice(
                *(region.begin_ns, region.end_ns, track, printable(region.name)),
                stack=region.stack,
            )
            if region.task != NO_TASK:
                self._annotate(event, "task", _task_title(annotations, region.task))
            yield
        for message in annotations.messages:
            event = packets.named(
                message.at_ns,
                INSTANT,
                self._regions(message.goid),
                printable(message.category or message.message),
                message.stack,
            )
            self._annotate(event, "message", printable(message.message))
            if message.task != NO_TASK:
                self._annotate(event, "task", _task_title(annotations, message.task))
            yield
        lanes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for task in sorted(annotations.tasks.values(), key=lambda of: of.begin_ns):
            name = printable(task.name) or UNNAMED
            lane = _free_lane(lanes[name], task)
            number = packets.names.name(name) << _LANE_BITS | lane
            track = packets.describe(uuid("task", number), name, TASKS)
            event = packets.slice(task.begin_ns, task.end_ns, track, name)
            self._annotate(event, "task", str(task.number))
            if task.parent != NO_TASK:
                self._annotate(event, "part of", _task_title(annotations, task.parent))
            yield

    def _regions(self, goid: int) -> int:
        """The track of a goroutine's regions, below that of the goroutine."""
        title = f"regions of {self._packets.title(goid)}"
        return self._packets.describe(uuid("regions", goid), title, TASKS)

    def _count(self, at_ns: int, name: str, count: int, *, unit: str) -> None:
        rank = _COUNTED.index(name)
        track = self._packets.describe(uuid("counter", rank), name, COUNTS, rank, unit=unit)
        self._packets.event(at_ns, COUNTER, track).counter_value = count


def _wakes_by_goroutines(timeline: Timeline) -> dict[tuple[int, int], None]:
    """Who was woken or created by a goroutine, and when, in order."""
    return {
        (step.goid, step.at_ns): None
        for step in timeline.steps
        if step.kind in (StepKind.UNBLOCK, StepKind.CREATE) and step.by
    }


def _free_lane(lanes: list[tuple[int, int]], task: AnnotatedTask) -> int:
    """The number of a track on which no earlier task continues; `lanes` is a heap of their ends."""
    if lanes and lanes[0][0] <= task.begin_ns:
        _, lane = heapreplace(lanes, (task.end_ns, lanes[0][1]))
    else:
        lane = len(lanes)
        heappush(lanes, (task.end_ns, lane))
    return lane


def _task_title(annotations: Annotations, number: int) -> str:
    task = annotations.tasks.get(number)
    return f"{number} {printable(task.name)}".rstrip() if task else str(number)
