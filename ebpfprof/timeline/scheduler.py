"""The state of all goroutines, Ps and threads of a program, and the changes that it can take.

What must have been is put in, as early as it can have been: then each step follows from those
before it, as readers of traces demand (internal/trace/order.go, Go 1.23 on).
"""

from __future__ import annotations

from ebpfprof.timeline.events import NO_P
from ebpfprof.timeline.replayed import ReplayedGoroutine, ReplayedState, ReplayedThread
from ebpfprof.timeline.step_log import StepLog
from ebpfprof.timeline.steps import StepKind, TraceStep


class Scheduler(StepLog):
    """Makes steps of what goroutines are said to do, and of what must have been before."""

    def __init__(self, begin_ns: int) -> None:
        """Nothing is known before `begin_ns`."""
        super().__init__(begin_ns)
        self.goroutines: dict[int, ReplayedGoroutine] = {}
        self._holders: dict[int, ReplayedThread | None] = {}  # of each P

    def holder(self, p: int) -> ReplayedThread | None:
        """The thread that has the P; None if none has it."""
        return self._holders.get(p)

    def make_runnable(self, g: ReplayedGoroutine, thread: ReplayedThread, at_ns: int) -> None:
        """Whatever it did: it is about to run on the thread."""
        if g.thread:
            self.vacate(g.thread)
        if g.state is ReplayedState.WAITING:
            # Parking failed: it continued at once; or no event shows what woke it.
            never_left = thread.left == g.goid
            when_ns = thread.last_ns if never_left else max(g.since_ns, thread.last_ns)
            if not never_left:
                when_ns = min(at_ns, max(when_ns, thread.on_ns))
            self.unblock(g, thread, when_ns, 0, 0, inferred=True)

    def start(
        self, g: ReplayedGoroutine, thread: ReplayedThread, p: int, at_ns: int, *, inferred: bool
    ) -> None:
        """Have it run on the thread with the P from `at_ns` on, whatever these did before."""
        self.vacate(thread)
        at_ns = self.get_p(thread, p, at_ns)
        g.state, g.thread, g.since_ns = ReplayedState.RUNNING, thread, at_ns
        thread.g, thread.left = g, 0
        self.step(thread, at_ns, StepKind.START, goid=g.goid, p=p, inferred=inferred)

    def vacate(self, thread: ReplayedThread) -> None:
        """The thread's goroutine, if any, left it without an event.

        All other ways to leave are seen: it was in a system call, and its P was gone afterwards.
        """
        if thread.g is None:
            return
        if thread.g.state is not ReplayedState.SYSCALL:
            self.enter_call(thread, thread.last_ns, 0, inferred=True)
        self.leave_call(thread, max(thread.on_ns, thread.last_ns))

    def get_p(self, thread: ReplayedThread, p: int, at_ns: int) -> int:
        """Take the P from the thread that has it, and give it to this one.

        Returns when, which may be later than `at_ns`.
        """
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

    def _take_p(self, holder: ReplayedThread, thread: ReplayedThread, at_ns: int) -> None:
        """Take its P from a thread."""
        if holder.g and holder.g.state is ReplayedState.RUNNING:
            self.enter_call(holder, holder.last_ns, 0, inferred=True)
        if holder.g:
            self._steal(holder, thread, at_ns)
        else:
            slept_ns = holder.off_ns or at_ns
            self.drop_p(holder, min(at_ns, max(slept_ns, holder.last_ns)))

    def _steal(self, holder: ReplayedThread, thread: ReplayedThread, at_ns: int) -> None:
        p, holder.p = holder.p, NO_P
        self._holders[p] = None
        self.step(thread, at_ns, StepKind.P_STEAL, p=p, other=holder.tid, inferred=True)

    def drop_p(self, thread: ReplayedThread, at_ns: int) -> None:
        """The thread gives up its P."""
        if thread.g and thread.g.state is ReplayedState.SYSCALL:
            self._steal(thread, thread, at_ns)
            return
        p, thread.p = thread.p, NO_P
        self._holders[p] = None
        self.step(thread, at_ns, StepKind.P_STOP, p=p, inferred=True)

    def enter_call(self, thread: ReplayedThread, at_ns: int, stack: int, *, inferred: bool) -> None:
        """The thread's goroutine enters a system call."""
        g = thread.g
        assert g
        g.state, g.since_ns = ReplayedState.SYSCALL, at_ns
        self.step(
            thread, at_ns, StepKind.SYSCALL, goid=g.goid, p=thread.p, stack=stack, inferred=inferred
        )

    def end_call(self, thread: ReplayedThread, at_ns: int) -> None:
        """It is over, and the thread still has its P."""
        g = thread.g
        assert g
        g.state, g.since_ns = ReplayedState.RUNNING, at_ns
        self.step(thread, at_ns, StepKind.SYSCALL_END, goid=g.goid, p=thread.p)

    def leave_call(self, thread: ReplayedThread, at_ns: int) -> None:
        """It is over, and the goroutine continues elsewhere, or with another P."""
        g = thread.g
        assert g
        if thread.p != NO_P:
            self._steal(thread, thread, at_ns)
        self.step(thread, at_ns, StepKind.SYSCALL_LOST, goid=g.goid)
        g.state, g.since_ns, g.thread = ReplayedState.RUNNABLE, thread.last_ns, None
        thread.g = None

    def stop(
        self, thread: ReplayedThread, at_ns: int, word: str, stack: int, *, inferred: bool
    ) -> None:
        """The thread's goroutine goes back to a run queue."""
        g = self._leaves(thread, ReplayedState.RUNNABLE, at_ns)
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
        thread: ReplayedThread,
        at_ns: int,
        word: str,
        stack: int,
        *,
        labels: int = 0,
        on: int = 0,
        inferred: bool = False,
    ) -> None:
        """The thread's goroutine begins to wait."""
        g = self._leaves(thread, ReplayedState.WAITING, at_ns)
        g.word = word
        self.step(
            *(thread, at_ns, StepKind.BLOCK),
            goid=g.goid,
            p=thread.p,
            stack=stack,
            word=word,
            labels=labels,
            on=on,
            inferred=inferred,
        )

    def destroy(self, thread: ReplayedThread, at_ns: int) -> None:
        """The thread's goroutine ends."""
        g = self._leaves(thread, ReplayedState.GONE, at_ns)
        self.step(thread, at_ns, StepKind.DESTROY, goid=g.goid, p=thread.p)

    def _leaves(
        self, thread: ReplayedThread, state: ReplayedState, at_ns: int
    ) -> ReplayedGoroutine:
        g = thread.g
        assert g
        g.state, g.since_ns, g.thread = state, max(at_ns, thread.last_ns), None
        thread.g, thread.left = None, g.goid
        return g

    def unblock(
        self,
        g: ReplayedGoroutine,
        thread: ReplayedThread,
        at_ns: int,
        stack: int,
        by: int,
        *,
        word: str = "",
        inferred: bool = False,
    ) -> None:
        """A waiting goroutine becomes runnable; the thread does that, for the goroutine `by`."""
        self.step(
            *(thread, at_ns, StepKind.UNBLOCK),
            goid=g.goid,
            stack=stack,
            word=word,
            by=by,
            inferred=inferred,
        )
        g.state, g.since_ns = ReplayedState.RUNNABLE, thread.last_ns

    def begin_with(
        self, goid: int, state: ReplayedState, word: str = "", stack: int = 0, on: int = 0
    ) -> ReplayedGoroutine:
        """A goroutine that was there before: ReplayedState.WAITING or RUNNABLE."""
        g = self.goroutines[goid] = ReplayedGoroutine(goid, state, self.begin_ns, word=word)
        self.add(
            TraceStep(
                *(self.begin_ns, StepKind.IS),
                goid=goid,
                stack=stack,
                word=word,
                state=state.value,
                on=on,
            )
        )
        return g

    def begin_in_call(self, goid: int, thread: ReplayedThread, stack: int) -> ReplayedGoroutine:
        """A goroutine that was in a system call on this thread, which runs no other one."""
        g = self.goroutines[goid] = ReplayedGoroutine(
            goid, ReplayedState.SYSCALL, thread.last_ns, thread
        )
        thread.g = g
        self.step(thread, thread.last_ns, StepKind.IS, goid=goid, stack=stack, state=g.state.value)
        return g
