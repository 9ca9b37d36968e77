"""The addresses of a unit or an entry: .debug_aranges, .debug_ranges, .debug_rnglists."""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from symbolizer.dwarf.constants import AT_HIGH_PC, AT_LOW_PC, AT_RANGES, AT_RNGLISTS_BASE
from symbolizer.dwarf.forms import FORM_RNGLISTX, DwarfError, uleb
from symbolizer.dwarf.units import Unit, Units, Values, unpack
from symbolizer.errors import ElfError

_MAX_RANGES = 1 << 16
_MAX_OVERLAPS = 64
_ADDRESS_END = 1 << 64
_RANGE_BYTES = 256
_WORD4 = struct.Struct("<I")
_WORD8 = struct.Struct("<Q")
_PAIR = struct.Struct("<QQ")
# Linkers write 0 or 1 as the address of a function that they removed.
_FIRST_ADDRESS = 2

Range = tuple[int, int]
"""First address, and the one behind the last."""


class UnitRanges:
    """Finds the unit that an address belongs to."""

    def __init__(self, units: Units) -> None:
        """Read .debug_aranges, and the first entry of each unit that is not in it."""
        self.failure: DwarfError | ElfError | None = None
        spans: list[tuple[int, int, int]] = []
        for span in self._from_table(units):
            units.work.keep(1, _RANGE_BYTES)
            spans.append(span)
        listed = {start for _, _, start in spans}
        for unit in units.all:
            if unit.start not in listed:
                try:
                    units.open(unit)
                    ranges = entry_ranges(units, unit)
                    units.work.keep(len(ranges), _RANGE_BYTES)
                    spans += [(low, high, unit.start) for low, high in ranges]
                except (DwarfError, ElfError) as error:
                    self.failure = self.failure or error
        spans.sort()
        self._found: Final = spans
        self._lows: Final = [low for low, _, _ in spans]
        self._reach: Final = list(accumulate((high for _, high, _ in spans), max))

    def units_of(self, address: int) -> list[int]:
        """Return the starts of the units that have an address, the closest range first."""
        position = bisect_right(self._lows, address) - 1
        starts: list[int] = []
        for index in range(position, max(-1, position - _MAX_OVERLAPS), -1):
            if self._reach[index] <= address:
                break
            _, high, start = self._found[index]
            if address < high and start not in starts:
                starts.append(start)
        return starts

    def _from_table(self, units: Units) -> Iterator[tuple[int, int, int]]:
        try:
            data = units.whole("debug_aranges")
        except (DwarfError, ElfError) as error:
            self.failure = error
            return
        known = set(units.starts)
        position = 0
        while position + 12 <= len(data):
            length, version, start = struct.unpack_from("<IHI", data, position)
            end = position + 4 + length
            if end > len(data) or version != 2 or data[position + 10] != 8 or start not in known:
                return
            # The pairs begin at a multiple of their size, counted from the start of the table.
            pairs = data[position + 16 : end]
            for low, size in _PAIR.iter_unpack(pairs[: len(pairs) & ~15]):
                if low >= _FIRST_ADDRESS and size:
                    yield low, low + size, start
            position = end


def entry_ranges(units: Units, unit: Unit, values: Values | None = None) -> list[Range]:
    """Return the addresses of an entry, by default of the unit's first one.

    Raises DwarfError.
    """
    values = unit.values if values is None else values
    if AT_RANGES in values:
        form, value = values[AT_RANGES]
        if not isinstance(value, int):
            return []
        ranges = (
            _rnglist(units, unit, form, value) if unit.version >= 5 else _old(units, unit, value)
        )
        return list(_sound(units, ranges))
    if AT_LOW_PC not in values or AT_HIGH_PC not in values:
        return []
    low = units.address(unit, *values[AT_LOW_PC])
    high = units.address(unit, *values[AT_HIGH_PC])
    if low is None:
        return []
    if high is None:
        size = values[AT_HIGH_PC][1]
        high = low + size if isinstance(size, int) else low
    return list(_sound(units, [(low, high)]))


def _sound(units: Units, ranges: Iterable[Range]) -> Iterator[Range]:
    for index, (low, high) in enumerate(ranges):
        if index >= _MAX_RANGES:
            raise DwarfError("an entry has more ranges than in any real program")
        units.work.spend(1)
        if _FIRST_ADDRESS <= low < high <= _ADDRESS_END:
            yield low, high


def _base(units: Units, unit: Unit) -> int:
    if AT_LOW_PC not in unit.values:
        return 0
    return units.address(unit, *unit.values[AT_LOW_PC]) or 0


def _old(units: Units, unit: Unit, position: int) -> Iterator[Range]:
    data = units.whole("debug_ranges")
    base = _base(units, unit)
    while True:
        low, high = unpack(_WORD8, data, position), unpack(_WORD8, data, position + 8)
        position += 16
        units.work.spend(1)
        if low == high == 0:
            return
        if low == _ADDRESS_END - 1:
            base = high
        else:
            yield base + low, base + high


def _rnglist(units: Units, unit: Unit, form: int, value: int) -> Iterator[Range]:
    data = units.whole("debug_rnglists")
    position = value
    if form == FORM_RNGLISTX:
        # By default behind the header of 12 bytes.
        table = unit.number(AT_RNGLISTS_BASE, 12)
        position = table + unpack(_WORD4, data, table + 4 * value)
    base = _base(units, unit)
    while True:
        if not 0 <= position < len(data):
            raise DwarfError("a list of ranges does not end")
        kind, position = data[position], position + 1
        if kind == 0:
            return
        units.work.spend(1)
        if kind in (1, 2, 3, 4):
            first, position = uleb(data, position)
            second, position = uleb(data, position) if kind > 1 else (0, position)
            if kind == 4:
                yield base + first, base + second
                continue
            address = units.indexed_address(unit, first)
            if kind == 1:
                base = address
            elif kind == 2:
                yield address, units.indexed_address(unit, second)
            else:
                yield address, address + second
            continue
        address, position = unpack(_WORD8, data, position), position + 8
        if kind == 5:
            base = address
        elif kind == 6:
            yield address, unpack(_WORD8, data, position)
            position += 8
        elif kind == 7:
            size, position = uleb(data, position)
            yield address, address + size
        else:
            raise DwarfError(f"a list of ranges has an entry of unknown kind {kind}")
