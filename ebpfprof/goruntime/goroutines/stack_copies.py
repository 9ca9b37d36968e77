"""Copies the used parts of many goroutines' stacks from a target's memory, some at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.table_walk import StackCopy
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ebpfprof.process.memory import Memory

_LEAST_BYTES: Final = 256
_MOST_BYTES: Final = 16 << 20  # of one stack: the frames beyond are missing
_TOGETHER_BYTES: Final = 8 << 20  # but for a stack that is larger by itself
_MOST_STACK_BYTES: Final = 1 << 30  # runtime.maxstacksize


class StackStart(NamedTuple):
    """Where the used part of a stack begins and ends, and with which pc (see StackCopy)."""

    pc: int
    sp: int
    hi: int
    is_syscall: bool

    @property
    def used_bytes(self) -> int:
        """The size of the used part, 0 for what can't be a stack."""
        used = self.hi - self.sp
        return used if 0 < used <= _MOST_STACK_BYTES else 0


def copies(memory: Memory, starts: Mapping[int, StackStart]) -> Iterator[dict[int, StackCopy]]:
    """Copies of the stacks, by their numbers: as many at a time as fit into some megabytes.

    Those of similar size are read together. What can't be read is missing. Raises TargetGone.
    """
    by_size = defaultdict[int, list[int]](list)
    for number, start in starts.items():
        if start.used_bytes:
            # A power of two, as the sizes of stacks are: so the copy lies within the stack.
            size = max(_LEAST_BYTES, 1 << (start.used_bytes - 1).bit_length())
            by_size[size].append(number)
    for size, numbers in sorted(by_size.items()):
        together = max(1, _TOGETHER_BYTES // size)
        for first in range(0, len(numbers), together):
            some = numbers[first : first + together]
            yield _copied(memory, {number: starts[number] for number in some}, size)


def _copied(memory: Memory, starts: dict[int, StackStart], size: int) -> dict[int, StackCopy]:
    if size > _MOST_BYTES:
        return {
            number: StackCopy(
                *start, start.sp, _read(memory, start.sp, min(start.used_bytes, size))
            )
            for number, start in starts.items()
        }
    places = np.array([start.hi - size for start in starts.values()], np.uint64)
    records = memory.read_records(places, np.dtype((np.void, size)))
    return {
        number: StackCopy(*start, start.hi - size, record.tobytes())
        for (number, start), record in zip(starts.items(), records, strict=True)
    }


def _read(memory: Memory, address: int, size: int) -> bytes:
    try:
        return memory.read(address, min(size, _MOST_BYTES))
    except UnreadableMemory:
        return b""
