"""What each goroutine did, as spans of time that follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.timeline.events import NO_P
from ebpfprof.timeline.steps import NO_THREAD, StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.timeline.model import Timeline
    from ebpfprof.timeline.steps import TraceStep

RUNNING: Final = "running"
RUNNABLE: Final = "runnable"
WAITING: Final = "waiting"
SYSCALL: Final = "syscall"
STATES: Final = (RUNNING, RUNNABLE, WAITING, SYSCALL)

_AFTER: Final = {
    StepKind.CREATE: RUNNABLE,
    StepKind.START: RUNNING,
    StepKind.STOP: RUNNABLE,
    StepKind.BLOCK: WAITING,
    StepKind.UNBLOCK: RUNNABLE,
    StepKind.DESTROY: "",
    StepKind.SYSCALL: SYSCALL,
    StepKind.SYSCALL_END: RUNNING,
    StepKind.SYSCALL_LOST: RUNNABLE,
}


class Span(NamedTuple):
    """A time in which a goroutine was in one state, of STATES.

    `word` is the reason of a wait, or why it became runnable: "preempted", BY_NETWORK. `stack` is a
    key of Timeline.stacks: where it waits, or of a runnable goroutine where `by`, who woke or
    created it, did that. `on` is of a wait a key of Timeline.objects. `tid` and `p` are those it
    keeps running. `is_cut`: it had begun before the timeline, or continues behind its end.
    """

    goid: int
    begin_ns: int
    end_ns: int
    state: str
    word: str = ""
    stack: int = 0
    by: int = 0
    tid: int = NO_THREAD
    p: int = NO_P
    labels: int = 0
    is_cut: bool = False
    on: int = 0

    @property
    def length_ns(self) -> int:
        """How long it was."""
        return self.end_ns - self.begin_ns

    @property
    def what(self) -> str:
        """The state, of a wait its reason."""
        return self.word or WAITING if self.state == WAITING else self.state


def spans(timeline: Timeline) -> Iterator[Span]:
    """All spans; those of one goroutine in order, each when it ends."""
    now: dict[int, Span] = {}
    for step in timeline.steps:
        before = now.get(step.goid)
        if step.kind is StepKind.IS:
            now[step.goid] = _begun(step, step.state)._replace(is_cut=True)
            continue
        if step.kind is StepKind.GAP:  # what it was then is not known
            for goid, span in now.items():
                yield span._replace(end_ns=max(span.begin_ns, step.at_ns), is_cut=True)
                now[goid] = span._replace(begin_ns=step.other, end_ns=step.other, is_cut=True)
            continue
        state = step.state or _AFTER.get(step.kind)
        if state is None:
            continue
        if before:
            yield before._replace(end_ns=max(before.begin_ns, step.at_ns))
        if state:
            now[step.goid] = _begun(step, state)
        else:
            now.pop(step.goid, None)
    for span in now.values():
        yield span._replace(end_ns=max(span.begin_ns, timeline.end_ns), is_cut=True)


def _begun(step: TraceStep, state: str) -> Span:
    runs = state in (RUNNING, SYSCALL)
    return Span(
        step.goid,
        step.at_ns,
        step.at_ns,
        state,
        step.word,
        step.stack,
        step.by,
        step.tid if runs else NO_THREAD,
        step.p if runs else NO_P,
        step.labels,
        on=step.on,
    )
