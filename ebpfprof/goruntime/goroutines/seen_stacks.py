"""Recognises stacks that were walked before, many at once.

To walk a stack in Python takes ten times as long as to read it. Goroutines come back to the same
stacks, so we keep where on a stack its return addresses and frame pointers were, and compare. That
takes two steps. What runtime.g has, and the size of the stack, select the words to compare; what
these words are selects the stack. It is the one that a walk would find: all that a walk reads is
equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from ebpfprof.goruntime.goroutines.stack_copies import WINDOW_WORDS

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.stack_copies import Copies

    Column = npt.NDArray[np.uint64]
    _Scalar = TypeVar("_Scalar", bound=np.generic)

UNKNOWN: Final = -1
_KEYS: Final = 5
_MAX_WORDS: Final = 64  # of a stack, two for each frame
_FEW: Final = 4  # there is room for as many at first
_MAX_STACKS: Final = 1 << 13
_STATE_BITS: Final = np.uint64(0xFFFF)  # of a wait: g.waitreason and g.atomicstatus
_FACTOR: Final = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio
_FACTORS: Final = np.array([pow(_FACTOR, n, 1 << 64) for n in range(1, _MAX_WORDS + 1)], np.uint64)
_FACTORS.flags.writeable = False


@dataclass(eq=False, slots=True)
class SeenStack:
    """A whole stack, the word of its semaphore or -1, and what its user keeps with it."""

    pcs: tuple[int, ...]
    sema_at: int
    kept: int = UNKNOWN


class SeenStacks:
    """The stacks that one target's goroutines were seen with."""

    def __init__(self, max_stacks: int = _MAX_STACKS) -> None:
        """All are forgotten when there are `max_stacks`."""
        self._max_stacks = max_stacks
        self.stacks: list[SeenStack] = []
        """By the numbers that find() returns."""
        self._shapes: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        # Of each shape: its keys, which words, WINDOW_WORDS for none, and 1 for a word that is an
        # address on the stack. Of each stack: its words, such addresses without the stack pointer.
        self._keys = np.zeros((_FEW, _KEYS), np.uint64)
        self._at = np.full((_FEW, _MAX_WORDS), WINDOW_WORDS, np.int64)
        self._moves = np.zeros((_FEW, _MAX_WORDS), np.uint64)
        self._words = np.zeros((_FEW, _MAX_WORDS), np.uint64)
        self._width = 0

    def find(
        self, copies: Copies, rows: npt.NDArray[np.int64], words: Column
    ) -> npt.NDArray[np.int64]:
        """The numbers of the stacks in these rows; UNKNOWN for one that must be walked.

        `words` has the stacks from their stack pointers on. Only for rows that are exact.
        """
        keys = _keys(copies, rows)
        shapes = _numbers(self._shapes, _hashes(keys))
        held = self._held(copies, rows, words, shapes)
        numbers = _numbers(self._numbers, _hashes(held) + shapes.astype(np.uint64))
        is_seen = (shapes != UNKNOWN) & (numbers != UNKNOWN)
        is_seen &= (self._keys[shapes] == keys).all(axis=1)
        is_seen &= (self._words[numbers, : self._width] == held).all(axis=1)
        numbers[~is_seen] = UNKNOWN
        return numbers

    def learn(self, copies: Copies, row: int, words: Column, stack: SeenStack) -> None:
        """Keep the stack in a row that is exact, and was walked to its end in its window."""
        sp, bp = int(copies.sps[row]), int(copies.bps[row])
        at = _frame_words(words[row].data, sp, bp, 2 * len(stack.pcs))
        if len(at) > _MAX_WORDS:
            return
        if len(self.stacks) >= self._max_stacks:
            for table in (self.stacks, self._shapes, self._numbers):
                table.clear()
        rows = np.array([row])
        keys = _keys(copies, rows)
        key = int(_hashes(keys)[0])
        shape = self._shapes.setdefault(key, len(self._shapes))
        number = max(shape, len(self.stacks))
        self._keys = _with_room(self._keys, number)
        self._at = _with_room(self._at, number)
        self._moves = _with_room(self._moves, number)
        self._words = _with_room(self._words, number)
        # Of two shapes with the same key, the last one counts: stacks of the other are walked.
        self._keys[shape] = keys[0]
        self._at[shape] = WINDOW_WORDS
        self._at[shape, : len(at)] = at
        self._moves[shape] = 0
        self._moves[shape, : len(at) : 2] = [words[row, column] != 0 for column in at[::2]]
        self._width = max(self._width, len(at))
        held = self._held(copies, rows, words, np.array([shape]))
        number = len(self.stacks)
        self._words[number, : self._width] = held[0]
        self._numbers[(int(_hashes(held)[0]) + shape) % (1 << 64)] = number
        self.stacks.append(stack)

    def _held(
        self,
        copies: Copies,
        rows: npt.NDArray[np.int64],
        words: Column,
        shapes: npt.NDArray[np.int64],
    ) -> Column:
        """What the words are that these shapes compare."""
        at, moves = self._at[shapes, : self._width], self._moves[shapes, : self._width]
        held: Column = words[rows[:, None], at] - moves * copies.sps[rows, None]
        return held


def _keys(copies: Copies, rows: npt.NDArray[np.int64]) -> Column:
    """What selects the words of a stack to compare, but for the callers' frames."""
    keys = np.empty((len(rows), _KEYS), np.uint64)
    sps = copies.sps[rows]
    keys[:, 0] = copies.waits[rows] & _STATE_BITS
    keys[:, 1] = copies.pcs[rows]
    keys[:, 2] = copies.bps[rows] - sps
    keys[:, 3] = copies.g["hi"][rows] - sps
    keys[:, 4] = copies.g["start_pc"][rows]
    return keys


def _hashes(columns: Column) -> Column:
    hashes: Column = (columns * _FACTORS[: columns.shape[1]]).sum(axis=1, dtype=np.uint64)
    return hashes


def _numbers(known: dict[int, int], hashes: Column) -> npt.NDArray[np.int64]:
    return np.array([known.get(key, UNKNOWN) for key in hashes.tolist()], np.int64)


def _frame_words(words: memoryview, sp: int, bp: int, most: int) -> list[int]:
    """Which words have the frame pointers and return addresses of a stack, in turn."""
    indices: list[int] = []
    while bp and len(indices) < most:
        at = (bp - sp) // 8
        indices += (at, at + 1)
        bp = words[at]
    return indices


def _with_room(array: npt.NDArray[_Scalar], number: int) -> npt.NDArray[_Scalar]:
    """The array, with room for an element of this number."""
    return array if number < len(array) else np.concatenate((array, np.zeros_like(array)))
