"""A scheduler of goroutines that does what chance decides, and the events that probes would see."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from ebpfprof.profile.model import Frame
from ebpfprof.timeline.events import (
    NO_ANNOTATION,
    NO_P,
    Annotation,
    Event,
    EventKind,
    Known,
)
from ebpfprof.timeline.model import StackCall, Timeline, TimelineGoroutine
from ebpfprof.timeline.replay import Replay
from ebpfprof.timeline.steps import TraceStep

REASONS = ("chan receive", "chan send", "select", "sync.Mutex.Lock", "IO wait", "sleep")
BEGIN_NS = 1_000_000_000


@dataclass
class Thread:
    tid: int
    p: int = NO_P
    goid: int = 0
    calls: int = 0


@dataclass
class SimulatedScheduler:
    """Some threads share fewer Ps; goroutines run, wait, are woken, end, and call the kernel."""

    random: Random
    ps: int = 3
    threads: int = 5
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now_ns = BEGIN_NS
        self.all_threads = [Thread(100 + n) for n in range(self.threads)]
        self.idle_ps = list(range(self.ps))
        self.waiting: list[int] = list(range(1, 21))
        self.runnable: list[int] = []
        self.calling: dict[int, Thread] = {}
        self.next_goid = 21
        self.next_task = 0
        self.regions: dict[int, list[Annotation]] = {}

    @property
    def known(self) -> dict[int, Known]:
        """What a sample at the beginning finds: all wait."""
        return {
            goid: Known(goid, BEGIN_NS, "waiting", "select", 7, 0, 0x1000, 0, 0)
            for goid in range(1, 21)
        }

    def run(self, steps: int) -> list[Event]:
        for _ in range(steps):
            self.now_ns += self.random.randint(1, 5000)
            self.step(self.random.choice(self.all_threads))
        return self.events

    def step(self, thread: Thread) -> None:
        if thread.goid in self.calling:
            self.end_call(thread)
        elif thread.goid:
            self.act(thread)
        elif self.runnable and (thread.p != NO_P or self.idle_ps):
            if thread.p == NO_P:
                thread.p = self.idle_ps.pop()
                self.add(EventKind.THREAD_ON, thread, p=NO_P)
            thread.goid = self.runnable.pop(0)
            self.add(EventKind.RUN, thread, goid=thread.goid, by=0)
        elif thread.p != NO_P:
            self.idle_ps.append(thread.p)
            thread.p = NO_P
            self.add(EventKind.THREAD_OFF, thread)
        elif self.waiting:  # as sysmon does: without a P
            goid = self.waiting.pop()
            self.runnable.append(goid)
            self.add(EventKind.NET_READY, thread, goid=goid, word="IO wait")

    def act(self, thread: Thread) -> None:
        goid = thread.goid
        choice = self.random.random()
        if choice < 0.3 and self.waiting:
            woken = self.waiting.pop(self.random.randrange(len(self.waiting)))
            self.runnable.append(woken)
            self.add(EventKind.READY, thread, goid=woken, by=goid, stack=3, word="select")
        elif choice < 0.6:
            word = self.random.choice(REASONS)
            self.add(EventKind.PARK, thread, goid=goid, by=goid, stack=7, word=word)
            self.waiting.append(goid)
            thread.goid = 0
        elif choice < 0.7:
            self.add(EventKind.YIELD, thread, goid=goid, by=goid, stack=7)
            self.runnable.append(goid)
            thread.goid = 0
        elif choice < 0.8:
            self.add(EventKind.CREATE, thread, goid=self.next_goid, by=goid, stack=3, more=0x1000)
            self.runnable.append(self.next_goid)
            self.next_goid += 1
        elif choice < 0.85:
            self.add(EventKind.EXIT, thread, goid=goid, by=goid)
            thread.goid = 0
        elif choice < 0.88:
            self.annotate(thread)
        elif choice < 0.92:
            kind = self.random.choice((EventKind.GC_BEGIN, EventKind.GC_END))
            self.add(kind, thread, by=goid)
        else:
            self.begin_call(thread)

    def annotate(self, thread: Thread) -> None:
        """Begins a task or a region of one, or ends the innermost region and perhaps its task."""
        goid = thread.goid
        open_regions = self.regions.setdefault(goid, [])
        if open_regions and self.random.random() < 0.5:
            self.add(EventKind.REGION_END, thread, goid=goid, by=goid, note=open_regions.pop())
            return
        task = self.random.randint(0, self.next_task)
        if self.random.random() < 0.3:
            self.next_task += 1
            note = Annotation(self.next_task, "task", task)
            self.add(EventKind.TASK_BEGIN, thread, goid=goid, by=goid, note=note)
        elif self.random.random() < 0.3:
            kind = self.random.choice((EventKind.TASK_END, EventKind.LOG))
            note = Annotation(task, "name", message="text")
            self.add(kind, thread, goid=goid, by=goid, note=note)
        else:
            open_regions.append(Annotation(task, f"region {self.random.randint(0, 2)}"))
            self.add(EventKind.REGION_BEGIN, thread, goid=goid, by=goid, note=open_regions[-1])

    def begin_call(self, thread: Thread) -> None:
        thread.calls += 1
        self.calling[thread.goid] = thread
        self.events.append(
            Event(
                *(self.now_ns, EventKind.THREAD_OFF, thread.goid, thread.goid, 7, thread.tid),
                thread.p,
                more=thread.calls,
                is_exit=True,
            )
        )
        if self.random.random() < 0.5:  # its P is taken from it
            self.idle_ps.append(thread.p)
            thread.p = NO_P

    def end_call(self, thread: Thread) -> None:
        del self.calling[thread.goid]
        self.add(EventKind.THREAD_ON, thread, p=NO_P)
        if thread.p == NO_P:
            self.runnable.append(thread.goid)
            thread.goid = 0

    def add(
        self,
        kind: EventKind,
        thread: Thread,
        *,
        goid: int = 0,
        by: int = 0,
        stack: int = 0,
        p: int | None = None,
        word: str = "",
        more: int = 0,
        note: Annotation = NO_ANNOTATION,
    ) -> None:
        p = thread.p if p is None else p
        self.events.append(
            Event(self.now_ns, kind, goid, by, stack, thread.tid, p, 0, word, more, note=note)
        )


def steps_of(events: list[Event], known: dict[int, Known]) -> tuple[list[TraceStep], Replay]:
    """The steps of a replay, and the replay that was ended."""
    replay = Replay(BEGIN_NS, known)
    for event in events:
        replay.take(event)
    replay.end(events[-1].at_ns if events else BEGIN_NS)
    return replay.taken(), replay


def timeline_of_steps(steps: list[TraceStep], end_ns: int) -> Timeline:
    """A timeline with names for the stacks of the simulation."""
    calls = (
        StackCall(0x1010, Frame("main.inner", "/src/main.go", 10, 8), 0x1010),
        StackCall(0x1020, Frame("main.outer", "/src/main.go", 20, 18), 0x1020),
    )
    goids = {step.goid for step in steps if step.goid}
    start = StackCall(0x1000, Frame("main.work", "/src/main.go", 5, 5), 0x1000)
    return Timeline(
        *(42, "simulated", "go1.27", BEGIN_NS, end_ns, 1_700_000_000_000_000_000, steps),
        {3: calls, 7: calls[1:]},
        {goid: TimelineGoroutine(goid, start, calls[1].frame, 1) for goid in goids},
        {100: "first"},
        {},
        {},
    )
