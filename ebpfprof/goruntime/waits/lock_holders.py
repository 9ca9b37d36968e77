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
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.waits.lock_uses import MUTEX, RW_MUTEX
from ebpfprof.goruntime.waits.lock_waits import COND
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.lock_sites import LockPlace, LockSites

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.waits.lock_waits import LockWait
    from ebpfprof.process.memory import Memory
    from ebpfprof.profile.waiting_for import LockState

_MAX_STACKS: Final = 1 << 14  # that we read: about 20 us each
_MAX_STACK_BYTES: Final = 1 << 16
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
_FRAME_BYTES: Final = 16  # the frame pointer and the return address, between a frame and arguments
# The compiler keeps arguments that come in registers above the return address, nine words at most
# (cmd/compile/abi-internal.md).
_ARGUMENT_BYTES: Final = 9 * 8
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
        found: dict[int, dict[int, bool]] = {address: {} for address in held}
        if not held:
            return found
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
            stack = _Words(memory, goroutine, self._sites, self._bias)
            for number, address, place in self._held_by(memory, stack, frames, held):
                # It does not hold the lock in the frame in which it waits for it.
                if wait and wait.address == address and number <= wait.frame:
                    continue
                if address == condition or found[address].get(goroutine.goid):
                    continue
                is_released = self._is_released(memory, stack, number, address)
                if not is_released and len(found[address]) < _MAX_HOLDERS:
                    waited_for = wait.address if wait and number <= wait.frame else 0
                    found[address][goroutine.goid] = is_released is False and self._is_sure(
                        memory, stack, number, place, {address, waited_for}, waiters
                    )
        return {address: _owners(held[address], each) for address, each in found.items()}

    def _frames_of(self, pcs: tuple[int, ...]) -> list[_Frame]:
        found = self._frames.get(pcs)
        if found is None:
            found = [
                _Frame(number, places)
                for number, pc in enumerate(pcs[:_MAX_FRAMES])
                if number
                and (
                    places := tuple(
                        place for place in self._sites.held(pc - self._bias) if place.is_sure
                    )
                )
            ]
            self._frames[pcs] = found
        return found

    def _held_by(
        self,
        memory: Memory,
        stack: _Words,
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
        self, memory: Memory, stack: _Words, number: int, place: LockPlace
    ) -> dict[int, None]:
        """Where the lock of a place in a frame may be."""
        if place.variable:
            pointers, offset = self._variable(memory, place)
        else:
            pointers, offset = stack.of_frame(number), place.offset or 0
        return dict.fromkeys(
            address for pointer in pointers for address in (pointer, (pointer + offset) & _MASK)
        )

    def _is_sure(
        self,
        memory: Memory,
        stack: _Words,
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

    def _is_released(self, memory: Memory, stack: _Words, number: int, address: int) -> bool | None:
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
        found = memory.read_records(np.array([variable], np.uint64), np.dtype("<u8"))
        return found.tolist(), place.offset


class _Words:
    """The words of a goroutine's stack, frame by frame."""

    def __init__(
        self, memory: Memory, goroutine: Goroutine, sites: LockSites, load_bias: int
    ) -> None:
        self._sites, self._bias = sites, load_bias
        self.pcs, words = goroutine.pcs, goroutine.words
        self._memory, self._sp, self._hi, self._bp = memory, words.sp, words.hi, words.bp
        self._words: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._ends: list[int] | None = None

    def of_frame(self, number: int) -> list[int]:
        """The words of a physical frame and of the arguments that it was given."""
        if self._ends is None:
            self._ends = self._read()
        if number >= len(self._ends):
            return []
        start = self._ends[number - 1] + 16 if number else self._sp
        arguments = self._sites.argument_bytes(self.pcs[number] - self._bias)
        end = self._ends[number] + _FRAME_BYTES
        end += min(_ARGUMENT_BYTES if arguments is None else arguments, _ARGUMENT_BYTES)
        words: list[int] = self._words[(start - self._sp) // 8 : (end - self._sp) // 8].tolist()
        return words

    def _read(self) -> list[int]:
        size = min(self._hi - self._sp, _MAX_STACK_BYTES) // 8 * 8
        if size > 0:
            with suppress(UnreadableMemory):
                self._words = np.frombuffer(self._memory.read(self._sp, size), "<u8")
        return self._frame_pointers(self._bp)

    def _frame_pointers(self, bp: int) -> list[int]:
        """Of the frames whose return addresses are those that the goroutine had."""
        pointers: list[int] = []
        for following in (*self.pcs[1:], None):
            at = (bp - self._sp) // 8
            is_inside = self._sp <= bp and bp % 8 == 0 and at + 1 < len(self._words)
            if not is_inside or (following is not None and self._words[at + 1] != following):
                break
            pointers.append(bp)
            if (below := int(self._words[at])) <= bp:
                break
            bp = below
        return pointers


def _owners(lock: LockState, found: dict[int, bool]) -> dict[int, bool]:
    """Those that surely hold a lock which only one can hold, if any; else all that may hold it."""
    sure: dict[int, bool] = {goid: is_sure for goid, is_sure in found.items() if is_sure}
    return sure if sure and not lock.readers else found


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
