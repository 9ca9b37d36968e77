"""Which goroutines may hold a lock.

A sync.Mutex does not know its owner. A goroutine may hold it if it is in a call of a function that
locks such a lock on each way to that call, and unlocks it on none
(symbolizer/codeanalysis/lock_sites.py), and the function's frame has a pointer to the lock or to
what it is a field of. A lock on some ways is no evidence: a loop that used the lock before, and
waits for a ticker now, has that, too. Goroutines that run have no stack in memory: they are never
found.

By its stack, one of them surely holds it if its frame has a pointer to no other lock that is held.
Then no other one holds it, unless readers share it. It does not hold it if a function that it
called has unlocked it, and continues. A function that has returned may have unlocked it, too, or
another goroutine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.waits.lock_uses import MUTEX, RW_MUTEX
from ebpfprof.goruntime.waits.lock_waits import COND
from ebpfprof.goruntime.waits.stack_words import StackWords
from symbolizer.codeanalysis.lock_sites import LockPlace, LockSites

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.waits.lock_waits import LockWait
    from ebpfprof.process.memory import Memory
    from ebpfprof.profile.waiting_for import LockState

_MAX_STACKS: Final = 1 << 14  # that we read: about 20 us each
_MAX_HOLDERS: Final = 64  # of a lock
_MAX_FRAMES: Final = 256
# What no word that is a lock has: as many waiters or readers (sync/rwmutex.go, rwmutexMaxReaders).
_MAX_WAITERS: Final = 1 << 20
_MAX_READERS: Final = 1 << 30
# sync.Mutex begins a RWMutex; both are the same in Go 1.19 to 1.27.
_LOCKED: Final = 1
_WOKEN: Final = 2
_STARVING: Final = 4
_WAITER_SHIFT: Final = 3
_RW_WORDS: Final = np.dtype(
    [
        *(("state", "<i4"), ("sema", "<u4"), ("writers", "<u4"), ("readers", "<u4")),
        *(("count", "<i4"), ("wait", "<i4")),
    ]
)
_MASK: Final = (1 << 64) - 1
_LOCKER: Final = 8  # of the pointer in sync.Cond.L, an interface


class _Frame(NamedTuple):
    """A physical frame of a stack that may hold locks."""

    number: int
    places: tuple[LockPlace, ...]


class HolderFinder:
    """Finds holders in one target. Reads the code of each function once."""

    def __init__(self, go: GoTarget) -> None:
        """Raises GoTableError."""
        self._bias = go.load_bias
        self._sites = LockSites(go.binary)
        self._frames: dict[tuple[int, ...], list[_Frame]] = {}

    def find(
        self,
        memory: Memory,
        goroutines: Sequence[Goroutine],
        waits: Mapping[int, LockWait],
        locks: Mapping[int, LockState],
    ) -> dict[int, dict[int, bool]]:
        """The ids of goroutines that may hold each lock, by its address; whether they surely do.

        The stacks of 16,384 goroutines are searched at most. `waits` are by the address of the
        runtime.g. Raises TargetGone.
        """
        held = {at: state for at, state in locks.items() if _is_held(state)}
        by_lock: dict[int, dict[int, bool]] = {address: {} for address in held}
        if not held:
            return by_lock
        waiters = Counter(wait.address for wait in waits.values())
        read = 0
        # Those that wait for no lock first: not all stacks may be read.
        for goroutine in sorted(goroutines, key=lambda waiter: waiter.address in waits):
            frames = self._frames_of(goroutine.pcs) if goroutine.words.bp else []
            if not frames:
                continue
            read += 1
            if read > _MAX_STACKS:
                break
            wait = waits.get(goroutine.address)
            condition = _lock_of_condition(memory, wait)
            stack = StackWords(memory, goroutine, self._argument_bytes)
            for number, address, place in self._held_by(memory, stack, frames, held):
                # It does not hold the lock in the frame in which it waits for it.
                if wait and wait.address == address and number <= wait.frame:
                    continue
                if address == condition or by_lock[address].get(goroutine.goid):
                    continue
                is_released = self._is_released(memory, stack, number, address)
                if not is_released and len(by_lock[address]) < _MAX_HOLDERS:
                    waited_for = wait.address if wait and number <= wait.frame else 0
                    by_lock[address][goroutine.goid] = is_released is False and self._is_sure(
                        memory, stack, number, place, {address, waited_for}, waiters
                    )
        return {address: _owners(held[address], holders) for address, holders in by_lock.items()}

    def _frames_of(self, pcs: tuple[int, ...]) -> list[_Frame]:
        frames = self._frames.get(pcs)
        if frames is None:
            frames = [
                _Frame(number, places)
                for number, pc in enumerate(pcs[:_MAX_FRAMES])
                if number
                and (
                    places := tuple(
                        place for place in self._sites.held(pc - self._bias) if place.is_sure
                    )
                )
            ]
            self._frames[pcs] = frames
        return frames

    def _held_by(
        self,
        memory: Memory,
        stack: StackWords,
        frames: Sequence[_Frame],
        locks: Mapping[int, LockState],
    ) -> Iterator[tuple[int, int, LockPlace]]:
        """The number of each frame that may hold one of the locks, with the lock's address."""
        for number, places in frames:
            for place in places:
                for address in self._addresses(memory, stack, number, place):
                    if address in locks and _fits(place, locks[address]):
                        yield number, address, place

    def _addresses(
        self, memory: Memory, stack: StackWords, number: int, place: LockPlace
    ) -> dict[int, None]:
        """Where the lock of a place in a frame may be."""
        if place.variable:
            pointers, offset = self._variable(memory, place)
        else:
            pointers, offset = stack.of_frame(number), place.offset or 0
        return dict.fromkeys(
            address for pointer in pointers for address in (pointer, (pointer + offset) & _MASK)
        )

    def _argument_bytes(self, pc: int) -> int | None:
        return self._sites.argument_bytes(pc - self._bias)

    def _is_sure(
        self,
        memory: Memory,
        stack: StackWords,
        number: int,
        place: LockPlace,
        known: AbstractSet[int],
        waiters: Mapping[int, int],
    ) -> bool:
        """Whether a frame that holds a lock at its call holds this lock.

        `known` are its address, and that of the lock for which the goroutine waits.
        """
        if place.variable and place.offset is not None:
            return False  # a variable's pointer may have been another one when it locked
        if place.variable:
            return True
        pointers = set(stack.of_frame(number)) - known
        others = {(pointer + (place.offset or 0)) & _MASK for pointer in pointers} - known
        return not _any_is_held(memory, sorted(others), waiters, is_read=place.is_read)

    def _is_released(
        self, memory: Memory, stack: StackWords, number: int, address: int
    ) -> bool | None:
        """Whether functions that a frame called, and that continue, unlocked the lock; None:
        perhaps.

        They may have locked it again: then their own frames hold it.
        """
        is_known = True
        for called in range(number):
            released = self._sites.released(stack.pcs[called] - self._bias)
            is_known = is_known and released is not None
            for place in released or ():
                if place.variable:
                    pointers, offset = self._variable(memory, place)
                else:
                    pointers, offset = stack.of_frame(called), place.offset or 0
                if address in ((pointer + offset) & _MASK for pointer in pointers):
                    return True
        return False if is_known else None

    def _variable(self, memory: Memory, place: LockPlace) -> tuple[Sequence[int], int]:
        """The lock's address, or the pointer in a variable and how far behind it the lock is."""
        variable = place.variable + self._bias
        if place.offset is None:
            return (variable,), 0
        if not 0 <= variable < 1 << 63:
            return (), 0
        words = memory.read_records(np.array([variable], np.uint64), np.dtype("<u8"))
        return words.tolist(), place.offset


