"""Replays events and shows what goroutines, Ps and threads did, without contradiction.

Not every change is seen: what a thread does later shows which goroutine began to run, nothing shows
short system calls, and events may be lost. The replay keeps the state of all, and puts in what must
have been, as early as it can have been: then each step follows from those before it, as readers of
traces demand (internal/trace/order.go, Go 1.23 on).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.timeline.annotated import AnnotatedWork
from ebpfprof.timeline.events import NO_P, Event, EventKind, Known
from ebpfprof.timeline.ranges import RuntimeRanges
from ebpfprof.timeline.replayed import ReplayedGoroutine, ReplayedState, ReplayedThread
from ebpfprof.timeline.sampled_goroutines import NOT_RECORDED, SampledGoroutines
from ebpfprof.timeline.scheduler import Scheduler
from ebpfprof.timeline.steps import BY_NETWORK, BY_TIMER, StepKind, TraceStep
from ebpfprof.timeline.threads import wake_step

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping


class Replay:
    """Takes events in the order of their times, and has the steps."""

    def __init__(self, begin_ns: int, known: Mapping[int, Known]) -> None:
        """The recording began at `begin_ns`; `known` are goroutines of a sample, by goid."""
        self._scheduler = Scheduler(begin_ns)
        self.ignored = 0
        """Events that contradict all that is known: others were lost before."""
        self._sampled = SampledGoroutines(self._scheduler, known)
        self._ranges = RuntimeRanges(self._scheduler)
        self._work = AnnotatedWork(self._scheduler)
        self._takes: dict[EventKind, Callable[[Event, ReplayedThread], None]] = {
            EventKind.PARK: self._park,
            EventKind.SUSPEND: self._park,
            EventKind.READY: self._ready,
            EventKind.NET_READY: self._ready,
            EventKind.RUN: self._run,
            EventKind.CREATE: self._create,
            EventKind.EXIT: self._exit,
            EventKind.YIELD: self._yield,
            EventKind.PREEMPT: self._yield,
            EventKind.SWITCH: self._switch,
            EventKind.GC_BEGIN: self._range,
            EventKind.GC_END: self._range,
            EventKind.STOP_WORLD: self._range,
            EventKind.START_WORLD: self._range,
            EventKind.ASSIST: self._range,
            EventKind.ASSIST_END: self._range,
            EventKind.THREAD_OFF: self._thread_off,
            EventKind.THREAD_ON: self._thread_on,
            EventKind.THREAD_WAKE: lambda event, thread: self._scheduler.add(wake_step(event)),
            **{kind: self._annotate for kind in EventKind if kind.is_annotation},
        }

    @property
    def inferred(self) -> Counter[StepKind]:
        """The number of inferred steps, by kind."""
        return self._scheduler.inferred

    def taken(self) -> list[TraceStep]:
        """The steps that were found since the last call; those of one thread are in order."""
        steps, self._scheduler.steps = self._scheduler.steps, []
        return steps

    def take(self, event: Event) -> None:
        """Go on by one event, which is not earlier than those before."""
        thread = self._scheduler.thread(event.tid)
        self._takes[event.kind](event, thread)

    def end(self, at_ns: int) -> None:
        """End the replay: system calls that are over by then are."""
        for thread in self._scheduler.threads.values():
            g = thread.g
            if g and g.state is ReplayedState.SYSCALL and not thread.off_ns and thread.p != NO_P:
                self._scheduler.end_call(thread, min(at_ns, max(thread.on_ns, thread.last_ns)))
        for known in self._sampled.known.values():
            if known.goid not in self._scheduler.goroutines:
                self._sampled.untold(known)

    def pause(self, begin_ns: int, end_ns: int, known: Mapping[int, Known]) -> None:
        """Nothing was recorded between two times; `known` are the goroutines afterwards.

        What goroutines did meanwhile becomes a wait that is NOT_RECORDED, unless both sides of the
        pause show the same wait.
        """
        scheduler = self._scheduler
        for thread in scheduler.threads.values():
            if thread.g and thread.g.state is ReplayedState.SYSCALL:
                if thread.p == NO_P:
                    scheduler.leave_call(thread, begin_ns)
                else:
                    scheduler.end_call(thread, begin_ns)
            if thread.g:
                scheduler.block(thread, begin_ns, NOT_RECORDED, 0, inferred=True)
        free = next((thread for thread in scheduler.threads.values() if thread.p != NO_P), None)
        if free:
            for g in tuple(scheduler.goroutines.values()):
                self._sampled.hide(g, free, begin_ns, known)
        for thread in scheduler.threads.values():
            thread.on_ns = thread.off_ns = thread.left = 0
            thread.last_ns = max(thread.last_ns, end_ns)
        self._sampled.known, scheduler.begin_ns = known, end_ns
        scheduler.add(TraceStep(begin_ns, StepKind.GAP, other=end_ns))

    # What events show.

    def _park(self, event: Event, thread: ReplayedThread) -> None:
        if self._runs(event, thread, event.goid):
            self._scheduler.block(
                *(thread, event.at_ns, event.word, event.stack), labels=event.labels, on=event.on
            )

    def _ready(self, event: Event, thread: ReplayedThread) -> None:
        self._runner(event, thread)
        g = self._scheduler.goroutines.get(event.goid)
        if g is None:
            known = self._sampled.known.get(event.goid)
            is_same = known and known.sequence == event.more
            stack, on = (known.stack, known.on) if known and is_same else (0, 0)
            g = self._scheduler.begin_with(event.goid, ReplayedState.WAITING, event.word, stack, on)
        elif g.state is ReplayedState.RUNNING and g.thread and g.thread is not thread:
            # That it parked was lost.
            self._scheduler.block(g.thread, g.thread.last_ns, event.word, 0, inferred=True)
        if g.state is not ReplayedState.WAITING:
            self.ignored += 1
            return
        word = "" if event.by else BY_TIMER
        if event.kind is EventKind.NET_READY:  # whatever goroutine the thread has just looked
            word = BY_NETWORK
        self._scheduler.unblock(g, thread, event.at_ns, event.stack, event.by, word=word)

    def _run(self, event: Event, thread: ReplayedThread) -> None:
        g = self._scheduler.goroutines.get(event.goid) or self._sampled.first(
            event.goid, event.at_ns
        )
        if g.state is ReplayedState.GONE or event.p == NO_P:
            self.ignored += 1
            return
        self._scheduler.make_runnable(g, thread, event.at_ns)
        self._scheduler.start(g, thread, event.p, event.at_ns, inferred=False)

    def _create(self, event: Event, thread: ReplayedThread) -> None:
        self._runner(event, thread)
        if event.goid in self._scheduler.goroutines or (thread.p == NO_P and event.p == NO_P):
            self.ignored += 1
            return
        if thread.p == NO_P:
            self._scheduler.get_p(thread, event.p, event.at_ns)
        self._scheduler.goroutines[event.goid] = ReplayedGoroutine(
            event.goid, ReplayedState.RUNNABLE, event.at_ns
        )
        self._scheduler.step(
            *(thread, event.at_ns, StepKind.CREATE),
            goid=event.goid,
            stack=event.stack,
            by=event.by,
            other=event.more,
        )

    def _exit(self, event: Event, thread: ReplayedThread) -> None:
        g = self._scheduler.goroutines.get(event.goid)
        if g and g.state is ReplayedState.GONE:  # by SWITCH
            return
        if self._runs(event, thread, event.goid):
            self._work.forget(event.goid)
            self._scheduler.destroy(thread, event.at_ns)

    def _yield(self, event: Event, thread: ReplayedThread) -> None:
        if self._runs(event, thread, event.goid):
            is_made = event.is_made or event.kind is EventKind.PREEMPT
            word = "preempted" if is_made else "runtime.Gosched"
            self._scheduler.stop(thread, event.at_ns, word, event.stack, inferred=False)

    def _switch(self, event: Event, thread: ReplayedThread) -> None:
        g = self._runs(event, thread, event.goid)
        if not g:
            return
        other, p = self._other(event, thread), thread.p
        if other and other.state is ReplayedState.WAITING:
            self._scheduler.unblock(other, thread, event.at_ns, event.stack, event.goid)
        if event.is_exit:
            self._work.forget(event.goid)
            self._scheduler.destroy(thread, event.at_ns)
        else:
            self._scheduler.block(thread, event.at_ns, "coroutine", event.stack)
        if other and other.state is ReplayedState.RUNNABLE:
            self._scheduler.start(other, thread, p, event.at_ns, inferred=False)
            thread.left = g.goid  # the thread may have it still for a moment

    def _other(self, event: Event, thread: ReplayedThread) -> ReplayedGoroutine | None:
        """The goroutine that gets the thread; the runtime makes it without a moment of its own.

        An unknown one that does not begin now was there before.
        """
        other = self._scheduler.goroutines.get(event.more)
        if other or not event.more:
            return other
        if not event.is_made:
            return self._scheduler.begin_with(event.more, ReplayedState.WAITING, "coroutine")
        waits = ReplayedState.WAITING
        other = ReplayedGoroutine(event.more, waits, event.at_ns, word="coroutine")
        self._scheduler.goroutines[event.more] = other
        self._scheduler.step(
            *(thread, event.at_ns, StepKind.CREATE),
            goid=event.more,
            stack=event.stack,
            by=event.goid,
            state=waits.value,
        )
        return other

    def _range(self, event: Event, thread: ReplayedThread) -> None:
        if g := self._runner(event, thread):
            self._ranges.take(event, thread, g.goid)

    def _annotate(self, event: Event, thread: ReplayedThread) -> None:
        if not self._runs(event, thread, event.goid) or not self._work.take(event, thread):
            self.ignored += 1

    def _thread_off(self, event: Event, thread: ReplayedThread) -> None:
        if event.is_exit:
            self._call(event, thread)
        elif event.goid == 0 and not event.is_made and thread.p != NO_P:
            self._scheduler.vacate(thread)
            if thread.p != NO_P:  # it found nothing to run, and sleeps
                self._scheduler.drop_p(thread, event.at_ns)
        elif event.goid not in (0, thread.left) and event.p != NO_P:
            self._runs(event, thread, event.goid)
        thread.off_ns = event.at_ns
        self._scheduler.step(
            thread,
            event.at_ns,
            StepKind.THREAD_OFF,
            goid=event.goid,
            stack=event.stack,
            other=event.cpu,
            word="preempted" if event.is_made else "",
        )

    def _thread_on(self, event: Event, thread: ReplayedThread) -> None:
        thread.off_ns, thread.on_ns = 0, event.at_ns
        self._scheduler.step(thread, event.at_ns, StepKind.THREAD_ON, other=event.cpu)

    def _call(self, event: Event, thread: ReplayedThread) -> None:
        """The thread sleeps in a system call of its goroutine."""
        g = thread.g
        is_same = g and g.goid == event.goid and g.state is ReplayedState.SYSCALL
        if is_same and thread.call == event.more:
            return  # the same call slept before
        p = thread.p if thread.p != NO_P else event.p
        holder = self._scheduler.holder(p)
        is_taken = holder and holder is not thread and _runs_one(holder, thread)
        if p == NO_P or is_taken:
            self.ignored += 1  # its P runs another goroutine already
            return
        goroutine = self._runs(event._replace(p=p), thread, event.goid)
        if goroutine:
            thread.call = event.more
            self._scheduler.enter_call(thread, event.at_ns, event.stack, inferred=False)

    # What follows from that.

    def _runner(self, event: Event, thread: ReplayedThread) -> ReplayedGoroutine | None:
        if event.by:
            return self._runs(event, thread, event.by)
        self._scheduler.vacate(thread)  # the thread looks for something to run
        return None

    def _runs(self, event: Event, thread: ReplayedThread, goid: int) -> ReplayedGoroutine | None:
        """Have the goroutine run on the thread at the time of the event; None if it can't."""
        g = self._scheduler.goroutines.get(goid)
        if g is None:
            g = self._sampled.first(goid, event.at_ns)
        is_there = thread.g is g and g.state is ReplayedState.RUNNING
        if is_there and event.p in (NO_P, thread.p):
            return g
        if g.state is ReplayedState.GONE or event.p == NO_P:
            self.ignored += 1
            return None
        if is_there:  # it has another P: it was in a system call that no event showed
            self._scheduler.enter_call(thread, thread.last_ns, 0, inferred=True)
        if g.state is ReplayedState.SYSCALL and thread.g is g and thread.p == event.p:
            self._scheduler.end_call(thread, max(thread.on_ns, thread.last_ns))
            return g
        self._scheduler.make_runnable(g, thread, event.at_ns)
        start_ns = min(event.at_ns, max(g.since_ns, thread.last_ns, thread.on_ns))
        self._scheduler.start(g, thread, event.p, start_ns, inferred=True)
        return g


def _runs_one(holder: ReplayedThread, thread: ReplayedThread) -> bool:
    """Whether a thread runs a goroutine, of which the other one could not take the P since.

    It could from a thread that lost its processor before the other got one: within a short system
    call, which no event showed.
    """
    is_off = holder.off_ns and holder.off_ns <= thread.on_ns
    return not is_off and holder.g is not None and holder.g.state is ReplayedState.RUNNING
