"""pc-value tables: how pclntab says "from here to there the value is v" (runtime/symtab.go).

A table is a list of pairs of variable-length integers: the change of the value, zigzag encoded and
counted from -1, and the number of bytes of code for which the new value holds. A pair whose value
change is 0 ends it, unless it is the first.
"""

from bisect import bisect_right
from typing import Final

from symbolizer.errors import GoTableError
from symbolizer.filetable import FileTable

NO_VALUE: Final = -1
"""What a table says where it has nothing to say."""

_FIRST_WINDOW_BYTES = 256
_MAX_TABLE_BYTES = 1 << 20
_INT32_MAX = (1 << 31) - 1


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
    """Decode the table at `position` of pctab; position 0 is Go's "no table".

    Raises GoTableError for a table that does not end, or with a value that is not an int32.
    """
    if position == 0:
        return EMPTY
    window_bytes = _FIRST_WINDOW_BYTES
    while True:
        data, start = pctab.window(position, window_bytes)
        decoded = _decode(data, start)
        if decoded is not None:
            return decoded
        if window_bytes >= min(_MAX_TABLE_BYTES, pctab.size - position):
            raise GoTableError(f"the pc-value table at {position:#x} does not end")
        # Past the window that was given, which may have been longer than what was asked for.
        window_bytes = max(window_bytes, len(data) - start) * 8


def _decode(data: bytes, index: int) -> PcValues | None:
    """Decode from data[index]; None if the bytes end before the table does."""
    ends: list[int] = []
    values: list[int] = []
    end = 0
    value = NO_VALUE
    try:
        while True:
            change = data[index]
            index += 1
            if change == 0 and end:
                break
            if change >= 0x80:
                change, index = _long_varint(data, index, change)
            value += -(change >> 1) - 1 if change & 1 else change >> 1
            step = data[index]
            index += 1
            if step >= 0x80:
                step, index = _long_varint(data, index, step)
            end += step
            ends.append(end)
            values.append(value)
    except IndexError:
        return None
    if max(values) > _INT32_MAX or min(values) < -_INT32_MAX:
        raise GoTableError("a pc-value table holds a value that is not an int32")
    return PcValues(ends, values)


def _long_varint(data: bytes, index: int, first: int) -> tuple[int, int]:
    """Return a little-endian base-128 integer of 32 bits and the index after it."""
    result = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[index]
        index += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFF, index
    raise GoTableError("a variable-length integer of more than 32 bits in a pc-value table")
