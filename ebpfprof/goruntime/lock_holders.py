"""Which goroutines may hold a lock.

A sync.Mutex does not know its owner. We take for one that may hold it each goroutine with a call
from a function that locks such a lock and has not unlocked it on some way to that call
(symbolizer/codeanalysis/lock_sites.py), whose frame has a pointer to the lock or to what it is a
field of.
Goroutines that run have no stack in memory: they are never found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.lock_uses import MUTEX, RW_MUTEX
from ebpfprof.goruntime.lock_waits import COND
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.lock_sites import LockPlace, LockSites

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.all_goroutines import Goroutine
    from ebpfprof.goruntime.lock_waits import LockWait
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from ebpfprof.profile.waiting_for import LockState

_MAX_STACKS: Final = 1 << 14  # that we read: some 20 us each
_MAX_STACK_BYTES: Final = 1 << 16
_MAX_HOLDERS: Final = 64  # of a lock
_MAX_FRAMES: Final = 256
# The compiler keeps arguments that come in registers above the return address, nine words at most
# (cmd/compile/abi-internal.md).
_ARGUMENT_BYTES: Final = 16 + 9 * 8
_MASK: Final = (1 << 64) - 1
_LOCKER: Final = 8  # of the pointer in sync.Cond.L, an interface


class _Frame(NamedTuple):
    """A physical frame of a stack that may hold locks."""

    number: int
    places: tuple[LockPlace, ...]


class HolderFinder:
    """Finds holders in one target. Looks at the code of each function once."""

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
    ) -> dict[int, list[int]]:
        """The ids of goroutines that may hold each lock, by its address.

        The stacks of 16,384 goroutines are searched at most. `waits` are by the address of the
        runtime.g. Raises TargetGone.
        """
        held = {at: each for at, each in locks.items() if _is_held(each)}
        found: dict[int, list[int]] = {address: [] for address in held}
        if not held:
            return found
        read = 0
        # Those that wait for no lock first: not all stacks may be read.
        for each in sorted(goroutines, key=lambda each: each.address in waits):
            frames = self._frames_of(each.pcs) if each.words.bp else []
            if not frames:
                continue
            read += 1
            if read > _MAX_STACKS:
                break
            wait = waits.get(each.address)
            condition = _lock_of_condition(memory, wait)
            for number, address in self._held_by(memory, each, frames, held):
                # It does not hold the lock in the frame in which it waits for it.
                if wait and wait.address == address and number <= wait.frame:
                    continue
                if address == condition or each.goid in found[address]:
                    continue
                if len(found[address]) < _MAX_HOLDERS:
                    found[address].append(each.goid)
        return found

    def _frames_of(self, pcs: tuple[int, ...]) -> list[_Frame]:
        found = self._frames.get(pcs)
        if found is None:
            found = [
                _Frame(number, places)
                for number, pc in enumerate(pcs[:_MAX_FRAMES])
                if number and (places := self._sites.held(pc - self._bias))
            ]
            self._frames[pcs] = found
        return found

    def _held_by(
        self,
        memory: Memory,
        goroutine: Goroutine,
        frames: Sequence[_Frame],
        locks: Mapping[int, LockState],
    ) -> Iterator[tuple[int, int]]:
        """The number of each frame that may hold one of the locks, with the lock's address."""
        stack: _Words | None = None
        for number, places in frames:
            for place in places:
                if place.variable:
                    pointers, offset = self._variable(memory, place)
                else:
                    stack = stack or _Words(memory, goroutine)
                    pointers, offset = stack.of_frame(number), place.offset or 0
                for pointer in pointers:
                    for address in {pointer, (pointer + offset) & _MASK}:
                        if address in locks and _fits(place, locks[address]):
                            yield number, address

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

    def __init__(self, memory: Memory, goroutine: Goroutine) -> None:
        self._pcs, words = goroutine.pcs, goroutine.words
        self._sp = words.sp
        self._words: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        size = min(words.hi - words.sp, _MAX_STACK_BYTES) // 8 * 8
        if size > 0:
            with suppress(UnreadableMemory):
                self._words = np.frombuffer(memory.read(words.sp, size), "<u8")
        self._ends = self._frame_pointers(words.bp)

    def of_frame(self, number: int) -> list[int]:
        """The words of a physical frame and of the arguments that it was given."""
        if number >= len(self._ends):
            return []
        start = self._ends[number - 1] + 16 if number else self._sp
        end = self._ends[number] + _ARGUMENT_BYTES
        words: list[int] = self._words[(start - self._sp) // 8 : (end - self._sp) // 8].tolist()
        return words

    def _frame_pointers(self, bp: int) -> list[int]:
        """Of the frames whose return addresses are those that the goroutine had."""
        found: list[int] = []
        for following in (*self._pcs[1:], None):
            at = (bp - self._sp) // 8
            is_inside = self._sp <= bp and bp % 8 == 0 and at + 1 < len(self._words)
            if not is_inside or (following is not None and self._words[at + 1] != following):
                break
            found.append(bp)
            if (below := int(self._words[at])) <= bp:
                break
            bp = below
        return found


def _is_held(lock: LockState) -> bool:
    return lock.type in (MUTEX, RW_MUTEX) and (lock.is_locked or lock.readers > 0)


def _fits(place: LockPlace, lock: LockState) -> bool:
    """Whether a lock of this kind and state can be held that way."""
    return place.is_read == (lock.type == RW_MUTEX and lock.readers > 0)


def _lock_of_condition(memory: Memory, wait: LockWait | None) -> int:
    """The lock that a goroutine in sync.Cond.Wait has given back; 0 if it is in no such wait."""
    if wait is None or wait.type != COND:
        return 0
    at = np.array([wait.address + _LOCKER], np.uint64)
    return int(memory.read_records(at, np.dtype("<u8"))[0])
