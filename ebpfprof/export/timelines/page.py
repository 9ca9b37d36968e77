"""A timeline as a page in one HTML file, which needs no network (ebpfprof/web/trace.js).

Spans are arrays of numbers in base64, one row of arrays for each goroutine: a million spans of JSON
would take a browser's memory.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.console.text import printable
from ebpfprof.export.html_page import html_page
from ebpfprof.export.timelines.waits import waits_document
from ebpfprof.timeline.model import KERNEL_FILE
from ebpfprof.timeline.spans import STATES, Span, spans
from ebpfprof.timeline.steps import StepKind
from ebpfprof.timeline.tasks import NO_TASK, annotated, task_types
from ebpfprof.timeline.threads import ThreadSpan, thread_spans, thread_title, woken_by

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ebpfprof.profile.model import Frame
    from ebpfprof.timeline.model import Timeline, TimelineGoroutine
    from ebpfprof.timeline.tasks import AnnotatedMessage, AnnotatedRegion

_SCRIPTS: Final = (
    "elements.js",
    "flametext.js",
    "theme.js",
    "vendor/dagre.min.js",
    "waitgraph.js",
    "tracedata.js",
    "tracecanvas.js",
    "tracetexts.js",
    "trace.js",
)
_STYLES: Final = ("style.css", "trace.css")
_MOST_WAITS: Final = 3


def encode(timeline: Timeline) -> bytes:
    """The timeline as a page."""
    return html_page(
        f"Trace of {timeline.command} ({timeline.pid})",
        scripts=_SCRIPTS,
        styles=_STYLES,
        data={"trace": document(timeline)},
    )


def document(timeline: Timeline) -> dict[str, Any]:
    """What the page shows; times are ns since the beginning."""
    texts, stacks, things = _Numbers(), _Stacks(timeline), _Things(timeline)
    notes = _Notes(timeline)
    rows: dict[int, list[Span]] = defaultdict(list)
    for span in spans(timeline):
        if span.end_ns > span.begin_ns or span.by:
            rows[span.goid].append(span)
    return {
        "pid": timeline.pid,
        "command": printable(timeline.command),
        "go": printable(timeline.go_version),
        "begin_unix_ns": str(timeline.begin_unix_ns),
        "length_ns": timeline.end_ns - timeline.begin_ns,
        "comments": [printable(comment) for comment in timeline.comments],
        "states": list(STATES),
        "goroutines": [
            {**_row(timeline, goid, found, texts, stacks, things), **notes.of(goid)}
            for goid, found in sorted(rows.items())
        ],
        "runtime": _runtime(timeline),
        "pauses": [
            [step.at_ns - timeline.begin_ns, step.other - timeline.begin_ns]
            for step in timeline.steps
            if step.kind is StepKind.GAP
        ],
        "waits": waits_document(timeline),
        "heap": _heap(timeline),
        "threads": _threads(timeline, things),
        "tasks": _tasks(timeline),
        "notes": notes.all,
        "words": texts.all,
        "frames": stacks.frames.all,
        "stacks": stacks.all,
        "things": things.all,
        "labels": {
            str(key): [[printable(label.key), printable(str(label.value))] for label in labels]
            for key, labels in timeline.label_sets.items()
        },
    }


class _Numbers:
    """Things that get numbers from 0 on as they come."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._ids: dict[Hashable, int] = {}

    def of(self, key: Hashable, shown: object) -> int:
        if key not in self._ids:
            self._ids[key] = len(self.all)
            self.all.append(shown)
        return self._ids[key]


class _Stacks:
    """Stacks as lists of numbers of frames, innermost first; number 0 is no stack."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.frames = _Numbers()
        self.all: list[list[int]] = [[]]
        self._ids: dict[int, int] = {0: 0}

    def of(self, key: int) -> int:
        if key not in self._ids:
            calls = self._timeline.stacks.get(key, ())
            self._ids[key] = len(self.all) if calls else 0
            if calls:
                frames = [call.frame for call in calls]
                self.all.append(
                    [
                        self.frames.of(
                            (frame.function, frame.file, frame.line),
                            [printable(frame.function), _place(frame)],
                        )
                        for frame in frames
                    ]
                )
        return self._ids[key]


def _place(frame: Frame) -> str:
    file = printable(frame.file)
    return file if frame.file == KERNEL_FILE else f"{file}:{frame.line}"


class _Things:
    """What goroutines wait for, as ends of sentences; number 0 is unknown."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._texts = _Numbers()
        self._texts.of("", "")
        self.all = self._texts.all

    def of(self, key: int) -> int:
        thing = self._timeline.objects.get(key) if key else None
        return self.text(f"{'to' if thing.file else 'for'} {thing.text}" if thing else "")

    def text(self, text: str) -> int:
        """The number of a text that is not one of them."""
        return self._texts.of(text, printable(text))


