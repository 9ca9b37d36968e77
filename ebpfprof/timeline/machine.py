"""The state of all goroutines, Ps and threads of a program, and the changes that it can take.

What must have been is put in, as early as it can have been: then each step follows from those
before it, as readers of traces demand (internal/trace/order.go, Go 1.23 on).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from ebpfprof.timeline.events import NO_P
from ebpfprof.timeline.steps import Step, StepKind


class State(Enum):
    """What a goroutine does."""

    RUNNABLE = "runnable"
    RUNNING = "running"
    WAITING = "waiting"
    SYSCALL = "syscall"
    GONE = "gone"


@dataclass(slots=True)
class Goroutine:
    """A goroutine, and since when it is in its state."""

    goid: int
    state: State
    since_ns: int
    thread: Thread | None = None
    """Where it runs or is in a system call."""
    word: str = ""
    """The reason of its wait."""


@dataclass(slots=True)
class Thread:
    """A thread: M, as Go calls it."""

    tid: int
    last_ns: int
    """Of its last step."""
    p: int = NO_P
    g: Goroutine | None = None
    on_ns: int = 0
    """When it got a processor last."""
    off_ns: int = 0
    """Since when it has none; 0 while it has one."""
    call: int = 0
    """The number of its system call."""
    left: int = 0
    """The goroutine that stopped to run here last, until another begins to."""


class Machine:
    """Makes steps: times of a thread never go back."""

    def __init__(self, begin_ns: int) -> None:
        """Nothing is known before `begin_ns`."""
        self.steps: list[Step] = []
        """What is found since they were last taken away."""
        self.inferred: Counter[StepKind] = Counter()
        """How many steps nobody saw, by kind."""
        self.begin_ns = begin_ns
        self.goroutines: dict[int, Goroutine] = {}
        self.threads: dict[int, Thread] = {}
        self._holders: dict[int, Thread | None] = {}  # of each P

    def holder(self, p: int) -> Thread | None:
        """The thread that has the P; None if none has it."""
        return self._holders.get(p)

    def make_runnable(self, g: Goroutine, thread: Thread, at_ns: int) -> None:
        """Whatever it did: it is about to run on the thread."""
        if g.state is State.RUNNING and g.thread:
            self.stop(g.thread, g.thread.last_ns, "", 0, inferred=True)
        if g.state is State.SYSCALL and g.thread:
            before = g.thread
            self.leave_call(before, min(at_ns, max(before.on_ns, before.last_ns)))
        if g.state is State.WAITING:
            # Parking failed: it went on at once; or it was woken in a way that nobody sees.
            never_left = thread.left == g.goid
            when_ns = thread.last_ns if never_left else max(g.since_ns, thread.last_ns)
            if not never_left:
                when_ns = min(at_ns, max(when_ns, thread.on_ns))
            self.unblock(g, thread, when_ns, 0, 0, inferred=True)

    def start(self, g: Goroutine, thread: Thread, p: int, at_ns: int, *, inferred: bool) -> None:
        """Have it run on the thread with the P from `at_ns` on, whatever these did before."""
        self.vacate(thread)
        at_ns = self.get_p(thread, p, at_ns)
        g.state, g.thread, g.since_ns = State.RUNNING, thread, at_ns
        thread.g, thread.left = g, 0
        self.step(thread, at_ns, StepKind.START, goid=g.goid, p=p, inferred=inferred)

    def vacate(self, thread: Thread) -> None:
        """Whatever goroutine the thread had, it has none any more: nobody saw it leave."""
        if thread.g is None:
            return
        if thread.g.state is State.SYSCALL:
            self.leave_call(thread, max(thread.on_ns, thread.last_ns))
        else:
            self.stop(thread, thread.last_ns, "", 0, inferred=True)

    def get_p(self, thread: Thread, p: int, at_ns: int) -> int:
        """Give the thread the P, whoever has it; returns when, which may be later than `at_ns`."""
        if thread.p == p:
            return at_ns
        if thread.p != NO_P:
            self.drop_p(thread, at_ns)
        is_known = p in self._holders
        holder = self._holders.get(p)
        if holder:
            at_ns = max(at_ns, holder.last_ns)
            self._take_p(holder, thread, at_ns)
        self._holders[p], thread.p = thread, p
        kind = StepKind.P_START if is_known else StepKind.P_RUNS
        self.step(thread, at_ns, kind, p=p, inferred=True)
        return at_ns

    def _take_p(self, holder: Thread, thread: Thread, at_ns: int) -> None:
        """Take its P from a thread."""
        if holder.g and holder.g.state is State.RUNNING:
            self.enter_call(holder, holder.last_ns, 0, inferred=True)
        if holder.g:
            self._steal(holder, thread, at_ns)
        else:
            slept_ns = holder.off_ns or at_ns
            self.drop_p(holder, min(at_ns, max(slept_ns, holder.last_ns)))

    def _steal(self, holder: Thread, thread: Thread, at_ns: int) -> None:
        p, holder.p = holder.p, NO_P
        self._holders[p] = None
        self.step(thread, at_ns, StepKind.P_STEAL, p=p, other=holder.tid, inferred=True)

    def drop_p(self, thread: Thread, at_ns: int) -> None:
        """The thread gives up its P."""
        if thread.g and thread.g.state is State.SYSCALL:
            self._steal(thread, thread, at_ns)
            return
        p, thread.p = thread.p, NO_P
        self._holders[p] = None
        self.step(thread, at_ns, StepKind.P_STOP, p=p, inferred=True)

    def enter_call(self, thread: Thread, at_ns: int, stack: int, *, inferred: bool) -> None:
        """The thread's goroutine enters a system call."""
        g = thread.g
        assert g
        g.state, g.since_ns = State.SYSCALL, at_ns
        self.step(
            thread, at_ns, StepKind.SYSCALL, goid=g.goid, p=thread.p, stack=stack, inferred=inferred
        )

    def end_call(self, thread: Thread, at_ns: int) -> None:
        """It is over, and the thread still has its P."""
        g = thread.g
        assert g
        g.state, g.since_ns = State.RUNNING, at_ns
        self.step(thread, at_ns, StepKind.SYSCALL_END, goid=g.goid, p=thread.p)

    def leave_call(self, thread: Thread, at_ns: int) -> None:
        """It is over, and the goroutine goes on elsewhere, or with another P."""
        g = thread.g
        assert g
        if thread.p != NO_P:
            self._steal(thread, thread, at_ns)
        self.step(thread, at_ns, StepKind.SYSCALL_LOST, goid=g.goid)
        g.state, g.since_ns, g.thread = State.RUNNABLE, thread.last_ns, None
        thread.g = None

    def stop(self, thread: Thread, at_ns: int, word: str, stack: int, *, inferred: bool) -> None:
        """The thread's goroutine goes back to a run queue."""
        g = self._leaves(thread, State.RUNNABLE, at_ns)
        self.step(
            *(thread, at_ns, StepKind.STOP),
            goid=g.goid,
            p=thread.p,
            stack=stack,
            word=word,
            inferred=inferred,
        )

    def block(
        self,
        thread: Thread,
        at_ns: int,
        word: str,
        stack: int,
        *,
        labels: int = 0,
        inferred: bool = False,
    ) -> None:
        """The thread's goroutine begins to wait."""
        g = self._leaves(thread, State.WAITING, at_ns)
        g.word = word
        self.step(
            *(thread, at_ns, StepKind.BLOCK),
            goid=g.goid,
            p=thread.p,
            stack=stack,
            word=word,
            labels=labels,
            inferred=inferred,
        )

    def destroy(self, thread: Thread, at_ns: int) -> None:
        """The thread's goroutine ends."""
        g = self._leaves(thread, State.GONE, at_ns)
        self.step(thread, at_ns, StepKind.DESTROY, goid=g.goid, p=thread.p)

    def _leaves(self, thread: Thread, state: State, at_ns: int) -> Goroutine:
        g = thread.g
        assert g
        g.state, g.since_ns, g.thread = state, max(at_ns, thread.last_ns), None
        thread.g, thread.left = None, g.goid
        return g

    def unblock(
        self,
        g: Goroutine,
        thread: Thread,
        at_ns: int,
        stack: int,
        by: int,
        *,
        inferred: bool = False,
    ) -> None:
        """A waiting goroutine becomes runnable; the thread does that, for the goroutine `by`."""
        self.step(
            *(thread, at_ns, StepKind.UNBLOCK),
            goid=g.goid,
            stack=stack,
            by=by,
            inferred=inferred,
        )
        g.state, g.since_ns = State.RUNNABLE, thread.last_ns

    def begin_with(self, goid: int, state: State, word: str = "", stack: int = 0) -> Goroutine:
        """A goroutine that was there before: State.WAITING or RUNNABLE."""
        g = self.goroutines[goid] = Goroutine(goid, state, self.begin_ns, word=word)
        self.add(
            Step(self.begin_ns, StepKind.IS, goid=goid, stack=stack, word=word, state=state.value)
        )
        return g

    def begin_in_call(self, goid: int, thread: Thread, stack: int) -> Goroutine:
        """A goroutine that was in a system call on this thread, which runs no other one."""
        g = self.goroutines[goid] = Goroutine(goid, State.SYSCALL, thread.last_ns, thread)
        thread.g = g
        self.step(thread, thread.last_ns, StepKind.IS, goid=goid, stack=stack, state=g.state.value)
        return g

    def thread(self, tid: int) -> Thread:
        """The thread with this id, which may be new."""
        found = self.threads.get(tid)
        if found is None:
            found = self.threads[tid] = Thread(tid, self.begin_ns)
        return found

    def step(
        self,
        thread: Thread,
        at_ns: int,
        kind: StepKind,
        *,
        goid: int = 0,
        p: int = NO_P,
        stack: int = 0,
        word: str = "",
        by: int = 0,
        other: int = 0,
        labels: int = 0,
        inferred: bool = False,
        state: str = "",
    ) -> None:
        """Add a step of the thread, not before its last one."""
        at_ns = max(at_ns, thread.last_ns)
        thread.last_ns = at_ns
        if inferred:
            self.inferred[kind] += 1
        self.add(
            Step(at_ns, kind, thread.tid, goid, p, stack, word, by, other, labels, inferred, state)
        )

    def add(self, step: Step) -> None:
        """Add a step that is of no thread."""
        self.steps.append(step)
