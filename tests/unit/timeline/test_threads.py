"""When threads had a processor, and who woke them."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.timeline.events import Event, EventKind
from ebpfprof.timeline.model import HeapSize, Timeline
from ebpfprof.timeline.replay import Replay
from ebpfprof.timeline.threads import thread_spans, thread_title, woken_by
from tests.unit.timeline.test_critical import timeline as goroutines

ON, OFF, WAKE = EventKind.THREAD_ON, EventKind.THREAD_OFF, EventKind.THREAD_WAKE


def timeline() -> Timeline:
    """Thread 7 is woken by 8, by another process and by interrupts; besides what goroutines do."""
    events = [
        Event(100, ON, tid=8, cpu=1),
        Event(110, WAKE, tid=7, more=8, word="t", is_exit=True),
        Event(120, ON, tid=7, cpu=0),
        Event(200, OFF, tid=7, cpu=0),
        Event(210, WAKE, tid=7, more=4711, word="curl"),
        Event(230, ON, tid=7, cpu=1),
        Event(240, WAKE, tid=7, more=8, word="t", is_exit=True),  # before it slept
        Event(300, OFF, tid=7, cpu=1, is_made=True),
        Event(310, ON, tid=7, cpu=0),
        Event(400, OFF, tid=7, cpu=0),
        Event(410, WAKE, tid=7, more=4711, word="curl", is_made=True),
        Event(420, ON, tid=7, cpu=0),
        Event(430, OFF, tid=7, cpu=0),
        Event(440, WAKE, tid=7, is_made=True, word="swapper/0"),
        Event(450, ON, tid=7, cpu=0),
        Event(460, OFF, tid=7, cpu=0),
    ]
    replay = Replay(0, {})
    for event in events:
        replay.take(event)
    found = goroutines()
    heap = (HeapSize(0, 4 << 20, 8 << 20), HeapSize(600, 6 << 20, None))
    return replace(found, steps=[*found.steps, *replay.taken()], threads={8: "t"}, heap=heap)


def test_a_thread_that_slept_has_who_woke_it() -> None:
    found = timeline()
    spans = [
        (span.begin_ns, span.end_ns, span.cpu, span.wake and woken_by(found, span.wake))
        for span in thread_spans(found)
        if span.tid == 7
    ]
    assert spans == [
        (120, 200, 0, "t (8)"),
        (230, 300, 1, "curl (4711)"),
        (310, 400, 0, None),  # it was preempted
        (420, 430, 0, "an interrupt, while curl (4711) ran"),
        (450, 460, 0, "an interrupt"),
    ]
    assert thread_title(found, 7) == "thread 7"


def test_wakes_are_not_steps_of_goroutines() -> None:
    replay = Replay(0, {})
    replay.take(Event(100, WAKE, tid=7, more=8, word="t"))
    (step,) = replay.taken()
    assert (step.tid, step.goid, step.p) == (7, 0, -1)
