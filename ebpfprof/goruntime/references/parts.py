"""Reads many parts of a target's memory, in blocks of limited size: neighbours by one read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.references.slots import Words
    from ebpfprof.process.memory import Memory

    Numbers = npt.NDArray[np.int64]

WORD_BYTES: Final = 8
BLOCK_BYTES: Final = 1 << 20
_GAP_BYTES: Final = 256
"""What lies between two parts is read, too, if it is less: another read would take longer."""
_MAX_PIECES: Final = 1024  # UIO_MAXIOV


class Block(NamedTuple):
    """Parts `first` to `last` (without that), and their memory; `at` is each one's first word."""

    first: int
    last: int
    words: Words
    at: Numbers


def blocks(memory: Memory, starts: Numbers, sizes: Numbers) -> Iterator[Block]:
    """The parts at these addresses, ascending, of these sizes (bytes), multiples of a word.

    Each is at most BLOCK_BYTES long. What is unmapped reads as 0. `words` are valid until the next
    block.
    """
    if not len(starts):
        return
    ends = starts + sizes
    begins = np.concatenate([[True], starts[1:] - ends[:-1] > _GAP_BYTES])
    rows = np.flatnonzero(begins)
    piece_starts = starts[rows]
    piece_ends = ends[np.append(rows[1:], len(starts)) - 1]
    lengths = piece_ends - piece_starts
    shift = piece_starts - (np.cumsum(lengths) - lengths)
    pieces = np.cumsum(begins) - 1
    at = starts - shift[pieces]
    behind = at + sizes
    buffer = np.zeros(BLOCK_BYTES // WORD_BYTES, np.uint64)
    first = 0
    while first < len(starts):
        begin = int(at[first])
        last = int(np.searchsorted(behind, begin + BLOCK_BYTES, side="right"))
        chosen = slice(int(pieces[first]), int(pieces[last - 1]) + 1)
        there = np.stack([piece_starts[chosen], piece_ends[chosen]], axis=1)
        there[0, 0], there[-1, 1] = starts[first], ends[last - 1]
        there[:, 1] -= there[:, 0]
        words = buffer[: int(there[:, 1].sum()) // WORD_BYTES]
        read_pieces(memory, words, there)
        yield Block(first, last, words, (at[first:last] - begin) // WORD_BYTES)
        first = last


def read_pieces(memory: Memory, words: Words, pieces: Numbers) -> None:
    """Read pieces, each an address and a size in bytes, into `words`, one behind the other.

    A piece that can't be read as a whole is 0.
    """
    ends = np.cumsum(pieces[:, 1])
    done = 0
    while done < len(pieces):
        begin = int(ends[done - 1]) if done else 0
        rest = pieces[done : done + _MAX_PIECES]
        size = int(ends[done + len(rest) - 1]) - begin
        local = np.array([words.ctypes.data + begin, size], np.uint64)
        got = max(0, memory.read_pieces(local.ctypes.data, 1, rest.ctypes.data, len(rest)))
        whole = int(np.searchsorted(ends, begin + got, side="right"))
        if got < size:  # the next piece could not be read, or only in part
            lost = int(ends[whole - 1]) if whole else 0
            words[lost // WORD_BYTES : int(ends[whole]) // WORD_BYTES] = 0
            whole += 1
        done = max(whole, done + 1)
