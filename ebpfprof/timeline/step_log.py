"""The steps that a replay finds, in the order of each thread."""

from __future__ import annotations

from collections import Counter

from ebpfprof.timeline.events import NO_ANNOTATION, NO_P, Annotation
from ebpfprof.timeline.replayed import ReplayedThread
from ebpfprof.timeline.steps import StepKind, TraceStep


class StepLog:
    """Collects steps: times of a thread never go back."""

    def __init__(self, begin_ns: int) -> None:
        """Nothing is known before `begin_ns`."""
        self.steps: list[TraceStep] = []
        """The steps found since Replay.taken() removed them last."""
        self.inferred: Counter[StepKind] = Counter()
        """The number of inferred steps, by kind."""
        self.begin_ns = begin_ns
        self.threads: dict[int, ReplayedThread] = {}

    def thread(self, tid: int) -> ReplayedThread:
        """The thread with this id, which may be new."""
        thread = self.threads.get(tid)
        if thread is None:
            thread = self.threads[tid] = ReplayedThread(tid, self.begin_ns)
        return thread

    def step(
        self,
        thread: ReplayedThread,
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
        on: int = 0,
        note: Annotation = NO_ANNOTATION,
    ) -> None:
        """Add a step of the thread, not before its last one."""
        at_ns = max(at_ns, thread.last_ns)
        thread.last_ns = at_ns
        if inferred:
            self.inferred[kind] += 1
        self.add(
            TraceStep(
                *(at_ns, kind, thread.tid, goid, p, stack, word, by, other, labels),
                *(inferred, state, on, note),
            )
        )

    def add(self, step: TraceStep) -> None:
        """Add a step that is of no thread."""
        self.steps.append(step)
