"""pc-value tables: values of ranges of code in pclntab (runtime/symtab.go).

A table is a list of pairs of variable-length integers: the change of the value, zigzag encoded and
counted from -1, and the number of bytes of code for which the new value holds. A zero byte ends it.
Only the first integer can be zero, so the next zero byte after it is the end.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from symbolizer.elf.table import FileTable
from symbolizer.errors import GoTableError

NO_VALUE: Final = -1
"""The value where a table has none."""

_MAX_TABLE_BYTES = 1 << 20
_MAX_VARINT_BYTES = 5
_SMALL_TABLE_BYTES = 1 << 10
_CODE_BITS = 32
"""Of offsets in the code of one function."""

_INT32_END = 1 << 31

Integers = npt.NDArray[np.int64]


def read_table(pctab: FileTable, position: int) -> bytes:
    """Return the bytes of the table at `position`, without the zero that ends it.

    Position 0 is Go's "no table". Raises GoTableError for one that does not end.
    """
    return pctab.terminated(position, 1, _MAX_TABLE_BYTES) if position else b""


def value_at(table: bytes, code_offset: int) -> int:
    """Return one value of one table as `read_table` returns it; NO_VALUE past its end.

    For small tables it takes a tenth of the time of PcValues, which it uses for others. Raises
    GoTableError as PcValues does, but does not look at what lies behind the value.
    """
    if len(table) > _SMALL_TABLE_BYTES or code_offset < 0:
        return int(PcValues([table]).at(np.array([0]), np.array([code_offset]))[0])
    return next((value for end, value in _steps(table) if code_offset < end), NO_VALUE)


def steps(table: bytes) -> list[tuple[int, int]]:
    """Return a whole table as (offset where a range ends, its value), ascending.

    As PcValues.steps(), which it uses for large tables. Raises GoTableError as PcValues does.
    """
    return PcValues([table]).steps(0) if len(table) > _SMALL_TABLE_BYTES else [*_steps(table)]


def _steps(table: bytes) -> Iterator[tuple[int, int]]:
    value, end = NO_VALUE, 0
    numbers = _numbers(table)
    for change in numbers:
        step = next(numbers, None)
        if step is None:
            raise GoTableError("a pc-value table is cut off inside a pair")
        value += (change >> 1) ^ -(change & 1)
        end += step
        if abs(value) >= _INT32_END or end >> _CODE_BITS:
            raise GoTableError("a pc-value table has a number of more than 32 bits")
        yield end, value


class PcValues:
    """Decoded tables, for many lookups at a time."""

    def __init__(self, tables: Sequence[bytes]) -> None:
        """Decode tables as `read_table` returns them.

        Raises GoTableError for one that is cut off, or that has a number of more than 32 bits.
        """
        numbers, counts = _varints(tables)
        if np.any(counts & 1):
            raise GoTableError("a pc-value table is cut off inside a pair")
        pairs = counts // 2
        changes, steps = numbers[0::2], numbers[1::2]
        self._values = _running_sums((changes >> 1) ^ -(changes & 1), pairs) + NO_VALUE
        ends = _running_sums(steps, pairs)
        if np.any(np.abs(self._values) >= _INT32_END) or np.any(ends >> _CODE_BITS):
            raise GoTableError("a pc-value table has a number of more than 32 bits")
        # With the table's number in front, all ends together are in ascending order.
        self._ends = ends | np.repeat(np.arange(len(tables)), pairs) << _CODE_BITS
        self._stops = np.cumsum(pairs)

    def at(self, tables: Integers, code_offsets: Integers) -> Integers:
        """Return the value of table number tables[i] at code_offsets[i], for each i.

        Offsets count in bytes from the function's entry; NO_VALUE past the table's end.
        """
        keys = np.clip(code_offsets, 0, (1 << _CODE_BITS) - 1) | tables << _CODE_BITS
        places = np.searchsorted(self._ends, keys, side="right")
        result = np.full(len(keys), NO_VALUE, dtype=np.int64)
        inside = places < self._stops[tables]
        result[inside] = self._values[places[inside]]
        return result

    def steps(self, table: int) -> list[tuple[int, int]]:
        """Return a whole table as (offset where a range ends, its value), ascending."""
        start = int(self._stops[table - 1]) if table else 0
        stop = int(self._stops[table])
        ends = self._ends[start:stop] & ((1 << _CODE_BITS) - 1)
        return list(zip(ends.tolist(), self._values[start:stop].tolist(), strict=True))


def _numbers(table: bytes) -> Iterator[int]:
    """The integers of a table."""
    number, bits = 0, 0
    for byte in table:
        number |= (byte & 0x7F) << bits
        bits += 7
        if byte < 0x80:
            yield number
            number, bits = 0, 0
        elif bits == 7 * _MAX_VARINT_BYTES:
            raise GoTableError("a pc-value table has a number of more than 32 bits")
    if bits:
        raise GoTableError("a pc-value table is cut off inside a number")


def _varints(tables: Sequence[bytes]) -> tuple[Integers, Integers]:
    """Return the integers of all tables one after the other, and how many each table has."""
    data = np.frombuffer(b"".join(tables), np.uint8)
    sizes = np.fromiter(map(len, tables), np.int64, len(tables))
    stops = np.cumsum(sizes)
    is_last = data < 0x80
    if not np.all(is_last[stops[sizes > 0] - 1]):
        raise GoTableError("a pc-value table is cut off inside a number")
    last = np.flatnonzero(is_last)
    counts = np.diff(np.searchsorted(last, stops), prepend=0)
    if len(last) == len(data):
        return data.astype(np.int64), counts
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = last - first + 1
    if int(lengths.max()) > _MAX_VARINT_BYTES:
        raise GoTableError("a pc-value table has a number of more than 32 bits")
    place = np.arange(len(data)) - np.repeat(first, lengths)
    parts = (data & 0x7F).astype(np.int64) << (7 * place)
    return np.add.reduceat(parts, first), counts


def _running_sums(numbers: Integers, counts: Integers) -> Integers:
    """Return the running sums of consecutive groups of `counts` numbers, each group from 0."""
    sums: Integers = np.cumsum(numbers)
    stops = np.cumsum(counts)
    before = np.concatenate([[0], sums])[stops - counts]
    sums -= np.repeat(before, counts)
    return sums
