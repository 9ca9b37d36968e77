"""The tasks of a program and their regions, as it reported them by runtime/trace.

What goroutines did for a task is the time that they were in one of its regions; of regions inside
of each other the inner one counts. A goroutine that begins a task and ends it works for it all the
time between, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.timeline.spans import WAITING, Span, spans
from ebpfprof.timeline.steps import StepKind, TraceStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ebpfprof.timeline.model import Timeline

NO_TASK: Final = 0
"""The task of regions and messages outside of all tasks."""
_END_OF_TIME_NS: Final = 1 << 64


class AnnotatedRegion(NamedTuple):
    """A time that a goroutine reported as one region. Stacks are keys of Timeline.stacks.

    `is_cut`: it had begun before the timeline, or continues behind its end.
    """

    goid: int
    begin_ns: int
    end_ns: int
    task: int
    name: str
    stack: int = 0
    is_cut: bool = False


@dataclass(slots=True)
class AnnotatedTask:
    """A task; `begin_ns` and `end_ns` are those of the timeline if it is longer."""

    number: int
    begin_ns: int
    end_ns: int
    name: str = ""
    """Its type; "" if it began before the timeline."""
    parent: int = NO_TASK
    goid: int = 0
    """The goroutine that began it; 0 if it began before the timeline."""
    has_begun: bool = False
    """In the timeline."""
    has_ended: bool = False
    is_of_one: bool = False
    """Whether the goroutine that began it also ended it."""

    @property
    def is_whole(self) -> bool:
        """Whether the timeline has its begin and its end."""
        return self.has_begun and self.has_ended


class AnnotatedMessage(NamedTuple):
    """A message of a goroutine; the task may be NO_TASK."""

    goid: int
    at_ns: int
    task: int
    category: str
    message: str
    stack: int


@dataclass(frozen=True, slots=True)
class Annotations:
    """All annotations of a timeline: tasks by number, regions when they end, messages by time."""

    tasks: dict[int, AnnotatedTask]
    regions: Sequence[AnnotatedRegion]
    messages: Sequence[AnnotatedMessage]

    def __bool__(self) -> bool:
        return bool(self.tasks or self.regions or self.messages)


@dataclass(slots=True)
class TaskType:
    """All tasks of one type, and what goroutines did for them."""

    name: str
    tasks: int = 0
    lengths_ns: list[int] = field(default_factory=list)
    """Of tasks that began and ended in the timeline, the shortest first."""
    spent_ns: Counter[str] = field(default_factory=Counter)
    """By the state of the goroutine."""
    waits_ns: Counter[str] = field(default_factory=Counter)
    """By what for."""

    def quantile_ns(self, part: float) -> int:
        """The length that this part of the tasks does not exceed; 0 if none is whole."""
        of = self.lengths_ns
        return of[min(len(of) - 1, int(part * len(of)))] if of else 0


def annotated(timeline: Timeline) -> Annotations:
    """What the program reported."""
    tasks: dict[int, AnnotatedTask] = {}
    regions: list[AnnotatedRegion] = []
    messages: list[AnnotatedMessage] = []
    begun: dict[int, list[TraceStep]] = defaultdict(list)

    def task_of(number: int) -> AnnotatedTask:
        if number not in tasks:
            tasks[number] = AnnotatedTask(number, timeline.begin_ns, timeline.end_ns)
        return tasks[number]

    for step in timeline.steps:
        note = step.note
        if note.task != NO_TASK and step.kind is not StepKind.TASK_BEGIN:
            task_of(note.task)
        match step.kind:
            case StepKind.TASK_BEGIN:
                task = tasks[note.task] = AnnotatedTask(note.task, step.at_ns, timeline.end_ns)
                task.name, task.parent, task.goid = note.name, note.parent, step.goid
                task.has_begun = True
            case StepKind.TASK_END:
                task = task_of(note.task)
                if not task.has_ended:
                    task.end_ns, task.has_ended = step.at_ns, True
                    task.is_of_one = task.goid == step.goid
            case StepKind.REGION_BEGIN:
                begun[step.goid].append(step)
            case StepKind.REGION_END:
                regions.append(_region(timeline, begun[step.goid], step))
            case StepKind.LOG:
                messages.append(
                    AnnotatedMessage(
                        *(step.goid, step.at_ns, note.task, note.name, note.message, step.stack)
                    )
                )
            case StepKind.DESTROY:
                regions += _cut(begun.pop(step.goid, ()), step.at_ns)
    for open_regions in begun.values():
        regions += _cut(open_regions, timeline.end_ns)
    return Annotations(tasks, regions, messages)


def _region(timeline: Timeline, begun: list[TraceStep], end: TraceStep) -> AnnotatedRegion:
    first = begun.pop() if begun else None
    return AnnotatedRegion(
        end.goid,
        first.at_ns if first else timeline.begin_ns,
        end.at_ns,
        end.note.task,
        end.note.name,
        end.stack,
        is_cut=first is None,
    )


def _cut(begun: Iterable[TraceStep], end_ns: int) -> list[AnnotatedRegion]:
    """Regions of one goroutine that did not end, the inner ones first."""
    return [
        AnnotatedRegion(
            *(step.goid, step.at_ns, max(step.at_ns, end_ns), step.note.task, step.note.name),
            step.stack,
            is_cut=True,
        )
        for step in reversed(tuple(begun))
    ]


def task_types(timeline: Timeline) -> list[TaskType]:
    """All types of tasks, those that goroutines waited for longest first."""
    annotations = annotated(timeline)
    types: dict[str, TaskType] = {}
    for task in annotations.tasks.values():
        of = types.setdefault(task.name, TaskType(task.name))
        of.tasks += 1
        if task.is_whole:
            of.lengths_ns.append(task.end_ns - task.begin_ns)
    for of in types.values():
        of.lengths_ns.sort()
    works = _works(annotations)
    next_work: Counter[int] = Counter()  # by goid: both its spans and its works are in order
    for span in spans(timeline):
        mine = works.get(span.goid, ())
        first = next_work[span.goid]
        while first < len(mine) and mine[first].end_ns <= span.begin_ns:
            first += 1
        next_work[span.goid] = first
        while first < len(mine) and mine[first].begin_ns < span.end_ns:
            work = mine[first]
            length_ns = min(work.end_ns, span.end_ns) - max(work.begin_ns, span.begin_ns)
            if length_ns > 0:
                of = types[annotations.tasks[work.task].name]
                of.spent_ns[span.state] += length_ns
                if span.state == WAITING:
                    of.waits_ns[_what(timeline, span)] += length_ns
            first += 1
    return sorted(types.values(), key=lambda of: (-of.spent_ns[WAITING], of.name))


def _what(timeline: Timeline, span: Span) -> str:
    thing = timeline.objects.get(span.on)
    return f"{span.what} {thing.name}" if thing and thing.is_named else span.what


class _Work(NamedTuple):
    """A time in which a goroutine worked for a task."""

    begin_ns: int
    end_ns: int
    task: int


def _works(annotations: Annotations) -> dict[int, list[_Work]]:
    """When each goroutine worked for which task, in order, apart from each other."""
    works: dict[int, list[_Work]] = defaultdict(list)
    for region in annotations.regions:
        if region.task != NO_TASK:
            works[region.goid].append(_Work(region.begin_ns, region.end_ns, region.task))
    for task in annotations.tasks.values():
        if task.is_of_one:
            works[task.goid].append(_Work(task.begin_ns, task.end_ns, task.number))
    return {goid: list(_innermost(of)) for goid, of in works.items()}


def _innermost(works: Iterable[_Work]) -> Iterator[_Work]:
    """Works divided so that each moment has the one that began last."""
    outer: list[_Work] = []
    at_ns = 0
    end = _Work(_END_OF_TIME_NS, _END_OF_TIME_NS, NO_TASK)
    for work in [*sorted(works, key=lambda work: (work.begin_ns, -work.end_ns)), end]:
        while outer and outer[-1].end_ns <= work.begin_ns:
            of = outer.pop()
            if of.end_ns > at_ns:
                yield _Work(at_ns, of.end_ns, of.task)
                at_ns = of.end_ns
        if outer and work.begin_ns > at_ns:
            yield _Work(at_ns, work.begin_ns, outer[-1].task)
        at_ns = max(at_ns, work.begin_ns)
        outer.append(work)