class _Notes:
    """What goroutines reported, as texts with numbers."""

    def __init__(self, timeline: Timeline) -> None:
        found = annotated(timeline)
        self._begin_ns, self._tasks = timeline.begin_ns, found.tasks
        self._texts = _Numbers()
        self.all = self._texts.all
        self._regions: dict[int, list[AnnotatedRegion]] = defaultdict(list)
        for region in sorted(found.regions, key=lambda of: (of.begin_ns, -of.end_ns)):
            self._regions[region.goid].append(region)
        self._messages: dict[int, list[AnnotatedMessage]] = defaultdict(list)
        for message in found.messages:
            self._messages[message.goid].append(message)

    def of(self, goid: int) -> dict[str, Any]:
        """The regions and messages of a goroutine, if it has some; outer regions come first."""
        regions, messages = self._regions[goid], self._messages[goid]
        row: dict[str, Any] = {}
        if regions:
            row["regions"] = {
                "begins": _packed("<f8", (of.begin_ns - self._begin_ns for of in regions)),
                "ends": _packed("<f8", (of.end_ns - self._begin_ns for of in regions)),
                "notes": _packed("<u4", (self._text(of.name, of.task) for of in regions)),
            }
        if messages:
            texts = (
                self._text(f"{of.category}: {of.message}" if of.category else of.message, of.task)
                for of in messages
            )
            row["messages"] = {
                "times": _packed("<f8", (of.at_ns - self._begin_ns for of in messages)),
                "notes": _packed("<u4", texts),
            }
        return row

    def _text(self, text: str, number: int) -> int:
        task = self._tasks.get(number)
        name = f" {task.name}" if task and task.name else ""
        shown = printable(f"{text} (task {number}{name})" if number != NO_TASK else text)
        return self._texts.of(shown, shown)


def _tasks(timeline: Timeline) -> list[dict[str, Any]]:
    """The rows of the table of tasks; times are ns, 0 where they are not known."""
    return [
        {
            "name": printable(of.name),
            "tasks": of.tasks,
            "lengths": [of.quantile_ns(part) for part in (0.5, 0.99, 1)],
            "spent": [of.spent_ns[state] for state in STATES],
            "waits": [[printable(what), ns] for what, ns in of.waits_ns.most_common(_MOST_WAITS)],
        }
        for of in task_types(timeline)
    ]


def _row(
    timeline: Timeline,
    goid: int,
    found: list[Span],
    texts: _Numbers,
    stacks: _Stacks,
    things: _Things,
) -> dict[str, Any]:
    goroutine = timeline.goroutines.get(goid)
    return {
        "goid": goid,
        "name": printable(goroutine.name) if goroutine else "?",
        "created": _created(goroutine),
        "parent": goroutine.parent if goroutine else 0,
        "system": bool(goroutine and goroutine.is_system),
        "begins": _packed("<f8", (span.begin_ns - timeline.begin_ns for span in found)),
        "ends": _packed("<f8", (span.end_ns - timeline.begin_ns for span in found)),
        "states": _packed("u1", (STATES.index(span.state) for span in found)),
        "words": _packed("<u2", (texts.of(span.word, printable(span.word)) for span in found)),
        "stacks": _packed("<u4", (stacks.of(span.stack) for span in found)),
        "things": _packed("<u4", (things.of(span.on) for span in found)),
        "by": _packed("<f8", (span.by for span in found)),
        "ps": _packed("<i4", (span.p for span in found)),
        "tids": _packed("<u4", (span.tid for span in found)),
        "labels": {
            str(number): str(span.labels)
            for number, span in enumerate(found)
            if span.labels in timeline.label_sets
        },
    }


def _created(goroutine: TimelineGoroutine | None) -> str:
    frame = goroutine.created if goroutine else None
    return f"{printable(frame.function)} ({printable(frame.file)}:{frame.line})" if frame else ""


def _heap(timeline: Timeline) -> dict[str, str]:
    heap = timeline.heap
    return {
        "times": _packed("<f8", (moment.at_ns - timeline.begin_ns for moment in heap)),
        "live": _packed("<f8", (moment.live for moment in heap)),
        "goal": _packed("<f8", (moment.goal or 0 for moment in heap)),
    }


def _threads(timeline: Timeline, things: _Things) -> list[dict[str, Any]]:
    """When each thread had a processor, and who had woken it; texts are among the things."""
    rows: dict[int, list[ThreadSpan]] = defaultdict(list)
    for span in thread_spans(timeline):
        rows[span.tid].append(span)

    def waker(span: ThreadSpan) -> int:
        return things.text(woken_by(timeline, span.wake) if span.wake else "")

    return [
        {
            "name": printable(thread_title(timeline, tid)),
            "begins": _packed("<f8", (span.begin_ns - timeline.begin_ns for span in found)),
            "ends": _packed("<f8", (span.end_ns - timeline.begin_ns for span in found)),
            "cpus": _packed("<u4", (span.cpu for span in found)),
            "wakers": _packed("<u4", (waker(span) for span in found)),
        }
        for tid, found in sorted(rows.items())
    ]


def _packed(kind: str, numbers: Iterable[int]) -> str:
    return base64.b64encode(np.fromiter(numbers, kind).tobytes()).decode()


def _runtime(timeline: Timeline) -> list[list[Any]]:
    """What concerns all: [begin, end, what] of collections and stops of the world."""
    found: list[list[Any]] = []
    begun: dict[StepKind, tuple[int, str]] = {}
    for step in timeline.steps:
        at_ns = step.at_ns - timeline.begin_ns
        if step.kind is StepKind.GC_BEGIN:
            begun[StepKind.GC_END] = at_ns, "garbage collection"
        elif step.kind is StepKind.STOP_WORLD:
            begun[StepKind.START_WORLD] = at_ns, f"world stopped: {printable(step.word)}"
        elif step.kind in begun:
            begin_ns, what = begun.pop(step.kind)
            found.append([begin_ns, at_ns, what])
    for begin_ns, what in begun.values():
        found.append([begin_ns, timeline.end_ns - timeline.begin_ns, what])
    return sorted(found)
