"""Reads stacks of goroutines: copies of them, walked along their frame pointers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.seen_stacks import UNKNOWN, SeenStack, SeenStacks
from ebpfprof.goruntime.goroutines.stack_copies import StackCopier
from ebpfprof.goruntime.goroutines.stack_starts import StackStarts
from ebpfprof.goruntime.goroutines.stack_walk import StackWalker, Walk, copied
from ebpfprof.goruntime.goroutines.stacks_by_tables import StacksByTables

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.stack_copies import Copies
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory

    Rows = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

FEW: Final = 16  # for so few, numpy's calls take longer than walks
_MOST_FRAMES: Final = 512
_MOST_FRAMES_IN_MEMORY: Final = 1 << 14  # of all stacks between two calls of begin()
_NOTHING: Final = Walk((), is_whole=False)


class ReadStack(NamedTuple):
    """The stack of a goroutine.

    It `is_exact` if it belongs to the runtime.g: see stack_copies. If not, and it `is_there`, it
    began where it was expected: it is that of a goroutine that was about to move on or had just
    done so. Frames of functions that have returned since may hold anything.
    """

    walk: Walk
    is_exact: bool = False
    is_there: bool = False
    sema_at: int = -1
    """The word with the address of the semaphore that runtime.semacquire1 waits for, or -1."""
    seen: SeenStack | None = None
    """If an equal stack was read before."""


class StackReader:
    """Reads stacks of one target. One thread at a time may use it."""

    def __init__(
        self,
        go: GoTarget,
        memory: Memory,
        *,
        most: int = _MOST_FRAMES,
        most_in_memory: int = _MOST_FRAMES_IN_MEMORY,
        seen: SeenStacks | None = None,
    ) -> None:
        """For `most` and `most_in_memory` see StackWalker; `seen` may be another reader's, too."""
        layout, bias = go.binary.layout, go.load_bias
        self.copier = StackCopier(memory, layout, StackStarts(go.binary, bias))
        """What copies the stacks that are walked here."""
        self._walker = StackWalker(
            memory, go.callback, bias, most=most, most_in_memory=most_in_memory
        )
        self._tables, self._most = StacksByTables(go, memory), most
        self._seen = SeenStacks() if seen is None else seen
        self._semacquires: set[int] = set()
        self._sema_offset = 0
        if go.sites.semaphores:
            self._sema_offset = go.sites.semaphores.address_offset
            parks = (park for park in go.sites.parks if park.is_semaphore)
            self._semacquires = {park.return_pc + bias for park in parks}

    def begin(self) -> None:
        """Begin with other stacks: a bounded number of frames is walked in memory."""
        self._walker.begin()
        self._tables.begin()

    def stacks(self, copies: Copies, rows: Rows, is_exact: Mask) -> list[ReadStack]:
        """The stacks in these rows of the last copies.

        `is_exact` shows which of these rows are; the others may be torn.
        """
        seen = self.seen(copies, rows, is_exact)
        is_new = np.array([stack is None for stack in seen], np.bool_)
        walked = iter(self.walked(copies, rows[is_new], is_exact[is_new], learns=are_many(rows)))
        return [_read_before(stack) if stack else next(walked) for stack in seen]

    def seen(self, copies: Copies, rows: Rows, is_exact: Mask) -> list[SeenStack | None]:
        """For each of these rows the equal stack that was read before; None if there is none."""
        known: list[SeenStack | None] = [None] * len(rows)
        if are_many(rows) and is_exact.any():
            numbers = self._seen.find(copies, rows[is_exact], self.copier.words).tolist()
            for at, number in zip(np.flatnonzero(is_exact).tolist(), numbers, strict=True):
                if number != UNKNOWN:
                    known[at] = self._seen.stacks[number]
        return known

    def walked(
        self, copies: Copies, rows: Rows, is_exact: Mask, *, learns: bool
    ) -> list[ReadStack]:
        """The stacks in these rows, walked; if it `learns`, seen() finds equal ones next time."""
        stacks: list[ReadStack] = []
        to_learn: dict[tuple[int, ...], tuple[int, SeenStack]] = {}
        for row, exact in zip(rows.tolist(), is_exact.tolist(), strict=True):
            stack, is_near = self._stack(copies, row)
            stacks.append(stack)
            if learns and exact and is_near and stack.walk.is_whole:
                to_learn[stack.walk.pcs] = row, SeenStack(stack.walk.pcs, stack.sema_at)
        for row, seen in to_learn.values():  # not before: that may forget the others
            self._seen.learn(copies, row, self.copier.words, seen)
        return stacks

    def _stack(self, copies: Copies, row: int) -> tuple[ReadStack, bool]:
        """The stack in a row, and whether all of it is in the copy."""
        places, words = self.copier.places, self.copier.copy(row)
        pc, sp, bp = (int(column[row]) for column in (copies.pcs, copies.sps, copies.bps))
        is_same = bool(copies.is_same[row])
        if not sp:
            return ReadStack(_NOTHING, is_exact=is_same), False
        if copies.is_there[row]:
            hi = int(copies.g["hi"][row])
            walk = self._walker.in_copy(words, hi, pc, sp, bp)
            is_near = walk is not None
            if walk is None:
                walk = _NOTHING
                if is_same:
                    walk = self._walker.in_memory(hi, pc, sp, bp)
                    is_same = bool(self.copier.are_same(np.array([row]))[0])
            if is_same and self._tables.has(walk.pcs):
                walk = self._tables.walk(hi, pc, sp, most=self._most) or walk
                is_same, is_near = bool(self.copier.are_same(np.array([row]))[0]), False
            sema_at = self._semaphore(walk.pcs, words, sp, bp)
            return ReadStack(walk, is_same, is_there=True, sema_at=sema_at), is_near
        pc, sp, bp, hi = (
            int(column[row]) for column in (places.pcs, places.sps, places.bps, places.his)
        )
        torn = copied(words, hi, pc, sp, bp) if pc else None
        return ReadStack(torn or _NOTHING, is_there=torn is not None), False

    def _semaphore(self, pcs: tuple[int, ...], words: memoryview, sp: int, bp: int) -> int:
        """Where semacquire1 has its semaphore; its frame is one of the first."""
        for number, pc in enumerate(pcs[:3]):
            if number:  # the frame that returns there is one further out
                index = _index(words, bp - sp)
                if index < 0:
                    return -1
                bp = words[index]
            if pc in self._semacquires:
                return _index(words, bp + self._sema_offset - sp)
        return -1


def are_many(rows: Rows) -> bool:
    """Whether it takes less to look for equal stacks than to walk them."""
    return len(rows) > FEW


def _read_before(seen: SeenStack) -> ReadStack:
    walk = Walk(seen.pcs, is_whole=True)
    return ReadStack(walk, is_exact=True, is_there=True, sema_at=seen.sema_at, seen=seen)


def _index(words: memoryview, distance: int) -> int:
    """The number of the word `distance` bytes behind the first one; -1 if there is none."""
    return distance // 8 if 0 <= distance < 8 * len(words) and distance % 8 == 0 else -1
