"""What goroutines wait for beyond their stacks: locks, files, system calls, the end of a sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.goruntime.waits.file_waits import file_waits
from ebpfprof.goruntime.waits.lock_holders import HolderFinder
from ebpfprof.goruntime.waits.lock_states import LockStates
from ebpfprof.goruntime.waits.lock_uses import RW_MUTEX
from ebpfprof.goruntime.waits.lock_waits import WRITER_SEMAPHORE, LockWait, LockWaitReader
from ebpfprof.goruntime.waits.sleeps import ends_of_sleeps
from ebpfprof.goruntime.waits.thread_calls import thread_calls
from ebpfprof.profile.waiting_for import NOTHING, FileWait, LockState, ThreadWait, WaitsFor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.goruntime.goroutines.all_goroutines import AllGoroutines
    from ebpfprof.goruntime.goroutines.frames import StackFrames
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory

_IO_WAIT: Final = "IO wait"
_SLEEP: Final = "sleep"


class Moving(NamedTuple):
    """What is soon out of date, by the address of the runtime.g where nothing else is said."""

    locks: dict[int, LockWait]
    states: dict[int, LockState]
    """Of these locks, by address, without names."""
    holders: dict[int, dict[int, bool]]
    """Of these locks, by address: see HolderFinder.find."""
    files: dict[int, FileWait]
    threads: dict[int, ThreadWait]
    ends: dict[int, int]
    """Of sleeps: ns, CLOCK_MONOTONIC of the target."""


class WaitReader:
    """Reads what the goroutines of one target wait for, any number of times."""

    def __init__(self, go: GoTarget, memory: Memory, frames: StackFrames) -> None:
        """Raises GoTableError."""
        self._go, self._memory = go, memory
        self._descriptors = go.target.descriptors()
        self._threads = go.target.threads()
        self._locks = LockWaitReader(go, memory, frames)
        self._states = LockStates(go)
        self._holders = HolderFinder(go)

    def read_moving(self, goroutines: AllGoroutines) -> Moving:
        """What is soon out of date. Call it right after the scan, and give the result to read().

        Raises TargetGone or GoTableError.
        """
        layout = self._go.binary.layout
        locks = self._locks.read(goroutines.goroutines)
        states = self._states.read(self._memory, locks)
        holders = self._holders.find(self._memory, goroutines.goroutines, locks, states)
        polling = [
            goroutine.address for goroutine in goroutines.goroutines if goroutine.state == _IO_WAIT
        ]
        files = file_waits(self._memory, layout, self._descriptors, polling)
        threads = thread_calls(
            self._memory, layout, self._threads, self._descriptors, goroutines.goroutines
        )
        sleeping = {
            goroutine.address: goroutine.words
            for goroutine in goroutines.goroutines
            if goroutine.state == _SLEEP
        }
        ends = ends_of_sleeps(self._memory, layout, sleeping)
        return Moving(locks, states, holders, files, threads, ends)

    def read(self, goroutines: AllGoroutines, moving: Moving) -> dict[int, WaitsFor]:
        """What each goroutine waits for, by its id; those of which nothing is known are missing.

        Raises TargetGone or GoTableError.
        """
        waits = moving.locks
        locks = self._states.named(moving.states, waits)
        writers = self._writers(goroutines, waits)
        now_ns = goroutines.read_ns + (goroutines.ahead_ns or 0)  # by the target's clock
        known = {}
        for goroutine in goroutines.goroutines:
            end_ns = moving.ends.get(goroutine.address) if goroutines.ahead_ns is not None else None
            wait = waits.get(goroutine.address)
            lock = locks.get(wait.address) if wait else None
            may_hold = moving.holders.get(lock.address, {}) if lock else {}
            about = WaitsFor(
                lock=lock,
                may_hold=tuple(may_hold),
                surely_hold=tuple(goid for goid, is_sure in may_hold.items() if is_sure),
                behind=_behind(goroutine.goid, lock, writers),
                file_wait=moving.files.get(goroutine.address),
                thread=moving.threads.get(goroutine.address),
                wakes_in_ns=None if end_ns is None else end_ns - now_ns,
            )
            if about != NOTHING:
                known[goroutine.goid] = about
        return known

    @staticmethod
    def _writers(goroutines: AllGoroutines, waits: Mapping[int, LockWait]) -> dict[int, int]:
        """The goroutine that waits in RWMutex.Lock for readers to leave, by the lock."""
        return {
            wait.address: goroutine.goid
            for goroutine in goroutines.goroutines
            if (wait := waits.get(goroutine.address))
            and (wait.type, wait.sema_offset) == (RW_MUTEX, WRITER_SEMAPHORE)
        }


def _behind(goid: int, lock: LockState | None, writers: Mapping[int, int]) -> int:
    """The writer that a goroutine has to let pass first; 0 if there is none."""
    if lock is None or not lock.writer_waits:
        return 0
    writer = writers.get(lock.address, 0)
    return 0 if writer == goid else writer
