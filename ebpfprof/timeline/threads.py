"""When threads ran on which processor of the machine, and who woke them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ebpfprof.timeline.steps import StepKind, TraceStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.timeline.events import Event
    from ebpfprof.timeline.model import Timeline


class ThreadSpan(NamedTuple):
    """A time in which a thread had a processor; `wake` is what ended its sleep before, if any."""

    tid: int
    begin_ns: int
    end_ns: int
    cpu: int
    wake: TraceStep | None


def wake_step(event: Event) -> TraceStep:
    """The step of a THREAD_WAKE: not one of those of the thread itself, as others make it."""
    if event.is_exit and not event.is_made:
        return TraceStep(event.at_ns, StepKind.THREAD_WAKE, event.tid, other=event.more)
    by = f"{event.word} ({event.more})"
    if event.is_made:
        by = f"an interrupt, while {by} ran" if event.more else "an interrupt"
    return TraceStep(event.at_ns, StepKind.THREAD_WAKE, event.tid, word=by)


def thread_spans(timeline: Timeline) -> Iterator[ThreadSpan]:
    """All of them, each when it ends; those of one thread in order."""
    on: dict[int, tuple[TraceStep, TraceStep | None]] = {}
    woken: dict[int, TraceStep] = {}
    for step in timeline.steps:
        match step.kind:
            case StepKind.THREAD_WAKE:
                woken[step.tid] = step
            case StepKind.THREAD_ON:
                on[step.tid] = step, woken.pop(step.tid, None)
            case StepKind.THREAD_OFF:
                woken.pop(step.tid, None)  # it was just about to sleep
                if step.tid in on:
                    begun, wake = on.pop(step.tid)
                    yield ThreadSpan(step.tid, begun.at_ns, step.at_ns, begun.other, wake)
            case StepKind.GAP:
                on.clear()
                woken.clear()


def thread_title(timeline: Timeline, tid: int) -> str:
    """What a thread is called: its name and its id."""
    name = timeline.threads.get(tid, "")
    return f"{name} ({tid})" if name else f"thread {tid}"


def woken_by(timeline: Timeline, wake: TraceStep) -> str:
    """Who did it, in words."""
    return thread_title(timeline, wake.other) if wake.other else wake.word
