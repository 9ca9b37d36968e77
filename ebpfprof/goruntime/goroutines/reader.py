"""The goroutines of a target that are parked now, including those parked before the recording.

We read them from the target's memory while the target runs. A goroutine may wake while we read it,
and the garbage collector may move its stack (bpf/probes/goroutine_stack.h tells in which order). So
we read the whole runtime.g before and after the stack. Waking, parking or moving a goroutine
changes its runtime.g: runtime.casgstatus, for example, counts in g.trackingSeq how often the
goroutine stopped running (runtime/proc.go, Go 1.19 to 1.27).
"""

import struct
import time
from dataclasses import dataclass
from typing import NamedTuple

from ebpfprof.goruntime.goroutines.labels import LabelReader
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.memory import Memory, UnreadableMemory
from ebpfprof.profile.model import Label
from symbolizer.codeanalysis.globals import allgs_address

_SCAN = 0x1000  # runtime._Gscan
# _Gwaiting, and _Gleaked: the goroutine waits for an unreachable object (from Go 1.26 on).
_PARKED_STATUSES = frozenset({4, 10})
_PARK = "runtime.gopark"

_MAX_GOROUTINES = 1 << 22
_MAX_DEPTH = 136  # as in the BPF programs
_MAX_STACK_BYTES = 1 << 30  # runtime.maxstacksize
_WINDOW_BYTES = 1 << 14  # of a stack, read at once: most stacks are smaller
_ATTEMPTS = 9
_PAUSE_S = 0.001  # before the second attempt; each later pause is twice as long

_SLICE = struct.Struct("<QQQ")
_FRAME = struct.Struct("<QQ")
_WORD = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class ParkedGoroutine:
    """A goroutine parked in an operation that Go's block profiler hooks.

    `address` is the address of its runtime.g. `wait_reason` is a name of
    RuntimeLayout.wait_reasons, "" if the number is unknown. `return_pcs` are runtime addresses,
    from the call of gopark outwards, as StackTranslator expects them of a wait. `sema` is the
    address of the semaphore that it waits for in runtime.semacquire1, 0 if it waits elsewhere.
    `sequence` is g.trackingSeq: each wait of a goroutine has its own (modulo 256). `labels` are
    the pprof labels of the goroutine, None if we could not read them.
    """

    address: int
    goid: int
    wait_reason: str
    return_pcs: tuple[int, ...]
    sema: int
    sequence: int = 0
    labels: tuple[Label, ...] | None = ()
    start_pc: int = 0
    """The runtime address of the function that it began with."""


@dataclass(slots=True)
class ParkedGoroutines:
    """All parked goroutines, and what is missing.

    `unreadable` counts the goroutines that changed at each attempt to read them, or made no sense.
    `cut_short` counts those of `goroutines` whose stack we could not unwind to its end.
    """

    goroutines: list[ParkedGoroutine]
    unreadable: int = 0
    cut_short: int = 0


def parked_goroutines(go: GoTarget, *, has_labels: bool = False) -> ParkedGoroutines:
    """Find the goroutines parked at `go.sites.parks`, one after the other.

    With `has_labels`, read their labels, too. It takes some 20 µs per goroutine. Raises TargetGone,
    PermissionDenied, UnreadableMemory (there is no list of goroutines) or GoTableError.
    """
    with Memory(go.target) as memory:
        reader = GoroutineReader(go, memory, has_labels=has_labels)
        waiting, beyond = reader.all_goroutines()
        found = ParkedGoroutines([], beyond)
        for attempt in range(_ATTEMPTS):
            if waiting:
                _pause_before(attempt)
            unsteady = []
            for address in waiting:
                try:
                    goroutine, is_whole = reader.look(address)
                except (Unsteady, UnreadableMemory):
                    unsteady.append(address)
                    continue
                if goroutine:
                    found.goroutines.append(goroutine)
                    found.cut_short += not is_whole
            waiting = unsteady
        found.unreadable += len(waiting)
        return found


def count_goroutines(go: GoTarget) -> int:
    """The number of runtime.g, including dead ones, which the runtime reuses.

    Raises TargetGone, PermissionDenied or UnreadableMemory.
    """
    with Memory(go.target) as memory:
        _, length, _ = _SLICE.unpack(
            memory.read(allgs_address(go.binary) + go.load_bias, _SLICE.size)
        )
        return int(length)


