"""Replays events and tells what goroutines, Ps and threads did, without contradiction.

Not every change is seen: who begins to run is told by what a thread does later, short system calls
by nothing, and events may be lost. The replay keeps the state of all, and puts in what must have
been, as early as it can have been: then each step follows from those before it, as readers of
traces demand (internal/trace/order.go, Go 1.23 on).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.timeline.events import NO_P, Event, EventKind, Known
from ebpfprof.timeline.machine import Goroutine, Machine, State, Thread
from ebpfprof.timeline.steps import Step, StepKind

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping

NOT_RECORDED: Final = "not recorded"
"""The reason of a wait in place of what a goroutine did while nothing was recorded."""


class Replay:
    """Takes events in the order of their times, and has the steps."""

    def __init__(self, begin_ns: int, known: Mapping[int, Known]) -> None:
        """The recording began at `begin_ns`; `known` are goroutines of a look, by goid."""
        self._machine = Machine(begin_ns)
        self.ignored = 0
        """Events that contradict all that is known: others were lost before."""
        self._known = known
        self._collects = False
        self._stopped_by = 0
        self._assists: set[int] = set()
        self._takes: dict[EventKind, Callable[[Event, Thread], None]] = {
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
            EventKind.GC_BEGIN: self._gc,
            EventKind.GC_END: self._gc,
            EventKind.STOP_WORLD: self._world,
            EventKind.START_WORLD: self._world,
            EventKind.ASSIST: self._assist,
            EventKind.ASSIST_END: self._assist,
            EventKind.THREAD_OFF: self._thread_off,
            EventKind.THREAD_ON: self._thread_on,
        }

    @property
    def inferred(self) -> Counter[StepKind]:
        """How many steps nobody saw, by kind."""
        return self._machine.inferred

    def taken(self) -> list[Step]:
        """The steps that were found since the last call; those of one thread are in order."""
        steps, self._machine.steps = self._machine.steps, []
        return steps

    def take(self, event: Event) -> None:
        """Go on by one event, which is not earlier than those before."""
        thread = self._machine.thread(event.tid)
        self._takes[event.kind](event, thread)

    def end(self, at_ns: int) -> None:
        """End the replay: system calls that are over by then are."""
        for thread in self._machine.threads.values():
            g = thread.g
            if g and g.state is State.SYSCALL and not thread.off_ns and thread.p != NO_P:
                self._machine.end_call(thread, min(at_ns, max(thread.on_ns, thread.last_ns)))
        for known in self._known.values():
            if known.goid not in self._machine.goroutines:
                self._untold(known)

    def pause(self, begin_ns: int, end_ns: int, known: Mapping[int, Known]) -> None:
        """Nothing was recorded between two times; `known` are the goroutines afterwards.

        What goroutines did meanwhile becomes a wait that is NOT_RECORDED, unless both sides of the
        pause show the same wait.
        """
        machine = self._machine
        for thread in machine.threads.values():
            if thread.g and thread.g.state is State.SYSCALL:
                if thread.p == NO_P:
                    machine.leave_call(thread, begin_ns)
                else:
                    machine.end_call(thread, begin_ns)
            if thread.g:
                machine.block(thread, begin_ns, NOT_RECORDED, 0, inferred=True)
        free = next((each for each in machine.threads.values() if each.p != NO_P), None)
        if free:
            for g in tuple(machine.goroutines.values()):
                self._hide(g, free, begin_ns, known)
        for thread in machine.threads.values():
            thread.on_ns = thread.off_ns = thread.left = 0
            thread.last_ns = max(thread.last_ns, end_ns)
        self._known, machine.begin_ns = known, end_ns
        machine.add(Step(begin_ns, StepKind.GAP, other=end_ns))

    def _hide(self, g: Goroutine, thread: Thread, at_ns: int, known: Mapping[int, Known]) -> None:
        """Have a goroutine wait for what was not recorded, or end: by a thread with a free P."""
        if g.state is State.GONE or g.word == NOT_RECORDED:
            return
        after = known.get(g.goid)
        is_same = after and after.state == State.WAITING.value and after.word == g.word
        if g.state is State.WAITING and (is_same or not known):
            return
        self._machine.make_runnable(g, thread, at_ns)
        self._machine.start(g, thread, thread.p, at_ns, inferred=True)
        if after or not known:
            self._machine.block(thread, at_ns, NOT_RECORDED, 0, inferred=True)
        else:
            self._machine.destroy(thread, at_ns)

    def _untold(self, known: Known) -> None:
        """No event tells of a goroutine: it did the same all the time."""
        g = self._as_known(known)
        thread = self._machine.threads.get(known.tid)
        is_free = thread is None or (thread.g is None and thread.last_ns <= self._machine.begin_ns)
        runs = known.state == State.RUNNING.value and known.p != NO_P and known.tid
        if runs and is_free and not self._machine.holder(known.p):
            thread = self._machine.thread(known.tid)
            self._machine.start(g, thread, known.p, thread.last_ns, inferred=True)

    # What events tell.

    def _park(self, event: Event, thread: Thread) -> None:
        if self._runs(event, thread, event.goid):
            self._machine.block(thread, event.at_ns, event.word, event.stack, labels=event.labels)

    def _ready(self, event: Event, thread: Thread) -> None:
        self._runner(event, thread)
        g = self._machine.goroutines.get(event.goid)
        if g is None:
            known = self._known.get(event.goid)
            stack = known.stack if known and known.sequence == event.more else 0
            g = self._machine.begin_with(event.goid, State.WAITING, event.word, stack)
        elif g.state is State.RUNNING and g.thread and g.thread is not thread:
            # That it parked was lost.
            self._machine.block(g.thread, g.thread.last_ns, event.word, 0, inferred=True)
        if g.state is not State.WAITING:
            self.ignored += 1
            return
        self._machine.unblock(g, thread, event.at_ns, event.stack, event.by)

    def _run(self, event: Event, thread: Thread) -> None:
        g = self._machine.goroutines.get(event.goid) or self._first(event.goid, event.at_ns)
        if g.state is State.GONE or event.p == NO_P:
            self.ignored += 1
            return
        self._machine.make_runnable(g, thread, event.at_ns)
        self._machine.start(g, thread, event.p, event.at_ns, inferred=False)

    def _create(self, event: Event, thread: Thread) -> None:
        self._runner(event, thread)
        if event.goid in self._machine.goroutines or (thread.p == NO_P and event.p == NO_P):
            self.ignored += 1
            return
        if thread.p == NO_P:
            self._machine.get_p(thread, event.p, event.at_ns)
        self._machine.goroutines[event.goid] = Goroutine(event.goid, State.RUNNABLE, event.at_ns)
        self._machine.step(
            *(thread, event.at_ns, StepKind.CREATE),
            goid=event.goid,
            stack=event.stack,
            by=event.by,
            other=event.more,
        )

    def _exit(self, event: Event, thread: Thread) -> None:
        g = self._machine.goroutines.get(event.goid)
        if g and g.state is State.GONE:  # by SWITCH
            return
        if self._runs(event, thread, event.goid):
            self._machine.destroy(thread, event.at_ns)

    def _yield(self, event: Event, thread: Thread) -> None:
        if self._runs(event, thread, event.goid):
            is_made = event.is_made or event.kind is EventKind.PREEMPT
            word = "preempted" if is_made else "runtime.Gosched"
            self._machine.stop(thread, event.at_ns, word, event.stack, inferred=False)

    def _switch(self, event: Event, thread: Thread) -> None:
        g = self._runs(event, thread, event.goid)
        if not g:
            return
        p = thread.p
        if event.is_exit:
            self._machine.destroy(thread, event.at_ns)
        else:
            self._machine.block(thread, event.at_ns, "coroutine", event.stack)
        if event.more:
            other = self._machine.goroutines.get(event.more)
            if other is None:
                other = self._machine.begin_with(event.more, State.WAITING, "coroutine")
            if other.state is State.WAITING:
                self._machine.unblock(other, thread, event.at_ns, 0, event.goid)
            if other.state is State.RUNNABLE:
                self._machine.start(other, thread, p, event.at_ns, inferred=False)

    def _gc(self, event: Event, thread: Thread) -> None:
        begins = event.kind is EventKind.GC_BEGIN
        if self._runner(event, thread) and begins != self._collects:
            self._collects = begins
            self._machine.step(
                thread, event.at_ns, StepKind.GC_BEGIN if begins else StepKind.GC_END
            )

    def _world(self, event: Event, thread: Thread) -> None:
        if not (g := self._runner(event, thread)):
            return
        if event.kind is EventKind.STOP_WORLD and not self._stopped_by:
            self._stopped_by = g.goid
            self._machine.step(
                thread, event.at_ns, StepKind.STOP_WORLD, goid=g.goid, word=event.word
            )
        elif event.kind is EventKind.START_WORLD and self._stopped_by == g.goid:
            self._stopped_by = 0
            self._machine.step(thread, event.at_ns, StepKind.START_WORLD, goid=g.goid)

    def _assist(self, event: Event, thread: Thread) -> None:
        if not (g := self._runner(event, thread)):
            return
        begins = event.kind is EventKind.ASSIST
        if begins == (g.goid in self._assists):
            return
        self._assists ^= {g.goid}
        kind = StepKind.ASSIST if begins else StepKind.ASSIST_END
        self._machine.step(thread, event.at_ns, kind, goid=g.goid)

    def _thread_off(self, event: Event, thread: Thread) -> None:
        if event.is_exit:
            self._call(event, thread)
        elif event.goid == 0 and not event.is_made and thread.p != NO_P:
            self._machine.vacate(thread)
            if thread.p != NO_P:  # it found nothing to run, and sleeps
                self._machine.drop_p(thread, event.at_ns)
        elif event.goid not in (0, thread.left) and event.p != NO_P:
            self._runs(event, thread, event.goid)
        thread.off_ns = event.at_ns
        self._machine.step(
            thread,
            event.at_ns,
            StepKind.THREAD_OFF,
            goid=event.goid,
            other=event.cpu,
            word="preempted" if event.is_made else "",
        )

    def _thread_on(self, event: Event, thread: Thread) -> None:
        thread.off_ns, thread.on_ns = 0, event.at_ns
        self._machine.step(thread, event.at_ns, StepKind.THREAD_ON, other=event.cpu)

    def _call(self, event: Event, thread: Thread) -> None:
        """The thread sleeps in a system call of its goroutine."""
        g = thread.g
        is_same = g and g.goid == event.goid and g.state is State.SYSCALL
        if is_same and thread.call == event.more:
            return  # the same call slept before
        p = thread.p if thread.p != NO_P else event.p
        holder = self._machine.holder(p)
        is_taken = holder and holder is not thread and holder.g
        if p == NO_P or (is_taken and is_taken.state is State.RUNNING):
            self.ignored += 1  # its P runs another goroutine already
            return
        found = self._runs(event._replace(p=p), thread, event.goid)
        if found:
            thread.call = event.more
            self._machine.enter_call(thread, event.at_ns, event.stack, inferred=False)

    # What follows from that.

    def _runner(self, event: Event, thread: Thread) -> Goroutine | None:
        if event.by:
            return self._runs(event, thread, event.by)
        self._machine.vacate(thread)  # the thread looks for something to run
        return None

    def _runs(self, event: Event, thread: Thread, goid: int) -> Goroutine | None:
        """Have the goroutine run on the thread at the time of the event; None if it can't."""
        g = self._machine.goroutines.get(goid)
        if g is None:
            g = self._first(goid, event.at_ns)
        is_there = thread.g is g and g.state is State.RUNNING
        if is_there and event.p in (NO_P, thread.p):
            return g
        if g.state is State.GONE or event.p == NO_P:
            self.ignored += 1
            return None
        if is_there:  # it has another P: it was in a system call that nobody saw
            self._machine.enter_call(thread, thread.last_ns, 0, inferred=True)
        if g.state is State.SYSCALL and thread.g is g and thread.p == event.p:
            self._machine.end_call(thread, max(thread.on_ns, thread.last_ns))
            return g
        self._machine.make_runnable(g, thread, event.at_ns)
        start_ns = min(event.at_ns, max(g.since_ns, thread.last_ns, thread.on_ns))
        self._machine.start(g, thread, event.p, start_ns, inferred=True)
        return g

    def _first(self, goid: int, at_ns: int) -> Goroutine:
        """A goroutine of which an event of this time is the first to tell."""
        known = self._known.get(goid)
        if known is None or known.at_ns > at_ns:  # the look came later
            return self._machine.begin_with(goid, State.RUNNABLE)
        return self._as_known(known)

    def _as_known(self, known: Known) -> Goroutine:
        """A goroutine as the look at all of them found it."""
        machine = self._machine
        if known.state == State.WAITING.value:
            return machine.begin_with(known.goid, State.WAITING, known.word, known.stack)
        thread = machine.thread(known.tid) if known.tid else None
        is_free = thread and thread.g is None
        if thread and is_free and known.state == State.SYSCALL.value and thread.p == NO_P:
            return machine.begin_in_call(known.goid, thread, known.stack)
        return machine.begin_with(known.goid, State.RUNNABLE)
