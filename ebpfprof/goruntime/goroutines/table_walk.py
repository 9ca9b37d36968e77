"""Walks a goroutine's stack by the tables of the program, as Go's own tracebacks do.

Walks along frame pointers (stack_walk) are faster, and find the same callers of Go code. Tables
also show where the arguments of each function lie, and find callers of assembly without frame
pointers (runtime/traceback.go: gentraceback in Go 1.19, unwinder in Go 1.21 to 1.27; amd64).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from symbolizer.frames import FuncRole

if TYPE_CHECKING:
    from symbolizer import GoBinary

_WORD: Final = struct.Struct("<Q")
_IS_OUTERMOST, _WRITES_SP = 1, 2  # abi.FuncFlag


class StackCopy(NamedTuple):
    """A stack, as it was copied: where it begins, and its bytes from the address `base` on.

    `pc` and `sp` are those with which the goroutine continues, or of its call of
    runtime.entersyscall if it is in a system call; `hi` is the end of the stack.
    """

    pc: int
    sp: int
    hi: int
    is_syscall: bool
    base: int
    data: bytes


class TableWalk(NamedTuple):
    """The physical frames of a stack, innermost first.

    `pcs` are runtime addresses: where it continues, then return addresses. `ends` are where the
    frames end, in the same order: behind their return addresses. `is_whole` shows that they reach
    the outermost function. `unknown_pc` is the address of no function at which the walk ended, 0 if
    it ended elsewhere.
    """

    pcs: tuple[int, ...]
    ends: tuple[int, ...]
    is_whole: bool
    unknown_pc: int = 0


class _Step(NamedTuple):
    """What is known of an address: how large the frame is there, and whether it has a caller."""

    is_function: bool
    frame_bytes: int
    is_outermost: bool
    writes_sp: bool


class TableWalker:
    """Walks stacks of one target. Looks up each address once. Methods raise GoTableError."""

    def __init__(self, binary: GoBinary, bias: int) -> None:
        """`bias` is runtime address minus linked address."""
        self._binary, self._bias = binary, bias
        self._steps: dict[int, _Step] = {}

    def walk(self, stack: StackCopy, *, most: int) -> TableWalk:
        """Walk a stack; at most `most` frames of it.

        Frames lie one behind the other, so no stack is a circle.
        """
        pcs: list[int] = []
        ends: list[int] = []
        pc, sp, base, data = stack.pc, stack.sp, stack.base, stack.data
        last = min(stack.hi - base, len(data)) - _WORD.size
        if pc == 0 and 0 <= sp - base <= last:  # a call of nil: the caller is on top
            (pc,) = _WORD.unpack_from(data, sp - base)
            sp += _WORD.size
        while len(pcs) < most:
            step = self._steps.get(pc) or self._look_up(pc)
            if step.frame_bytes < 0:
                unknown = 0 if step.is_function else pc
                return TableWalk(tuple(pcs), tuple(ends), step.is_function, unknown)
            at = sp - base + step.frame_bytes
            if not 0 <= at <= last:
                break
            sp = base + at + _WORD.size
            # A function that makes a system call changes SP only after that was noted.
            leaves = step.writes_sp and (pcs or not stack.is_syscall)
            pcs.append(pc)
            ends.append(sp)
            if step.is_outermost or leaves:
                return TableWalk(tuple(pcs), tuple(ends), is_whole=True)
            (pc,) = _WORD.unpack_from(data, at)
            if pc == 0:
                return TableWalk(tuple(pcs), tuple(ends), is_whole=True)
        return TableWalk(tuple(pcs), tuple(ends), is_whole=False)

    def _look_up(self, pc: int) -> _Step:
        binary, linked = self._binary, pc - self._bias
        function = binary.function_at(linked)
        if function is None:
            step = _Step(is_function=False, frame_bytes=-1, is_outermost=False, writes_sp=False)
        else:
            is_callback = binary.layout.role(function.func_id) is FuncRole.CGOCALLBACK
            step = _Step(
                is_function=True,
                frame_bytes=binary.sp_delta(linked),
                is_outermost=bool(function.flags & _IS_OUTERMOST),
                writes_sp=bool(function.flags & _WRITES_SP) and not is_callback,
            )
        self._steps[pc] = step
        return step
