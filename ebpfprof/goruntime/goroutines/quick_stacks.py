"""Reads the stacks of some goroutines at once: each between two looks at its runtime.g.

One system call reads the runtime.g, the stack where its stack pointer was last time, and the
runtime.g again, one goroutine after the other. So less than a microsecond lies between the looks at
one, and most stacks belong to them even if goroutines wait for less than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.heads import waits_of
from ebpfprof.goruntime.goroutines.reader import GoroutineReader, Unsteady
from ebpfprof.goruntime.goroutines.stack_starts import StackStarts, head_of
from ebpfprof.goruntime.goroutines.stack_walk import Walk
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory

    Column = npt.NDArray[np.uint64]

_WINDOW_BYTES: Final = 2048
WINDOW_WORDS: Final = _WINDOW_BYTES // 8
AT_ONCE: Final = 341
"""How many goroutines one call reads: three pieces each, and UIO_MAXIOV is 1024."""
_FEW: Final = 1
_MAX_DEPTH: Final = 512
_MAX_FAR_FRAMES: Final = 1 << 14  # of all stacks of one call beyond their windows
_NOTHING: Final = Walk((), is_whole=False)


class StackPlaces(NamedTuple):
    """Goroutines, and where their stacks are expected: from `sps` to `his`.

    If a goroutine has moved on, `pcs` and `bps` are where its stack began: 0 if unknown.
    """

    addresses: Column
    sps: Column
    his: Column
    pcs: Column
    bps: Column

    def part(self, which: slice) -> StackPlaces:
        """Some of them."""
        return StackPlaces(*(each[which] for each in self))


class QuickHeads(NamedTuple):
    """An element for each goroutine of a plan.

    `waits`, `sps`, `pcs`, `bps` and `his` are those of Heads; g.startpc and g.labels follow.
    `stack_pcs` and so on are where the stack begins, 0 for a goroutine that runs: see StackStarts.
    A stack that `is_there` is where it was expected, and what `is_exact` was so in both looks, too.
    """

    waits: Column
    sps: Column
    pcs: Column
    bps: Column
    his: Column
    start_pcs: Column
    labels: Column
    stack_pcs: Column
    stack_sps: Column
    stack_bps: Column
    is_same: npt.NDArray[np.bool_]
    is_there: npt.NDArray[np.bool_]
    is_exact: npt.NDArray[np.bool_]


class QuickStack(NamedTuple):
    """The stack of a goroutine.

    It `is_exact` if runtime.g was the same after it was read, and its stack pointer where it was
    expected. If not, and the walk `is_there`, it began where it was expected: it is that of a
    goroutine that was about to move on or had just done so. Frames of functions that have returned
    since may hold anything. It `is_near` if all
    of it is in its window.
    """

    walk: Walk
    is_exact: bool = False
    is_there: bool = False
    is_near: bool = False
    sema_at: int = -1
    """The word with the address of the semaphore that runtime.semacquire1 waits for, or -1."""


class QuickStackReader:
    """Reads stacks of one target. One thread at a time may use it."""

    def __init__(self, go: GoTarget, memory: Memory) -> None:
        """Raises GoTableError if the program has no list of goroutines that we find."""
        self._memory = memory
        self._list = GoroutineReader(go, memory, has_labels=False)
        self._kind = head_of(go.binary.layout)
        self._size = self._kind.itemsize
        self._starts = StackStarts(go)
        self._callback_pc = go.callback.return_pc + go.load_bias if go.callback else -1
        self._semacquires: set[int] = set()
        self._sema_offset = 0
        if go.sites.semaphores:
            self._sema_offset = go.sites.semaphores.address_offset
            parks = (park for park in go.sites.parks if park.is_semaphore)
            self._semacquires = {park.return_pc + go.load_bias for park in parks}
        self._far_left = 0
        self._count = 0
        self._make_room(_FEW)

    def _make_room(self, most: int) -> None:
        """Take memory for so many goroutines: most programs have few that move."""
        size = self._size
        self._before = np.zeros((most, size // 8), np.uint64)
        self._after = np.zeros((most, size // 8), np.uint64)
        self.words = np.zeros((most, WINDOW_WORDS + 1), np.uint64)
        """Of each goroutine of the plan, the stack from where it was expected on. The last is 0."""
        rows = np.arange(most, dtype=np.uint64)
        self._here = np.zeros((most, 3, 2), np.uint64)
        for piece, buffer in enumerate((self._before, self.words, self._after)):
            self._here[:, piece, 0] = buffer.ctypes.data + rows * np.uint64(buffer.strides[0])
        self._here[:, ::2, 1] = size
        self._there = self._here.copy()
        self._pieces = self._here.ctypes.data, self._there.ctypes.data

    def plan(self, places: StackPlaces) -> None:
        """Prepare the next read(), which then begins without delay; AT_ONCE places at most."""
        self._places, self._count = places, len(places.addresses)
        if self._count > len(self._here):
            self._make_room(min(AT_ONCE, self._count * 3 // 2))
        here, there = self._here[: self._count], self._there[: self._count]
        rooms = np.where(places.his > places.sps, places.his - places.sps, np.uint64(0))
        lengths = np.minimum(rooms, np.uint64(_WINDOW_BYTES)) & ~np.uint64(7)
        lengths[places.sps == 0] = 0
        there[:, ::2, 0] = places.addresses[:, None]
        there[:, 1, 0] = places.sps
        here[:, 1, 1] = there[:, 1, 1] = lengths
        self._lengths, self._total = lengths, int(lengths.sum()) + 2 * self._size * self._count

    def read(self) -> QuickHeads:
        """Read the goroutines at the places of the plan; stack() has their stacks.

        Raises TargetGone.
        """
        count, places = self._count, self._places
        if count:
            self._read_pieces()
            self._memory.read(int(places.addresses[0]), 1)  # raises if the pid was reused
        self._far_left = _MAX_FAR_FRAMES
        before = self._before[:count]
        g = before.view(self._kind)[:, 0]
        is_same = (before == self._after[:count]).all(axis=1)
        pcs, sps, bps = self._starts.of(g)
        is_there = (sps == places.sps) & (sps != 0)
        status, reason, sequence, goid = (
            g[name].astype(np.uint64) for name in ("status", "reason", "sequence", "goid")
        )
        self._heads = QuickHeads(
            waits=waits_of(status, reason, sequence, goid),
            **{name: g[name[:-1]] for name in ("sps", "pcs", "bps", "his", "start_pcs")},
            labels=g["labels"],
            stack_pcs=pcs,
            stack_sps=sps,
            stack_bps=bps,
            is_same=is_same,
            is_there=is_there,
            is_exact=is_same & is_there & (g["hi"] == places.his),
        )
        return self._heads

    def _read_pieces(self) -> None:
        size, first, end = self._size, 0, self._count
        done = self._read_from(0)
        if done == self._total:
            return
        lengths = self._lengths.tolist()
        while True:
            # The call ends at the first piece that it can't read, or only in part.
            while first < end and done >= 2 * size + lengths[first]:
                done -= 2 * size + lengths[first]
                first += 1
            if first == end:
                return
            self._before[first] = 0
            self._after[first] = 1  # differs, so it is not exact
            first += 1
            if first == end:
                return
            done = self._read_from(first)

    def _read_from(self, first: int) -> int:
        count, skipped = 3 * (self._count - first), 48 * first
        here, there = (each + skipped for each in self._pieces)
        return self._memory.read_pieces(here, count, there, count)

    def stack(self, row: int) -> QuickStack:
        """The stack at a place of the plan, walked in the words of the last read()."""
        heads, places = self._heads, self._places
        pc, sp, bp, hi = (
            int(each[row])
            for each in (heads.stack_pcs, heads.stack_sps, heads.stack_bps, heads.his)
        )
        is_same = bool(heads.is_same[row])
        words = self.words[row, : int(self._lengths[row]) // 8].data
        if not sp:
            return QuickStack(_NOTHING, is_exact=is_same)
        if heads.is_there[row]:
            walk = _walk(words, hi, pc, sp, bp)
            is_near = walk is not None and self._callback_pc not in walk.pcs
            if walk is None or not is_near:
                walk = self._far_walk(hi, pc, sp, bp) if is_same else _NOTHING
            sema_at = self._semaphore(walk.pcs, words, sp, bp)
            return QuickStack(walk, is_same, is_there=True, is_near=is_near, sema_at=sema_at)
        pc, sp, bp, hi = (
            int(each[row]) for each in (places.pcs, places.sps, places.bps, places.his)
        )
        found = _walk(words, hi, pc, sp, bp) if pc else None
        return QuickStack(found or _NOTHING, is_there=found is not None)

    def _semaphore(self, pcs: tuple[int, ...], words: memoryview, sp: int, bp: int) -> int:
        """Where semacquire1 has its semaphore; it is one of the first: GoroutineReader.look."""
        for number, pc in enumerate(pcs[:3]):
            if number:  # the frame that returns there is one further out
                at = _index(words, bp - sp)
                if at < 0:
                    return -1
                bp = words[at]
            if pc in self._semacquires:
                return _index(words, bp + self._sema_offset - sp)
        return -1

    def _far_walk(self, hi: int, pc: int, sp: int, bp: int) -> Walk:
        """A stack that is larger than its window, or in which C called back."""
        most = min(_MAX_DEPTH, self._far_left)
        try:
            pcs, is_whole = self._list.walk(hi, sp, bp, most=most)
        except (Unsteady, UnreadableMemory):
            return Walk((pc,), is_whole=False)
        self._far_left -= len(pcs)
        return Walk((pc, *pcs), is_whole)


def _walk(words: memoryview, hi: int, pc: int, sp: int, bp: int) -> Walk | None:
    """A stack from its frame pointer outwards; None if it goes on beyond its window.

    `words` has the stack from `sp` on. A goroutine that has not begun to run has no frame pointer:
    its stack is its pc alone.
    """
    pcs = [pc]
    while bp:
        at = bp - sp
        if at < 0 or at % 8 or bp + 16 > hi:
            return Walk(tuple(pcs), is_whole=False)
        index = at // 8
        if index + 1 >= len(words):
            return None
        pcs.append(words[index + 1])
        below = words[index]
        if below and below <= bp:
            return Walk(tuple(pcs), is_whole=False)
        bp = below
    return Walk(tuple(pcs), is_whole=True)


def _index(words: memoryview, at: int) -> int:
    """The number of the word `at` bytes behind the first one; -1 if there is none."""
    return at // 8 if 0 <= at < 8 * len(words) and at % 8 == 0 else -1
