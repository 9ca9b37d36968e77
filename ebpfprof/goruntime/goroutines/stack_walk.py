"""Walks goroutines' stacks along their frame pointers: in copies of them, or in memory."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from ebpfprof.process.memory import Memory
    from symbolizer.codeanalysis.cgo_callback import CgoCallback

_MAX_STACK_BYTES: Final = 1 << 30  # runtime.maxstacksize
_WINDOW_BYTES: Final = 1 << 14  # of a stack, read together
_FRAME: Final = struct.Struct("<QQ")


class Walk(NamedTuple):
    """The addresses on a stack, innermost first; whether they reach its outermost function."""

    pcs: tuple[int, ...]
    is_whole: bool


class _Frame(NamedTuple):
    """What a Go frame pointer points at."""

    bp: int
    return_pc: int


class _OffStack(Exception):  # noqa: N818 (reads better where it is raised)
    """A frame pointer leads out of the stack."""


class StackWalker:
    """Walks the stacks of one target.

    A walk begins at the pc with which a goroutine continues, its stack pointer and its frame
    pointer. A goroutine that has not begun to run has no frame pointer: its stack is its pc alone.
    """

    def __init__(
        self,
        memory: Memory,
        callback: CgoCallback | None,
        bias: int,
        *,
        most: int,
        most_in_memory: int = 1 << 62,
    ) -> None:
        """Return at most `most` addresses of a stack that is walked in memory.

        Of all stacks after begin() together, walk `most_in_memory` frames there. `callback` says
        how the program's stacks look where C called back; `bias` is runtime address minus linked.
        """
        self._memory, self._callback, self._bias, self._most = memory, callback, bias, most
        self._callback_pc = callback.return_pc + bias if callback else -1
        self._most_in_memory = self._left = most_in_memory

    def begin(self) -> None:
        """Begin with other stacks: see __init__."""
        self._left = self._most_in_memory

    def in_copy(self, words: memoryview, hi: int, pc: int, sp: int, bp: int) -> Walk | None:
        """Walk a stack that ends at `hi` in `words`, which are those from `sp` on.

        None if it continues beyond them, or if C called back: then in_memory() can walk it.
        """
        walk = copied(words, hi, pc, sp, bp)
        return None if walk is None or self._callback_pc in walk.pcs else walk

    def in_memory(self, hi: int, pc: int, sp: int, bp: int) -> Walk:
        """Walk a stack that ends at `hi` in the target's memory. Raises TargetGone."""
        if not (sp < hi and hi - sp <= _MAX_STACK_BYTES):
            return Walk((pc,), is_whole=False)
        pcs, is_whole = [pc], False
        try:
            stack = _Stack(self._memory, sp, hi)
            is_whole = self._walk(stack, bp, pcs, min(self._most, self._left))
        except (_OffStack, UnreadableMemory):
            pass
        self._left -= len(pcs) - 1
        return Walk(tuple(pcs), is_whole)

    def _walk(self, stack: _Stack, bp: int, pcs: list[int], most: int) -> bool:
        """Append the return addresses from the frame at `bp` on; return if they are all.

        Raises _OffStack or UnreadableMemory.
        """
        callback_bp = 0
        while bp and len(pcs) < most:
            frame = stack.frame_at(bp)
            pcs.append(frame.return_pc)
            if frame.return_pc == self._callback_pc:
                callback_bp = bp
            above = self._frame_above(bp, frame, callback_bp)
            if above and above <= bp:
                return False
            bp = above
        return bp == 0

    def _frame_above(self, bp: int, frame: _Frame, callback_bp: int) -> int:
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


def copied(words: memoryview, hi: int, pc: int, sp: int, bp: int) -> Walk | None:
    """As StackWalker.in_copy, of a stack in which C did not call back."""
    pcs = [pc]
    while bp:
        at = bp - sp
        if at < 0 or at % 8 or bp + 16 > hi:
            return Walk(tuple(pcs), is_whole=False)
        index = at // 8
        if index + 1 >= len(words):
            return None
        pcs.append(words[index + 1])
        above = words[index]
        if above and above <= bp:
            return Walk(tuple(pcs), is_whole=False)
        bp = above
    return Walk(tuple(pcs), is_whole=True)


class _Stack:
    """The used part of a stack in the target's memory."""

    def __init__(self, memory: Memory, sp: int, hi: int) -> None:
        self._memory, self._sp, self._hi = memory, sp, hi
        self._window = memory.read(sp, min(hi - sp, _WINDOW_BYTES))

    def frame_at(self, bp: int) -> _Frame:
        if not self._sp <= bp <= self._hi - _FRAME.size or bp % 8:
            raise _OffStack
        at = bp - self._sp
        if at + _FRAME.size <= len(self._window):
            return _Frame._make(_FRAME.unpack_from(self._window, at))
        return _Frame._make(_FRAME.unpack(self._memory.read(bp, _FRAME.size)))
