"""Tasks, and what goroutines did for them, in timelines with known times."""

from __future__ import annotations

from ebpfprof.export.tables import tasks as table
from ebpfprof.timeline.events import Annotation, EventKind
from ebpfprof.timeline.model import WaitObject
from ebpfprof.timeline.spans import RUNNABLE, RUNNING, WAITING
from ebpfprof.timeline.tasks import annotated, task_types
from tests.made_up_timeline import Story

A, B = 1, 2
TASK_BEGIN, TASK_END = EventKind.TASK_BEGIN, EventKind.TASK_END
BEGIN, END = EventKind.REGION_BEGIN, EventKind.REGION_END
LOCK = WaitObject("main.mu", place="sync.Mutex at 0xc000012340")


def order() -> Story:
    """An order from 100 to 900, which A begins and B ends: A works for it from 200 to 600, of which
    it waits from 300 to 500; inside of that for a dish from 400 on. B works for it from 700 on.
    """
    story = Story({A: "main.a", B: "main.b"})
    story.annotate(100, TASK_BEGIN, A, Annotation(1, "order"))
    story.annotate(200, BEGIN, A, Annotation(1, "take"))
    story.annotate(210, TASK_BEGIN, A, Annotation(2, "dish", 1))
    story.annotate(220, EventKind.LOG, A, Annotation(2, "size", message="large"))
    story.park(300, A, "sync.Mutex.Lock", "main.lock", on=LOCK)
    story.wake(500, A, B, run_ns=550)
    story.annotate(560, BEGIN, A, Annotation(2, "cook"))
    story.annotate(580, END, A, Annotation(2, "cook"))
    story.annotate(600, END, A, Annotation(1, "take"))
    story.annotate(700, BEGIN, B, Annotation(1, "serve"))
    story.annotate(800, TASK_END, B, Annotation(2))
    story.annotate(850, END, B, Annotation(1, "serve"))
    story.annotate(900, TASK_END, B, Annotation(1))
    return story


def test_tasks_have_their_lengths_and_the_work_of_all_goroutines() -> None:
    waited_for, dish = task_types(order().timeline(1000))
    assert (waited_for.name, waited_for.tasks, waited_for.lengths_ns) == ("order", 1, [800])
    # A: 200 to 300, 550 to 560 and 580 to 600; B: 700 to 850
    assert waited_for.spent_ns == {RUNNING: 100 + 10 + 20 + 150, RUNNABLE: 50, WAITING: 200}
    assert waited_for.waits_ns == {"sync.Mutex.Lock main.mu": 200}
    assert (dish.name, dish.lengths_ns, dish.spent_ns) == ("dish", [590], {RUNNING: 20})


def test_a_goroutine_that_begins_and_ends_a_task_works_for_it() -> None:
    story = Story({A: "main.a", B: "main.b"})
    story.annotate(100, TASK_BEGIN, A, Annotation(1, "alone"))
    story.park(200, A, "chan receive")
    story.wake(700, A, B)
    story.annotate(800, TASK_END, A, Annotation(1))
    (alone,) = task_types(story.timeline(1000))
    assert alone.spent_ns == {RUNNING: 200, WAITING: 500}


def test_the_task_inside_of_another_counts() -> None:
    story = Story({A: "main.a"})
    story.annotate(100, TASK_BEGIN, A, Annotation(1, "outer"))
    story.annotate(200, TASK_BEGIN, A, Annotation(2, "inner", 1))
    story.annotate(500, TASK_END, A, Annotation(2))
    story.annotate(600, TASK_END, A, Annotation(1))
    spent = {of.name: of.spent_ns[RUNNING] for of in task_types(story.timeline(1000))}
    assert spent == {"outer": 200, "inner": 300}


def test_what_began_before_the_trace_or_continues_behind_it() -> None:
    story = Story({A: "main.a", B: "main.b"})
    story.annotate(100, END, A, Annotation(1, "first"))
    story.annotate(200, TASK_BEGIN, B, Annotation(2, "last"))
    story.annotate(300, BEGIN, B, Annotation(2, "region"))
    found = story.timeline(1000)
    regions = annotated(found).regions
    assert [(of.begin_ns, of.end_ns, of.is_cut) for of in regions] == [
        (0, 100, True),
        (300, 1000, True),
    ]
    unknown, last = task_types(found)
    assert (unknown.name, unknown.tasks, unknown.lengths_ns) == ("", 1, [])
    assert (last.name, last.spent_ns) == ("last", {RUNNING: 700})


def test_regions_outside_of_tasks_count_for_the_task_around_them() -> None:
    story = Story({A: "main.a"})
    story.annotate(100, BEGIN, A, Annotation(1, "of a task"))
    story.annotate(200, BEGIN, A, Annotation(0, "of none"))
    story.annotate(300, END, A, Annotation(0, "of none"))
    story.annotate(400, END, A, Annotation(1, "of a task"))
    (of,) = task_types(story.timeline(1000))
    assert of.spent_ns == {RUNNING: 300}


def test_a_region_ends_with_its_goroutine() -> None:
    story = Story({A: "main.a"})
    story.annotate(100, BEGIN, A, Annotation(1, "region"))
    story.end(300, A)
    (region,) = annotated(story.timeline(1000)).regions
    assert (region.begin_ns, region.end_ns, region.is_cut) == (100, 300, True)


def test_messages_are_kept_with_their_task() -> None:
    (message,) = annotated(order().timeline(1000)).messages
    assert (message.goid, message.at_ns, message.task) == (A, 220, 2)
    assert (message.category, message.message) == ("size", "large")


def test_the_table_has_a_row_for_each_type() -> None:
    text = table.render(task_types(order().timeline(1000)), width=None, color=False)
    head, first, waits, second, *_ = text.splitlines()
    assert head.split() == ["Tasks", "p50", "p99", "Max", "Running", "Runnable", "Waited", "Task"]
    assert first.split() == [
        *("1", "800", "ns", "800", "ns", "800", "ns", "280", "ns", "50", "ns", "200", "ns"),
        "order",
    ]
    assert waits.strip() == "waits for sync.Mutex.Lock main.mu 100.0%"
    assert second.split()[-1] == "dish"
    assert text.endswith(table.NOTE)


def test_the_table_says_what_it_leaves_out() -> None:
    text = table.render(task_types(order().timeline(1000)), limit=1, width=None, color=False)
    assert "... and 1 more" in text
    assert "dish" not in text


def test_without_annotations_there_is_nothing() -> None:
    found = Story({A: "main.a"}).timeline(1000)
    assert not annotated(found)
    assert task_types(found) == []
