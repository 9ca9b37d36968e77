"""Units of .debug_info, DWARF 2 to 5: headers, abbreviations, and the values of entries.

One reader for native code, of which whole units are walked, and for Go's entries that are found by
name. A section that is not compressed is read piece by piece.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from symbolizer.dwarf.abbrevs import READ, Abbrev, AbbrevTable, Wanted, skip
from symbolizer.dwarf.constants import (
    AT_ADDR_BASE,
    AT_LINKAGE_NAME,
    AT_MIPS_LINKAGE_NAME,
    AT_STR_OFFSETS_BASE,
)
from symbolizer.dwarf.forms import (
    ADDRX_FORMS,
    FORM_ADDR,
    FORM_IMPLICIT_CONST,
    FORM_LINE_STRP,
    FORM_STRING,
    FORM_STRP,
    FORMS,
    STRX_FORMS,
    DwarfError,
    Value,
    uleb,
)
from symbolizer.dwarf.sections import LazySection, dwarf_section
from symbolizer.dwarf.work import Work
from symbolizer.elf.file import ElfFile

_MAX_UNITS = 1 << 17
_UNIT_BYTES = 1 << 8
_UNIT_VALUES_BYTES = 1 << 10
_HEAD_BYTES = 1 << 10
_NAME_BYTES = 1 << 8
_MAX_NAMES_BYTES = 64 << 20


Values = dict[int, tuple[int, Value]]
"""Form and value of each attribute that was read, by DW_AT_*."""


@dataclass(slots=True)
class Unit:
    """A unit; offsets in bytes from the start of .debug_info."""

    start: int
    end: int
    first: int
    version: int
    abbrevs: int
    values: Values = field(default_factory=dict)
    """The values of its first entry."""
    is_opened: bool = False

    def number(self, attribute: int, default: int = 0) -> int:
        """Return a number of the unit's first entry."""
        value = self.values.get(attribute, (0, default))[1]
        return value if isinstance(value, int) else default


class Units:
    """The units of a file, and the values of their entries."""

    def __init__(self, elf: ElfFile, wanted: Wanted, work: Work) -> None:
        """Read the headers of all units. `wanted` selects the attributes that are read of entries.

        Raises DwarfError, ElfError, TooMuchToRead.
        """
        self.elf: Final = elf
        self.work: Final = work
        self._wanted = wanted
        self._sections: dict[str, LazySection] = {}
        self._whole: dict[str, bytes] = {}
        self._tables: dict[tuple[int, int], AbbrevTable] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._names_bytes = 0
        self.info: Final = self.section("debug_info")
        self.all: Final = list(_units(self.info, self.work))
        self.starts: Final = [unit.start for unit in self.all]

    def section(self, name: str) -> LazySection:
        """Return a section, read piece by piece. Raises DwarfError if it is corrupt."""
        if name not in self._sections:
            self._sections[name] = LazySection(self.elf, name)
        return self._sections[name]

    def whole(self, name: str) -> bytes:
        """Return all bytes of a small section. Raises DwarfError if it is corrupt."""
        if name not in self._whole:
            self._whole[name] = dwarf_section(self.elf, name)
        return self._whole[name]

    def table(self, unit: Unit) -> AbbrevTable:
        """Return the abbreviations of a unit."""
        key = unit.abbrevs, unit.version
        if key not in self._tables:
            data = self.whole("debug_abbrev")
            self._tables[key] = AbbrevTable(
                data, unit.abbrevs, unit.version, self._wanted, self.work
            )
        return self._tables[key]

    def at(self, offset: int) -> Unit | None:
        """Return the unit that has the offset among its entries, None if there is none."""
        index = bisect_right(self.starts, offset) - 1
        unit = self.all[index] if index >= 0 else None
        return unit if unit is not None and unit.first <= offset < unit.end else None

    def open(self, unit: Unit) -> None:
        """Read a unit's first entry. Raises DwarfError, ElfError."""
        if not unit.is_opened:
            unit.is_opened = True
            self.work.keep(1, _UNIT_VALUES_BYTES)
            unit.values = self.entry(unit, unit.first)

    def entry(self, unit: Unit, offset: int) -> Values:
        """Return the values of the entry at an offset. Raises DwarfError, ElfError."""
        for size in (_HEAD_BYTES, unit.end - offset):
            data = self.info.read(offset, min(size, unit.end - offset))
            try:
                code, position = uleb(data, 0)
                if code == 0:
                    return {}
                abbrev = self.table(unit).get(code)
                return read_values(data, position, unit, abbrev)[0]
            except (DwarfError, IndexError) as error:
                failure = error
                if len(data) < _HEAD_BYTES:
                    break
        raise DwarfError(f"the entry at {offset:#x} cannot be read: {failure}")

    def text(self, unit: Unit, form: int, value: Value) -> str:
        """Return the string that an attribute refers to, "" if it is in another file."""
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace") if form == FORM_STRING else ""
        if form == FORM_STRP:
            return self._string("debug_str", value)
        if form == FORM_LINE_STRP:
            return self._string("debug_line_str", value)
        if form in STRX_FORMS:
            table = self.whole("debug_str_offsets")
            position = unit.number(AT_STR_OFFSETS_BASE, 8) + 4 * value
            return self._string("debug_str", unpack(_WORD4, table, position))
        return ""

    def address(self, unit: Unit, form: int, value: Value) -> int | None:
        """Return the address that an attribute refers to; None if it is not an address."""
        if not isinstance(value, int):
            return None
        if form == FORM_ADDR:
            return value
        return self.indexed_address(unit, value) if form in ADDRX_FORMS else None

    def indexed_address(self, unit: Unit, index: int) -> int:
        """Return address `index` of a unit in .debug_addr. Raises DwarfError."""
        return unpack(_WORD8, self.whole("debug_addr"), unit.number(AT_ADDR_BASE, 8) + 8 * index)

    def _string(self, section: str, position: int) -> str:
        key = section, position
        name = self._names.get(key)
        if name is None:
            name = self.section(section).string(position)
            self._names_bytes += len(name) + _NAME_BYTES
            if self._names_bytes > _MAX_NAMES_BYTES:
                self._names.clear()
                self._names_bytes = len(name) + _NAME_BYTES
            self._names[key] = name
        return name