def goroutine_list(memory: Memory, allgs: int, pid: int) -> tuple[list[int], int]:
    """The addresses of all runtime.g, dead ones included, and how many more there are.

    In the order in which they were made. `allgs` is the runtime address of runtime.allgs. Raises
    UnreadableMemory.
    """
    for attempt in range(_ATTEMPTS):
        _pause_before(attempt)
        head = memory.read(allgs, _SLICE.size)
        pointer, length, capacity = _SLICE.unpack(head)
        if length > capacity:
            continue  # the list is growing; the thread that grows it may lack a processor
        count = min(length, _MAX_GOROUTINES)
        try:
            data = memory.read(pointer, 8 * count)
        except UnreadableMemory:
            continue
        # A list that grew has moved, and the runtime may have overwritten the old one.
        if memory.read(allgs, 8) == head[:8]:
            addresses = [address for (address,) in _WORD.iter_unpack(data) if address]
            return addresses, length - count
    raise UnreadableMemory(
        f"The list of goroutines of process {pid} makes no sense: the program kept "
        "changing it, or overwrote it. ebpfprof needs it for dump and --open, and to record in "
        "windows. Try again; if that does not help, record without --open and with "
        "--max-overhead 0."
    )


class Unsteady(Exception):  # noqa: N818 (reads better where it is raised)
    """The goroutine changed while we read it, or makes no sense at this moment."""


class _OffStack(Exception):  # noqa: N818
    """A frame pointer leads out of the stack."""


class _G(NamedTuple):
    """The fields of a runtime.g that we need, in their order."""

    lo: int
    hi: int
    sp: int
    pc: int
    bp: int
    status: int
    goid: int
    wait_reason: int
    sequence: int
    start_pc: int
    labels: int


_G_FIELDS = (
    ("stack.lo", "Q"),
    ("stack.hi", "Q"),
    ("sched.sp", "Q"),
    ("sched.pc", "Q"),
    ("sched.bp", "Q"),
    ("atomicstatus", "I"),
    ("goid", "Q"),
    ("waitreason", "B"),
    ("trackingSeq", "B"),
    ("startpc", "Q"),
    ("labels", "Q"),
)


class _Frame(NamedTuple):
    """What a Go frame pointer points at."""

    bp: int
    return_pc: int


class _Stack:
    """The used part of a parked goroutine's stack."""

    def __init__(self, memory: Memory, g: _G) -> None:
        if not (g.lo <= g.sp < g.hi and g.hi - g.lo <= _MAX_STACK_BYTES):
            raise Unsteady
        self._memory = memory
        self._sp, self._hi = g.sp, g.hi
        self._window = memory.read(g.sp, min(g.hi - g.sp, _WINDOW_BYTES))
        self.was_read_again = False

    def frame_at(self, bp: int) -> _Frame:
        if not self._sp <= bp <= self._hi - _FRAME.size or bp % 8:
            raise _OffStack
        return _Frame._make(self._unpack(_FRAME, bp))

    def word_at(self, address: int) -> int:
        if not self._sp <= address <= self._hi - _WORD.size:
            raise _OffStack
        (word,) = self._unpack(_WORD, address)
        return int(word)

    def _unpack(self, kind: struct.Struct, address: int) -> tuple[int, ...]:
        at = address - self._sp
        if at + kind.size <= len(self._window):
            return kind.unpack_from(self._window, at)
        self.was_read_again = True
        return kind.unpack(self._memory.read(address, kind.size))