def _owners(lock: LockState, holders: dict[int, bool]) -> dict[int, bool]:
    """Those that surely hold a lock which only one can hold, if any; else all that may hold it."""
    sure: dict[int, bool] = {goid: is_sure for goid, is_sure in holders.items() if is_sure}
    return sure if sure and not lock.readers else holders


def _is_held(lock: LockState) -> bool:
    return lock.type in (MUTEX, RW_MUTEX) and (lock.is_locked or lock.readers > 0)


def _fits(place: LockPlace, lock: LockState) -> bool:
    """Whether a lock of this kind and state can be held that way."""
    return place.is_read == (lock.type == RW_MUTEX and lock.readers > 0)


def _any_is_held(
    memory: Memory, addresses: Sequence[int], waiters: Mapping[int, int], *, is_read: bool
) -> bool:
    """Whether the words at one of the addresses could be those of a lock that is held that way.

    `waiters` are how many goroutines wait for locks, by their addresses. A lock with waiters that
    are none is a number.
    """
    places = np.array(addresses, np.uint64)
    for address, words in zip(addresses, memory.read_records(places, _RW_WORDS), strict=True):
        state, count = int(words["state"]), int(words["count"])
        number = state >> _WAITER_SHIFT
        if not (0 <= number < _MAX_WAITERS and words["sema"] <= 1):
            continue
        if not is_read:
            has_waiters = waiters.get(address, 0) > 0
            # The bit is set only until the waiter that was woken has run.
            is_like = state & (_LOCKED | _WOKEN) == _LOCKED and (number > 0) == has_waiters
            if is_like and (has_waiters or not state & _STARVING):
                return True
        elif words["writers"] <= 1 and words["readers"] <= 1:
            readers = count + _MAX_READERS if count < 0 else count
            if 0 < readers < _MAX_WAITERS and 0 <= words["wait"] < _MAX_WAITERS:
                return True
    return False


def _lock_of_condition(memory: Memory, wait: LockWait | None) -> int:
    """The lock that a goroutine in sync.Cond.Wait has given back; 0 if it is in no such wait."""
    if wait is None or wait.type != COND:
        return 0
    at = np.array([wait.address + _LOCKER], np.uint64)
    return int(memory.read_records(at, np.dtype("<u8"))[0])
