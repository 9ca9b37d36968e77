"""What a goroutine waits for, beyond its stack: a lock, a file, a system call, a time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Sureness(StrEnum):
    """How sure a finding is: nothing else can be, or all that we see speaks for it."""

    CERTAIN = "certain"
    LIKELY = "likely"


@dataclass(frozen=True, slots=True)
class LockState:
    """A lock that a goroutine waits for, as it was when it was read.

    `type` is "sync.Mutex", "sync.RWMutex", "sync.WaitGroup" or "sync.Cond"; `name` is None if none
    is known. `is_locked`: a Mutex has an owner, or a RWMutex a writer that owns it. `waiters` are
    those that a Mutex (also of a RWMutex), a WaitGroup or a Cond counts. `readers` hold a RWMutex;
    `writer_waits` says that a writer waits for them. `counter` is that of a WaitGroup.
    """

    address: int
    type: str
    name: str | None
    is_locked: bool = False
    waiters: int = 0
    readers: int = 0
    writer_waits: bool = False
    counter: int = 0


@dataclass(frozen=True, slots=True)
class OpenFile:
    """What a file descriptor stands for.

    `kind` is "tcp", "udp", "unix", "socket", "pipe", "device" (of characters, such as a terminal)
    or "file". `local` and `peer` are addresses as Go writes them, "" if unknown or none; `path` is
    that of a file, a named pipe, a device or a unix socket. `is_listener`: it accepts connections.
    `is_connecting`: a connection is being made.
    """

    fd: int
    kind: str
    local: str = ""
    peer: str = ""
    path: str = ""
    is_listener: bool = False
    is_connecting: bool = False


@dataclass(frozen=True, slots=True)
class FileWait:
    """A wait of the network poller: for data to read, or, with `is_write`, for room to write."""

    file: OpenFile
    is_write: bool


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A system call in which a thread is now: its number on x86-64, its name.

    `arguments` are names with values, () where the call's are not known. `file` is what its first
    argument stands for, if that is a file descriptor.
    """

    number: int
    name: str
    arguments: tuple[tuple[str, int], ...]
    file: OpenFile | None = None


@dataclass(frozen=True, slots=True)
class ThreadWait:
    """What the thread `thread` does for a goroutine that runs, or is in a system call.

    It `runs`, or waits for a processor; or it waits in `call`; or, without both, elsewhere in the
    kernel, for a page for example.
    """

    thread: int
    runs: bool
    call: SystemCall | None


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """All that is known of what a goroutine waits for; the same for no two goroutines, usually.

    `may_hold` are ids of goroutines that may hold `lock`, `surely_hold` those of them that surely
    do. `behind` is the goroutine with a claim to
    write, which comes first where readers hold a RWMutex; 0 if there is none. `wakes_in_ns` is when
    a sleep ends, from the sample on, negative if it is late; None if it does not sleep.

    Further samples of what seems stuck show more. `is_steady`: the lock did not change.
    `lost_wake`: the lock is free for this goroutine, and nothing is about to wake it; or None.
    `for_signal`: it waits for a channel of signals.
    """

    lock: LockState | None = None
    may_hold: tuple[int, ...] = ()
    behind: int = 0
    file_wait: FileWait | None = None
    thread: ThreadWait | None = None
    wakes_in_ns: int | None = None
    surely_hold: tuple[int, ...] = ()
    is_steady: bool = False
    lost_wake: Sureness | None = None
    for_signal: bool = False


NOTHING: Final = WaitsFor()