class GoroutineReader:
    """Reads the goroutines of one target. Looks up once what is the same for all of them."""

    def __init__(self, go: GoTarget, memory: Memory, *, has_labels: bool) -> None:
        self._memory, self._pid = memory, go.target.pid
        self._labels = LabelReader(memory, go.binary.layout) if has_labels else None
        self._binary, self._bias = go.binary, go.load_bias
        self._allgs = allgs_address(go.binary) + go.load_bias
        layout = go.binary.layout
        self._g_bytes = layout.size("g")
        self._record = ascending([(layout.offset("g", name), code) for name, code in _G_FIELDS])
        self._wait_reasons = {number: name for name, number in layout.wait_reasons.items()}
        self._returns = {park.return_pc + go.load_bias for park in go.sites.parks}
        self._semaphores = go.sites.semaphores
        self._semacquires = {
            park.return_pc + go.load_bias for park in go.sites.parks if park.is_semaphore
        }
        self._callback = go.callback
        self._park_pcs: dict[int, bool] = {}
        self._stacks: dict[tuple[int, ...], tuple[int, ...]] = {}

    def all_goroutines(self) -> tuple[list[int], int]:
        """What goroutine_list returns and raises."""
        return goroutine_list(self._memory, self._allgs, self._pid)

    def look(self, address: int) -> tuple[ParkedGoroutine | None, bool]:
        """The goroutine if it is parked in a hooked operation, and whether its stack is whole.

        Raises Unsteady or UnreadableMemory if another attempt may succeed.
        """
        before = self._memory.read(address, self._g_bytes)
        g = _G._make(self._record.unpack_from(before))
        if g.status & ~_SCAN not in _PARKED_STATUSES or not self._is_in_gopark(g.pc):
            return None, True
        stack = _Stack(self._memory, g)
        if self._memory.read(address, self._g_bytes) != before:
            raise Unsteady
        try:
            start = self._start(g, stack)
            if start is None:
                return None, True
            bp, frame = start
            sema = 0
            if self._semaphores and frame.return_pc in self._semacquires:
                sema = stack.word_at(frame.bp + self._semaphores.address_offset)
        except _OffStack:
            raise Unsteady from None
        return_pcs, is_whole = self._walk(bp, frame, stack)
        if not is_whole and g.status & _SCAN:
            raise Unsteady  # the garbage collector is changing its frame pointers one by one
        labels = self._labels_of(g)
        was_read_again = stack.was_read_again or g.labels
        if was_read_again and self._memory.read(address, self._g_bytes) != before:
            raise Unsteady
        pcs = self._stacks.setdefault(return_pcs, return_pcs)  # many goroutines share a stack
        reason = self._wait_reasons.get(g.wait_reason, "")
        found = ParkedGoroutine(
            *(address, g.goid, reason, pcs, sema, g.sequence, labels, g.start_pc)
        )
        return found, is_whole

    def walk(self, hi: int, sp: int, bp: int, *, most: int) -> tuple[tuple[int, ...], bool]:
        """The return addresses from the frame at `bp` outwards, and whether they reach the end.

        Of a stack that is in use from `sp` to `hi`; at most `most` addresses. Raises Unsteady or
        UnreadableMemory.
        """
        g = _G(sp, hi, sp, *[0] * (len(_G._fields) - 3))
        stack = _Stack(self._memory, g)
        try:
            return self._walk(bp, stack.frame_at(bp), stack, most)
        except _OffStack:
            return (), False

    def _labels_of(self, g: _G) -> tuple[Label, ...] | None:
        if self._labels is None:
            return ()
        try:
            return self._labels.read(g.labels)
        except UnreadableMemory:
            return None

    def _is_in_gopark(self, pc: int) -> bool:
        """Whether the saved pc is in gopark, inlined or not: other code saves its pc there, too."""
        known = self._park_pcs.get(pc)
        if known is None:
            frames = self._binary.frames(pc - 1 - self._bias)
            known = self._park_pcs[pc] = any(frame.function == _PARK for frame in frames)
        return known

    def _start(self, g: _G, stack: _Stack) -> tuple[int, _Frame] | None:
        """The frame that returns to the hooked operation, and its address; None without one.

        As start_parked of bpf/probes/goroutine_stack.h: usually the frame of gopark, else that of
        goparkunlock. Where both were inlined there is no frame, and the address is 0.
        """
        first = stack.frame_at(g.bp)
        if first.return_pc in self._returns:
            return g.bp, first
        if g.pc in self._returns:
            return 0, _Frame(g.bp, g.pc)
        if first.bp == 0:
            return None
        second = stack.frame_at(first.bp)
        if second.return_pc in self._returns:
            return first.bp, second
        return None

    def _walk(
        self, bp: int, frame: _Frame, stack: _Stack, most: int = _MAX_DEPTH
    ) -> tuple[tuple[int, ...], bool]:
        """The return addresses from `frame` outwards, and whether they reach the stack's end."""
        pcs: list[int] = []
        callback_bp = 0
        while len(pcs) < most:
            pcs.append(frame.return_pc)
            if self._callback and frame.return_pc == self._callback.return_pc + self._bias:
                callback_bp = bp
            below = self._frame_below(bp, frame, callback_bp)
            if below == 0:
                break
            if below <= bp:
                return tuple(pcs), False
            try:
                frame = stack.frame_at(below)
            except _OffStack:
                return tuple(pcs), False
            bp = below
        return tuple(pcs), True

    def _frame_below(self, bp: int, frame: _Frame, callback_bp: int) -> int:
        """The address of the caller's frame, 0 for the outermost: frame_below of fp_unwind.h."""
        callback = self._callback
        if callback is None or callback_bp == 0:
            return frame.bp
        switch_bp = callback_bp + callback.switch_offset - 8
        caller_bp = callback_bp + callback.caller_offset - 8 if callback.caller_offset else 0
        if bp == callback_bp:
            return switch_bp
        if bp == switch_bp:
            if frame.return_pc != callback.switch_pc + self._bias:
                return 0  # C code made the first call: no Go frames below
            return caller_bp or callback_bp + callback.frame_offset
        if bp == caller_bp:
            return callback_bp + callback.frame_offset
        return frame.bp


def _pause_before(attempt: int) -> None:
    """Let the target run before the second attempt, and longer before each later one."""
    if attempt > 0:
        time.sleep(_PAUSE_S * 2 ** (attempt - 1))


def ascending(fields: list[tuple[int, str]]) -> struct.Struct:
    """A struct of fields, given as ascending offsets with format letters of struct."""
    text, end = "<", 0
    for offset, code in fields:
        text += f"{offset - end}x{code}"
        end = offset + struct.calcsize(f"<{code}")
    return struct.Struct(text)
