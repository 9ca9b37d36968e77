"""pc-value tables: how pclntab says "from here to there the value is v" (runtime/symtab.go).

A table is a list of pairs of variable-length integers: the change of the value, zigzag encoded and
counted from -1, and the number of bytes of code for which the new value holds. A zero byte ends it.
No integer but the first is ever zero, so that the next zero byte after the first is the end.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from symbolizer.errors import GoTableError
from symbolizer.filetable import FileTable

NO_VALUE: Final = -1
"""What a table says where it has nothing to say."""

_MAX_TABLE_BYTES = 1 << 20
_MAX_VARINT_BYTES = 5
_INT32_END = 1 << 31
_UINT32_END = 1 << 32


class PcValues:
    """One decoded table of one function. Code offsets in bytes from the function's entry."""

    __slots__ = ("ends", "values")

    def __init__(self, ends: list[int], values: list[int]) -> None:
        self.ends = ends
        self.values = values

    def at(self, code_offset: int) -> int:
        """Return the value at the offset, NO_VALUE past the table's end."""
        index = bisect_right(self.ends, code_offset)
        return self.values[index] if index < len(self.values) else NO_VALUE


EMPTY: Final = PcValues([], [])


def read_table(pctab: FileTable, position: int) -> bytes:
    """Return the bytes of the table at `position` without the zero that ends it.

    Position 0 is Go's "no table". Raises GoTableError for one that does not end.
    """
    return pctab.terminated(position, 1, _MAX_TABLE_BYTES) if position else b""


def decode(tables: Sequence[bytes]) -> list[PcValues]:
    """Decode tables as `read_table` returns them. Many at once are much faster than one by one.

    Raises GoTableError for one that breaks off, or whose values are no 32-bit integers.
    """
    numbers, counts = _varints(tables)
    if np.any(counts & 1):
        raise GoTableError("a pc-value table breaks off in the middle of a pair")
    pairs = counts // 2
    changes = (numbers[0::2] >> 1) ^ -(numbers[0::2] & 1)
    values = _running_sums(changes, pairs) + NO_VALUE
    ends = _running_sums(numbers[1::2], pairs)
    if np.any(values >= _INT32_END) or np.any(values < -_INT32_END) or np.any(ends >= _UINT32_END):
        raise GoTableError("a pc-value table holds a number of more than 32 bits")
    all_ends, all_values = ends.tolist(), values.tolist()
    stops = np.cumsum(pairs).tolist()
    starts = [0, *stops[:-1]]
    return [
        PcValues(all_ends[start:stop], all_values[start:stop]) if stop > start else EMPTY
        for start, stop in zip(starts, stops, strict=True)
    ]


_Integers = npt.NDArray[np.int64]


def _varints(tables: Sequence[bytes]) -> tuple[_Integers, _Integers]:
    """Return the integers of all tables in a row, and how many each table has."""
    data = np.frombuffer(b"".join(tables), np.uint8)
    sizes = np.fromiter(map(len, tables), np.int64, len(tables))
    is_last = data < 0x80
    stops = np.cumsum(sizes)
    if not np.all(is_last[stops[sizes > 0] - 1]):
        raise GoTableError("a pc-value table breaks off in the middle of an integer")
    last = np.flatnonzero(is_last)
    counts = np.diff(np.searchsorted(last, stops), prepend=0)
    if len(last) == len(data):
        return data.astype(np.int64), counts
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = last - first + 1
    if int(lengths.max()) > _MAX_VARINT_BYTES:
        raise GoTableError("a pc-value table holds a number of more than 32 bits")
    place = np.arange(len(data)) - np.repeat(first, lengths)
    parts = (data & 0x7F).astype(np.int64) << (7 * place)
    return np.add.reduceat(parts, first), counts


def _running_sums(numbers: _Integers, counts: _Integers) -> _Integers:
    """Return the running sums of consecutive groups of `counts` numbers, each from 0."""
    sums: _Integers = np.cumsum(numbers)
    stops = np.cumsum(counts)
    before = np.concatenate([[0], sums])[stops - counts]
    sums -= np.repeat(before, counts)
    return sums
