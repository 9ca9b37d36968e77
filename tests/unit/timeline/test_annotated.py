"""Annotations in a replay: without contradiction, whatever a program reports."""

from __future__ import annotations

from ebpfprof.timeline.events import Annotation, EventKind
from ebpfprof.timeline.steps import StepKind
from tests.made_up_timeline import Story

A, B = 1, 2
BEGIN, END = EventKind.REGION_BEGIN, EventKind.REGION_END
Reported = list[tuple[int, StepKind, int, str, bool]]


def reported(story: Story) -> Reported:
    return [
        (step.at_ns, step.kind, step.note.task, step.note.name, step.is_inferred)
        for step in story.timeline(1000).steps
        if step.kind.is_annotation
    ]


def test_annotations_are_steps_of_their_goroutine() -> None:
    story = Story({A: "main.a"})
    story.annotate(10, EventKind.TASK_BEGIN, A, Annotation(5, "order", 4))
    story.annotate(20, EventKind.LOG, A, Annotation(5, "size", message="12"))
    story.annotate(30, EventKind.TASK_END, A, Annotation(5))
    steps = [step for step in story.timeline(100).steps if step.kind.is_annotation]
    assert [(step.goid, step.tid, step.note) for step in steps] == [
        (A, A, Annotation(5, "order", 4)),
        (A, A, Annotation(5, "size", 0, "12")),
        (A, A, Annotation(5)),
    ]


def test_a_region_ends_those_inside_of_it_whose_ends_were_lost() -> None:
    story = Story({A: "main.a"})
    for at_ns, name in ((10, "outer"), (20, "middle"), (30, "inner")):
        story.annotate(at_ns, BEGIN, A, Annotation(1, name))
    story.annotate(40, END, A, Annotation(1, "outer"))
    assert reported(story)[3:] == [
        (40, StepKind.REGION_END, 1, "inner", True),
        (40, StepKind.REGION_END, 1, "middle", True),
        (40, StepKind.REGION_END, 1, "outer", False),
    ]


def test_the_end_of_a_region_that_began_before_the_trace_is_kept() -> None:
    story = Story({A: "main.a"})
    story.annotate(10, END, A, Annotation(1, "before"))
    assert reported(story) == [(10, StepKind.REGION_END, 1, "before", False)]


def test_the_end_of_another_region_than_those_that_began_is_left_out() -> None:
    story = Story({A: "main.a"})
    story.annotate(10, BEGIN, A, Annotation(1, "region"))
    story.annotate(20, END, A, Annotation(2, "region"))
    story.annotate(30, END, A, Annotation(1, "region"))
    assert [at_ns for at_ns, *_ in reported(story)] == [10, 30]


def test_regions_are_of_one_goroutine_and_end_with_it() -> None:
    story = Story({A: "main.a", B: "main.b"})
    story.annotate(10, BEGIN, A, Annotation(1, "region"))
    story.annotate(20, END, B, Annotation(2, "other"))
    story.end(30, A)
    assert [(at_ns, name) for at_ns, _, _, name, _ in reported(story)] == [
        (10, "region"),
        (20, "other"),
    ]


def test_a_task_begins_once_until_it_ends() -> None:
    story = Story({A: "main.a"})
    begin, end = EventKind.TASK_BEGIN, EventKind.TASK_END
    for at_ns, kind in ((10, begin), (20, begin), (30, end), (40, end), (50, begin)):
        story.annotate(at_ns, kind, A, Annotation(1, "task"))
    assert [at_ns for at_ns, *_ in reported(story)] == [10, 30, 40, 50]
