"""The words on a goroutine's stack, frame by frame."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.process.memory import Memory

_MAX_STACK_BYTES: Final = 1 << 16
_FRAME_BYTES: Final = 16  # the frame pointer and the return address, between a frame and arguments
# The compiler keeps arguments that come in registers above the return address, nine words at most
# (cmd/compile/abi-internal.md).
_ARGUMENT_BYTES: Final = 9 * 8


class StackWords:
    """The words of a goroutine's stack, frame by frame."""

    def __init__(
        self, memory: Memory, goroutine: Goroutine, argument_bytes: Callable[[int], int | None]
    ) -> None:
        """`argument_bytes` says how much of its arguments a function keeps, by a return address in
        it; None if it is not known."""
        self._argument_bytes = argument_bytes
        self.pcs, words = goroutine.pcs, goroutine.words
        self._memory, self._sp, self._hi, self._bp = memory, words.sp, words.hi, words.bp
        self._words: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._ends: list[int] | None = None

    def of_frame(self, number: int) -> list[int]:
        """The words of a physical frame and of the arguments that it was given.

        [] if the stack can't be read, or is another one now.
        """
        if self._ends is None:
            self._ends = self._read()
        if number >= len(self._ends):
            return []
        start = self._ends[number - 1] + 16 if number else self._sp
        arguments = self._argument_bytes(self.pcs[number])
        end = self._ends[number] + _FRAME_BYTES
        end += min(_ARGUMENT_BYTES if arguments is None else arguments, _ARGUMENT_BYTES)
        words: list[int] = self._words[(start - self._sp) // 8 : (end - self._sp) // 8].tolist()
        return words

    def _read(self) -> list[int]:
        size = min(self._hi - self._sp, _MAX_STACK_BYTES) // 8 * 8
        if size > 0:
            with suppress(UnreadableMemory):  # its stack has moved: no words of it
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
