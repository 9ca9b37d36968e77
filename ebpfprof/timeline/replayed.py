"""What a replay knows of goroutines and threads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ebpfprof.timeline.events import NO_P


class ReplayedState(Enum):
    """What a goroutine does."""

    RUNNABLE = "runnable"
    RUNNING = "running"
    WAITING = "waiting"
    SYSCALL = "syscall"
    GONE = "gone"


@dataclass(slots=True)
class ReplayedGoroutine:
    """A goroutine, and since when it is in its state."""

    goid: int
    state: ReplayedState
    since_ns: int
    thread: ReplayedThread | None = None
    """Where it runs or is in a system call."""
    word: str = ""
    """The reason of its wait."""


@dataclass(slots=True)
class ReplayedThread:
    """A thread: M, as Go calls it."""

    tid: int
    last_ns: int
    """Of its last step."""
    p: int = NO_P
    g: ReplayedGoroutine | None = None
    on_ns: int = 0
    """When it got a processor last."""
    off_ns: int = 0
    """Since when it has none; 0 while it has one."""
    call: int = 0
    """The number of its system call."""
    left: int = 0
    """The goroutine that stopped to run here last, until another begins to."""
