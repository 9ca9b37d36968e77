"""What was seen of a program, moment by moment: the input of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ebpfprof.profile.model import Label

NO_P: Final = -1
"""The id of no P."""


ANNOTATIONS: Final = frozenset({"TASK_BEGIN", "TASK_END", "REGION_BEGIN", "REGION_END", "LOG"})
"""What programs report by runtime/trace: names of EventKind, and of StepKind."""


class EventKind(Enum):
    """What happened to the goroutine `goid`; the thread runs the goroutine `by`."""

    PARK = auto()  # it begins to wait
    SUSPEND = auto()  # it waits until the garbage collector has seen its stack
    READY = auto()  # it was woken
    NET_READY = auto()  # what it waits for of the network is there
    RUN = auto()  # it runs from now on
    CREATE = auto()
    EXIT = auto()
    YIELD = auto()  # it goes back to a run queue by itself
    PREEMPT = auto()  # it is made to
    SWITCH = auto()  # it hands over to the goroutine `more` of its coroutine
    GC_BEGIN = auto()
    GC_END = auto()
    STOP_WORLD = auto()
    START_WORLD = auto()
    ASSIST = auto()  # it begins to mark for the garbage collector
    ASSIST_END = auto()
    THREAD_OFF = auto()  # the kernel takes the processor from the thread
    THREAD_ON = auto()
    THREAD_WAKE = auto()  # the thread is woken: see Event
    TASK_BEGIN = auto()  # the goroutine begins a task of the program (runtime/trace)
    TASK_END = auto()
    REGION_BEGIN = auto()
    REGION_END = auto()
    LOG = auto()

    @property
    def is_annotation(self) -> bool:
        """Whether the program itself reports it, by runtime/trace."""
        return self.name in ANNOTATIONS


class Annotation(NamedTuple):
    """What a program reports by runtime/trace.

    `task` is the id of the task, 0 for none, `parent` that of the task which it is a part of.
    `name` is the type of a task or region, or the category of a message.
    """

    task: int = 0
    name: str = ""
    parent: int = 0
    message: str = ""


NO_ANNOTATION: Final = Annotation()


class Event(NamedTuple):
    """One event. Times are CLOCK_MONOTONIC, stacks keys of Timeline.stacks, 0 for none.

    `word` is the reason of a wait, or why the world stops. `more` is of CREATE the entry of the new
    goroutine's function, of READY its g.trackingSeq, of SWITCH the goid of the other goroutine, of
    THREAD_OFF in a system call the number of that. `is_made`: it was preempted; of SWITCH, that the
    other one begins. `is_exit`: of SWITCH, that it ends; of THREAD_OFF, that the goroutine is in a
    system call. `on` is of PARK a key of Timeline.objects, 0 for none: what the goroutine waits
    for. THREAD_WAKE is by the thread `more`, of a process with the name `word`: of the same one if
    `is_exit`; `is_made`: an interrupt did it while that thread ran. `note` is of annotations.
    """

    at_ns: int
    kind: EventKind
    goid: int = 0
    by: int = 0
    stack: int = 0
    tid: int = 0
    p: int = NO_P
    cpu: int = 0
    word: str = ""
    more: int = 0
    is_made: bool = False
    is_exit: bool = False
    labels: int = 0
    on: int = 0
    note: Annotation = NO_ANNOTATION


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a goroutine from a sample of all of them, at `at_ns`.

    `state` is "waiting", "runnable", "running" or "syscall", `word` the reason of a wait, `stack` a
    key of Timeline.stacks, `sequence` its g.trackingSeq. `tid` and `p` are where it runs, or is in
    a system call (then without P); 0 and NO_P if that is not known. `on` is as of an Event.
    """

    goid: int
    at_ns: int
    state: str
    word: str
    stack: int
    sequence: int
    start_pc: int
    created_pc: int
    parent: int
    tid: int = 0
    p: int = NO_P
    labels: tuple[Label, ...] = field(default=())
    on: int = 0
