"""The steps of a replay: what happened, without contradictions, missing steps inferred."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from ebpfprof.timeline.events import ANNOTATIONS, NO_ANNOTATION, Annotation

NO_THREAD: Final = 0
"""Instead of a thread's id, where none is known."""
BY_NETWORK: Final = "woken by the network"
BY_TIMER: Final = "woken by a timer"
"""Words of UNBLOCK; of other wakes "", and the one that woke is in `by`, if it is known."""


class StepKind(Enum):
    """A change. On a thread, a P runs a goroutine: none without P, and each of one at a time."""

    P_RUNS = auto()  # the first that is known of a P: it is the thread's
    P_START = auto()  # an idle P gets the thread
    P_STOP = auto()  # the thread's P becomes idle
    P_STEAL = auto()  # the P of the thread `other` in a system call becomes idle
    IS = auto()  # the first that is known of a goroutine: that it is in `state`
    CREATE = auto()  # by the thread's goroutine, if it has one; it is runnable
    START = auto()  # a runnable goroutine runs
    STOP = auto()  # the running goroutine is runnable again
    BLOCK = auto()  # the running goroutine waits
    UNBLOCK = auto()  # a waiting goroutine is runnable
    DESTROY = auto()  # the running goroutine ends
    SYSCALL = auto()  # the running goroutine is in a system call
    SYSCALL_END = auto()  # it runs again, with its P
    SYSCALL_LOST = auto()  # its system call is over; its P was stolen: it is runnable
    GC_BEGIN = auto()
    GC_END = auto()
    STOP_WORLD = auto()
    START_WORLD = auto()
    ASSIST = auto()
    ASSIST_END = auto()
    THREAD_OFF = auto()
    THREAD_ON = auto()
    THREAD_WAKE = auto()  # the thread is woken, by the thread `other` of the process; 0: by `word`
    GAP = auto()  # nothing was recorded from here on, until the time in `other`
    TASK_BEGIN = auto()  # the running goroutine reports it, as all annotations: see `note`
    TASK_END = auto()
    REGION_BEGIN = auto()  # regions of a goroutine are nested
    REGION_END = auto()
    LOG = auto()

    @property
    def is_annotation(self) -> bool:
        """Whether the program itself reports it: nothing changes in the scheduler."""
        return self.name in ANNOTATIONS


class TraceStep(NamedTuple):
    """One change at `at_ns` (CLOCK_MONOTONIC) on a thread, NO_THREAD for none.

    Steps of a thread are in order. `stack` is a key of Timeline.stacks, 0 for none: of CREATE and
    UNBLOCK that of `by`, who did it. `state` is of IS "runnable", "waiting" or "syscall", of CREATE
    "waiting" for a coroutine. `on` is of BLOCK and IS a key of Timeline.objects, 0 for none.
    `is_inferred`: no event showed it, but what came later proves it. `note` is of annotations.
    """

    at_ns: int
    kind: StepKind
    tid: int = NO_THREAD
    goid: int = 0
    p: int = -1
    stack: int = 0
    word: str = ""
    by: int = 0
    other: int = 0
    labels: int = 0
    is_inferred: bool = False
    state: str = ""
    on: int = 0
    note: Annotation = NO_ANNOTATION
