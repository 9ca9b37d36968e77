"""Reads the stacks of some goroutines at once: each between two looks at its runtime.g.

One system call reads the runtime.g, the stack where its stack pointer was last time, and the
runtime.g again, one goroutine after the other. So less than a microsecond lies between the looks at
one, and most stacks belong to them even if goroutines wait for less than that.

There is no numpy here: for few goroutines its calls take longer than what they do.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.goruntime.goroutines import GoroutineReader, Unsteady, ascending
from ebpfprof.goruntime.heads import wait_of
from ebpfprof.goruntime.stack_starts import RUNNING, SCAN, SYSCALL, StackStarts
from ebpfprof.goruntime.stack_walk import Walk
from ebpfprof.kernel.remote_memory import process_vm_readv
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory

_WINDOW_BYTES: Final = 2048
_WORDS: Final = _WINDOW_BYTES // 8
AT_ONCE: Final = 341
"""How many goroutines one call reads: three pieces each, and UIO_MAXIOV is 1024."""
_MAX_DEPTH: Final = 512
_MAX_FAR_FRAMES: Final = 1 << 14  # of all stacks of one call beyond their windows
_NOTHING: Final = Walk((), is_whole=False)
_FIELDS: Final = (
    ("stack.hi", "Q"),
    ("sched.sp", "Q"),
    ("sched.pc", "Q"),
    ("sched.bp", "Q"),
    ("syscallsp", "Q"),
    ("syscallpc", "Q"),
    ("atomicstatus", "I"),
    ("goid", "Q"),
    ("waitreason", "B"),
    ("trackingSeq", "B"),
    ("startpc", "Q"),
    ("labels", "Q"),
    ("syscallbp", "Q"),  # from Go 1.23 on
)


class StackPlace(NamedTuple):
    """A runtime.g, and where its stack is expected: from `sp` to `hi`.

    If the goroutine has moved on, `pc` and `bp` are where its stack began: 0 if unknown.
    """

    address: int
    sp: int
    hi: int
    pc: int = 0
    bp: int = 0


class QuickHead(NamedTuple):
    """A goroutine: `wait`, `sp`, `pc` and `bp` are those of Heads; g.startpc and g.labels."""

    wait: int
    sp: int
    pc: int
    bp: int
    start_pc: int
    labels: int


class QuickStack(NamedTuple):
    """The stack of a goroutine.

    It `is_exact` if runtime.g was the same after it was read, and its stack pointer where it was
    expected. If not, and the walk `is_there`, it began where it was expected: it is that of a
    goroutine that was about to move on or had just done so. The functions that called the
    operation are those of the stack before, unless they have returned already.
    """

    walk: Walk
    is_exact: bool
    is_there: bool
    sema: int = 0
    """The address of the semaphore for which the goroutine waits in runtime.semacquire1, or 0."""


class _G(NamedTuple):
    """The fields of a runtime.g that we need, in the order of _FIELDS."""

    hi: int
    sp: int
    pc: int
    bp: int
    syscall_sp: int
    syscall_pc: int
    status: int
    goid: int
    reason: int
    sequence: int
    start_pc: int
    labels: int
    syscall_bp: int = 0


class QuickStackReader:
    """Reads stacks of one target. One thread at a time may use it."""

    def __init__(self, go: GoTarget, memory: Memory) -> None:
        """Raises GoTableError if the program has no list of goroutines that we find."""
        self._pid, self._memory = go.target.pid, memory
        self._list = GoroutineReader(go, memory, has_labels=False)
        layout = go.binary.layout
        self._size = layout.size("g")
        present = [each for each in _FIELDS if layout.has("g", each[0])]
        offsets = [layout.offset("g", name) for name, _ in present]
        ordered = sorted(zip(offsets, (code for _, code in present), strict=True))
        self._record = ascending(ordered)
        self._in_order = itemgetter(*(sorted(offsets).index(offset) for offset in offsets))
        self._saves_bp = len(present) == len(_FIELDS)
        self._starts = StackStarts(go)
        self._callback_pc = go.callback.return_pc + go.load_bias if go.callback else -1
        self._semacquires: set[int] = set()
        self._sema_offset = 0
        if go.sites.semaphores:
            self._sema_offset = go.sites.semaphores.address_offset
            parks = (park for park in go.sites.parks if park.is_semaphore)
            self._semacquires = {park.return_pc + go.load_bias for park in parks}
        self._far_left = 0
        room = AT_ONCE * self._size
        self._before, self._after = bytearray(room), bytearray(room)
        self._windows = bytearray(AT_ONCE * _WINDOW_BYTES)
        self._words = memoryview(self._windows).cast("Q")
        self._buffers = [_address_of(each) for each in (self._before, self._windows, self._after)]
        self._gs: list[_G] = []
        self.plan(())

    def plan(self, places: Sequence[StackPlace]) -> None:
        """Prepare the next read(), which then begins without delay; AT_ONCE places at most."""
        size = self._size
        before, windows, after = self._buffers
        here, there = array("Q"), array("Q")
        rooms = [max(0, each.hi - each.sp) if each.sp else 0 for each in places]
        self._lengths = [min(room, _WINDOW_BYTES) & ~7 for room in rooms]
        for row, (place, length) in enumerate(zip(places, self._lengths, strict=True)):
            at, window = row * size, windows + row * _WINDOW_BYTES
            here.extend((before + at, size, window, length, after + at, size))
            there.extend((place.address, size, place.sp, length, place.address, size))
        self._places, self._here, self._there = places, here, there

    def read(self) -> list[QuickHead]:
        """Read the goroutines at the places of the plan; stack() has their stacks.

        Raises TargetGone.
        """
        size, first, lengths = self._size, 0, self._lengths
        while first < len(lengths):
            count, skipped = 3 * (len(lengths) - first), 48 * first
            here, there = (each.buffer_info()[0] + skipped for each in (self._here, self._there))
            done = process_vm_readv(self._pid, here, count, there, count, 0)
            # The call ends at the first piece that it can't read, or only in part.
            while first < len(lengths) and done >= 2 * size + lengths[first]:
                done -= 2 * size + lengths[first]
                first += 1
            if first < len(lengths):
                at = first * size
                self._before[at : at + size] = bytes(size)
                self._after[at : at + size] = b"\1" * size  # differs, so it is not exact
                first += 1
        self._far_left = _MAX_FAR_FRAMES
        if lengths:
            self._memory.read(self._places[0].address, 1)  # raises if the pid was reused
        self._gs = [self._g_of(row * size) for row in range(len(lengths))]
        return [
            QuickHead(
                wait_of(g.status & ~SCAN, g.reason, g.sequence, g.goid),
                *(g.sp, g.pc, g.bp, g.start_pc, g.labels),
            )
            for g in self._gs
        ]

    def stack(self, row: int) -> QuickStack:
        """The stack at a place of the plan, as the last read() found it."""
        at, size, place = row * self._size, self._size, self._places[row]
        is_same = self._before[at : at + size] == self._after[at : at + size]
        g = self._gs[row]
        status = g.status & ~SCAN
        pc, sp, bp = (g.pc, g.sp, g.bp) if status != RUNNING else (0, 0, 0)
        if status == SYSCALL and g.syscall_sp:
            pc, sp = g.syscall_pc, g.syscall_sp
            bp = g.syscall_bp if self._saves_bp else self._starts.saved_bp(pc, sp)
        first, length = row * _WORDS, self._lengths[row]
        if not sp:
            return QuickStack(_NOTHING, is_same, is_there=False)
        if sp == place.sp:
            walk = _walk(self._words, first, length, g.hi, pc, sp, bp)
            if walk is None or self._callback_pc in walk.pcs:
                walk = self._far_walk(g.hi, pc, sp, bp) if is_same else _NOTHING
            sema = self._semaphore(walk.pcs, first, length, sp, bp)
            return QuickStack(walk, is_same, is_there=True, sema=sema)
        if place.pc:
            walk = _walk(self._words, first, length, place.hi, place.pc, place.sp, place.bp)
            return QuickStack(walk or _NOTHING, is_exact=False, is_there=walk is not None)
        return QuickStack(_NOTHING, is_exact=False, is_there=False)

    def _semaphore(self, pcs: tuple[int, ...], first: int, length: int, sp: int, bp: int) -> int:
        """The semaphore of semacquire1, whose frame is one of the first: GoroutineReader.look."""
        for number, pc in enumerate(pcs[:3]):
            if number:  # the frame that returns there is one further out
                bp = self._word(bp - sp, first, length)
            if pc in self._semacquires:
                return self._word(bp + self._sema_offset - sp, first, length)
        return 0

    def _word(self, at: int, first: int, length: int) -> int:
        """A word of a window, `at` bytes from its beginning; 0 outside of it."""
        return self._words[first + at // 8] if 0 <= at <= length - 8 and at % 8 == 0 else 0

    def _g_of(self, at: int) -> _G:
        return _G(*self._in_order(self._record.unpack_from(self._before, at)))

    def _far_walk(self, hi: int, pc: int, sp: int, bp: int) -> Walk:
        """A stack that is larger than its window, or in which C called back."""
        most = min(_MAX_DEPTH, self._far_left)
        try:
            pcs, is_whole = self._list.walk(hi, sp, bp, most=most)
        except (Unsteady, UnreadableMemory):
            return Walk((pc,), is_whole=False)
        self._far_left -= len(pcs)
        return Walk((pc, *pcs), is_whole)


def _walk(
    words: memoryview, first: int, length: int, hi: int, pc: int, sp: int, bp: int
) -> Walk | None:
    """A stack from its frame pointer outwards; None if it goes on beyond its window.

    `words` has at `first` the `length` bytes of the stack from `sp` on. A goroutine that has not
    begun to run has no frame pointer: its stack is its pc alone.
    """
    pcs = [pc]
    while bp:
        at = bp - sp
        if at < 0 or at % 8 or bp + 16 > hi:
            return Walk(tuple(pcs), is_whole=False)
        if at + 16 > length:
            return None
        index = first + at // 8
        pcs.append(words[index + 1])
        below = words[index]
        if below and below <= bp:
            return Walk(tuple(pcs), is_whole=False)
        bp = below
    return Walk(tuple(pcs), is_whole=True)


def _address_of(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