_WORD4 = struct.Struct("<I")
_WORD8 = struct.Struct("<Q")


def unpack(layout: struct.Struct, data: bytes, position: int) -> int:
    """Return the number at an offset. Raises DwarfError if it is cut off."""
    if position < 0 or position + layout.size > len(data):
        raise DwarfError("an index points outside its section")
    number: int = layout.unpack_from(data, position)[0]
    return number


def read_values(data: bytes, position: int, unit: Unit, abbrev: Abbrev) -> tuple[Values, int]:
    """Return the values of an entry, and the offset behind it.

    `data` are bytes of the unit, `position` an offset in them, behind the abbreviation's number.
    Raises DwarfError, IndexError.
    """
    values: Values = {}
    for op, size, attribute, form, constant in abbrev.steps:
        if op == READ:
            if form == FORM_IMPLICIT_CONST:
                values[attribute] = form, constant
                continue
            value, position = FORMS[form](data, position, unit.start)
            if attribute == AT_MIPS_LINKAGE_NAME:
                attribute = AT_LINKAGE_NAME
            values[attribute] = form, value
        else:
            position = skip(data, position, op, size)
    return values, position


def _units(info: LazySection, work: Work) -> Iterator[Unit]:
    """Yield the units with code of 32-bit DWARF; stop at the first that does not fit."""
    position = 0
    for _ in range(_MAX_UNITS):
        work.keep(1, _UNIT_BYTES)
        header = info.read(position, 24)
        if len(header) < 12:
            return
        length, version = struct.unpack_from("<IH", header)
        is_long = length == 0xFFFFFFFF
        if is_long and len(header) >= 12:
            # 64-bit DWARF, which compilers write only with an option.
            (length,) = struct.unpack_from("<Q", header, 4)
        end = position + (12 if is_long else 4) + length
        if length < 8 or end > info.size:
            return
        if not is_long and 2 <= version <= 4 and header[10] == 8:
            yield Unit(position, end, position + 11, version, *struct.unpack_from("<I", header, 6))
        elif not is_long and version == 5 and header[7] == 8 and header[6] in (1, 3, 4):
            first = position + (20 if header[6] == 4 else 12)
            yield Unit(position, end, first, version, *struct.unpack_from("<I", header, 8))
        position = end
