"""pc-value tables: how pclntab says "from here to there the value is v" (runtime/symtab.go).

A table is a list of pairs of variable-length integers: the change of the value, zigzag encoded and
counted from -1, and the number of bytes of code for which the new value holds. A zero byte ends it.
No integer but the first is ever zero, so that the next zero byte after the first is the end.
"""

from bisect import bisect_right
from typing import Final

from symbolizer.errors import GoTableError
from symbolizer.filetable import FileTable

NO_VALUE: Final = -1
"""What a table says where it has nothing to say."""

_MAX_TABLE_BYTES = 1 << 20
_INT32_MAX = (1 << 31) - 1
_UINT32_MAX = (1 << 32) - 1


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


def read_pc_values(pctab: FileTable, position: int) -> PcValues:
    """Decode the table at `position`; position 0 is Go's "no table".

    Raises GoTableError for one that does not end or breaks off, or whose numbers have more than 32
    bits.
    """
    if position == 0:
        return EMPTY
    return decode(pctab.terminated(position, 1, _MAX_TABLE_BYTES))


def decode(table: bytes) -> PcValues:
    """Decode a table without the zero that ends it. Raises GoTableError as `read_pc_values`."""
    ends: list[int] = []
    values: list[int] = []
    end = 0
    value = NO_VALUE
    index = 0
    size = len(table)
    try:
        while index < size:
            # Most numbers are one byte; a call for each would take twice as long.
            change = table[index]
            index += 1
            if change >= 0x80:
                change, index = _long_varint(table, index, change)
            step = table[index]
            index += 1
            if step >= 0x80:
                step, index = _long_varint(table, index, step)
            value += -(change >> 1) - 1 if change & 1 else change >> 1
            end += step
            values.append(value)
            ends.append(end)
    except IndexError:
        raise GoTableError("a pc-value table breaks off in the middle of a pair") from None
    if end > _UINT32_MAX or max(values) > _INT32_MAX or min(values) < -_INT32_MAX - 1:
        raise GoTableError("a pc-value table holds a number of more than 32 bits")
    return PcValues(ends, values)


def _long_varint(table: bytes, index: int, first: int) -> tuple[int, int]:
    """Return an integer whose first byte is `first`, and the index after it."""
    number = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = table[index]
        index += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, index
    raise GoTableError("a pc-value table holds a number of more than 32 bits")
