"""DWARF entries (DIEs) of a Go program, read one by one where they are needed; never all of them.

Go's linker writes the name of an entry in place, as its first attribute (cmd/internal/dwarf
dwarf.go, Go 1.19 to 1.27). So an entry is found by searching the bytes of .debug_info for its name,
at the speed of memory, and what precedes the name tells whether an entry begins there. Its type is
then one reference away. pyelftools would have to parse all that stands before an entry, and takes
each size that a file claims at its word: a few bytes can make it build millions of attributes. Here
each attribute is counted, against one limit for the file.
"""

import struct
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from symbolizer.dwarf.forms import (
    FORM_IMPLICIT_CONST,
    FORM_STRING,
    FORMS,
    DwarfError,
    Value,
    sleb,
    take,
    uleb,
)
from symbolizer.elf.file import ElfFile, Section
from symbolizer.errors import ElfError

TAG_FORMAL_PARAMETER: Final = 0x05
TAG_LEXICAL_BLOCK: Final = 0x0B
TAG_MEMBER: Final = 0x0D
TAG_POINTER: Final = 0x0F
TAG_STRUCTURE: Final = 0x13
TAG_TYPEDEF: Final = 0x16
TAG_ARRAY: Final = 0x01
TAG_SUBPROGRAM: Final = 0x2E
TAG_VARIABLE: Final = 0x34

AT_LOCATION: Final = 0x02
AT_NAME: Final = 0x03
AT_BYTE_SIZE: Final = 0x0B
AT_MEMBER_LOCATION: Final = 0x38
AT_TYPE: Final = 0x49
AT_GO_KIND: Final = 0x2900
AT_GO_EMBEDDED: Final = 0x2903

_MAX_SECTION_BYTES = 256 << 20
_MAX_ABBREV_BYTES = 16 << 20
_MAX_WORK = 10_000_000
"""Attributes read, and blocks of 4 KiB searched: some 15 s. An answer seldom takes a thousand."""

_SEARCHED_BYTES = 1 << 12
_CHECK_AFTER = 1 << 12

_MAX_ABBREVS = 1 << 14
_MAX_UNITS = 1 << 16
_MAX_DEPTH = 256
_MAX_HITS = 256
_ANY_ARGUMENTS = b"[...]"
_SHF_COMPRESSED = 0x800
_COMPRESSION_HEADER = struct.Struct("<IIQQ")
_ZLIB = 1
_UNIT_COMPILE = 1
_PRINTABLE = 0x20

_Spec = tuple[int, int, int]
"""Attribute, form, and the value of an implicit constant."""


@dataclass(frozen=True, slots=True)
class _Abbrev:
    tag: int
    has_children: bool
    specs: tuple[_Spec, ...]


@dataclass(frozen=True, slots=True)
class _Unit:
    start: int
    end: int
    first: int
    """Offset of its first entry."""
    abbrevs: int
    """Offset of its table of abbreviations."""


@dataclass(frozen=True, slots=True)
class Die:
    """An entry. Offsets in bytes from the start of .debug_info; values by DW_AT_*.

    References are offsets of entries; strings in place and blocks are bytes. `tag` 0 ends a list.
    """

    offset: int
    end: int
    tag: int
    has_children: bool
    values: Mapping[int, Value]

    @property
    def name(self) -> str:
        """DW_AT_name, "" if it has none."""
        value = self.values.get(AT_NAME)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""

    def number(self, attribute: int) -> int:
        """Return an attribute's number. Raises DwarfError if it has none."""
        value = self.values.get(attribute)
        if not isinstance(value, int):
            raise DwarfError(f"the entry at {self.offset:#x} lacks attribute {attribute:#x}")
        return value


class Dwarf:
    """The entries of a file. Reads nothing before the first question; then all of .debug_info."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._info: bytes | None = None
        self._abbrev_bytes = b""
        self._units: list[_Unit] = []
        self._starts: list[int] = []
        self._tables: dict[int, dict[int, _Abbrev]] = {}
        self._left = _MAX_WORK
        self._unchecked = 0

    @property
    def present(self) -> bool:
        """Whether the file has DWARF, as far as its section headers say."""
        return any(name in self._elf.sections for name in (".debug_info", ".zdebug_info"))

    def find(self, name: str, tags: Collection[int], package: str = "") -> list[Die]:
        """Return the entries of that name with one of the tags; "[...]" is any type arguments.

        If the unit of `package` has such entries, no other is searched. No more than 256 are
        returned. Raises DwarfError.
        """
        info = self._load()
        wanted = name.encode("utf-8", "replace")
        # The name of a unit is in place, and is its first attribute, too.
        key = package.encode("utf-8", "replace") + b"\0"
        for unit in self._units if package else ():
            if info.startswith(key, unit.first + 1):
                found = self._search(wanted, tags, unit.first, unit.end)
                if found:
                    return found
        return self._search(wanted, tags, 0, len(info))

    def _search(self, name: bytes, tags: Collection[int], start: int, end: int) -> list[Die]:
        self._spend((end - start) // _SEARCHED_BYTES)
        head, *rest = name.split(_ANY_ARGUMENTS)
        needle, tail = (head + b"[", b"]" + rest[-1]) if rest else (name + b"\0", b"")
        info = self._load()
        found: list[Die] = []
        hit = info.find(needle, start, end)
        while hit >= 0 and len(found) < _MAX_HITS:
            self._spend(1)
            # Go has less than 128 abbreviations: they take one byte.
            unit = self._unit_at(hit - 1)
            if unit is not None and self._begins(unit, hit - 1, tags):
                die = self.die(hit - 1)
                if die.name.encode("utf-8", "replace").endswith(tail):
                    found.append(die)
            hit = info.find(needle, hit + 1, end)
        return found

    def die(self, offset: int) -> Die:
        """Return the entry at an offset. Raises DwarfError if none can be there."""
        info = self._load()
        unit = self._unit_at(offset)
        if unit is None:
            raise DwarfError(f"no entry can be at {offset:#x}")
        code, at = uleb(info, offset)
        self._spend(1)
        if code == 0:
            return Die(offset, at, 0, False, {})
        abbrev = self._table(unit).get(code)
        if abbrev is None:
            raise DwarfError(f"the entry at {offset:#x} has abbreviation {code}, which is none")
        self._spend(len(abbrev.specs))
        values: dict[int, Value] = {}
        for attribute, form, constant in abbrev.specs:
            if form == FORM_IMPLICIT_CONST:
                values[attribute] = constant
                continue
            read = FORMS.get(form)
            if read is None:
                raise DwarfError(f"the entry at {offset:#x} has a value of unknown form {form:#x}")
            values[attribute], at = read(info, at, unit.start)
            if at > unit.end:
                raise DwarfError(f"the entry at {offset:#x} runs past the end of its unit")
        return Die(offset, at, abbrev.tag, abbrev.has_children, values)

    def children(self, parent: Die, inside: Collection[int] = ()) -> Iterator[Die]:
        """Yield the children of an entry, and the children of those with a tag of `inside`.

        Raises DwarfError.
        """
        shown = [True] if parent.has_children else []
        at = parent.end
        while shown:
            child = self.die(at)
            at = child.end
            if child.tag == 0:
                shown.pop()
                continue
            if shown[-1]:
                yield child
            if child.has_children:
                shown.append(shown[-1] and child.tag in inside)
                if len(shown) > _MAX_DEPTH:
                    raise DwarfError("entries are nested deeper than in any real program")

    def _begins(self, unit: _Unit, at: int, tags: Collection[int]) -> bool:
        """Whether an entry begins here with its abbreviation, one byte, and then its name."""
        info = self._load()
        abbrev = self._table(unit).get(info[at])
        if abbrev is None or abbrev.tag not in tags or not abbrev.specs:
            return False
        # A name that ends with the one we look for: no entry ends with a printable byte.
        if info[at] >= _PRINTABLE and info[at - 1] >= _PRINTABLE:
            return False
        return abbrev.specs[0][:2] == (AT_NAME, FORM_STRING)

    def _unit_at(self, offset: int) -> _Unit | None:
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return None
        unit = self._units[index]
        return unit if unit.first <= offset < unit.end else None

    def _load(self) -> bytes:
        if self._info is None:
            self._info = b""
            self._info = dwarf_section(self._elf, "debug_info", _MAX_SECTION_BYTES)
            self._abbrev_bytes = dwarf_section(self._elf, "debug_abbrev", _MAX_ABBREV_BYTES)
            self._units = list(_units(self._info))
            self._starts = [unit.start for unit in self._units]
        return self._info

    def _table(self, unit: _Unit) -> dict[int, _Abbrev]:
        table = self._tables.get(unit.abbrevs)
        if table is None:
            table = self._tables[unit.abbrevs] = self._read_table(unit.abbrevs)
        return table

    def _read_table(self, at: int) -> dict[int, _Abbrev]:
        data = self._abbrev_bytes
        table: dict[int, _Abbrev] = {}
        while len(table) < _MAX_ABBREVS:
            code, at = uleb(data, at)
            if code == 0:
                break
            tag, at = uleb(data, at)
            (has_children,), at = take(data, at, 1), at + 1
            specs: list[_Spec] = []
            while True:
                self._spend(1)
                attribute, at = uleb(data, at)
                form, at = uleb(data, at)
                constant = 0
                if form == FORM_IMPLICIT_CONST:
                    constant, at = sleb(data, at)
                if not attribute and not form:
                    break
                specs.append((attribute, form, constant))
            table[code] = _Abbrev(tag, bool(has_children), tuple(specs))
        return table

    def _spend(self, attributes: int) -> None:
        self._left -= attributes
        if self._left < 0:
            raise DwarfError("the DWARF has more to read than any question needs")
        self._unchecked += attributes
        if self._unchecked >= _CHECK_AFTER:
            self._unchecked = 0
            self._elf.allowance.check()


def dwarf_section(elf: ElfFile, name: str, limit: int) -> bytes:
    """Return a section's bytes, decompressed; b"" if there is none.

    They are kept as long as the file is open. Raises DwarfError, TooMuchToRead.
    """
    if name not in elf.inflated:
        elf.inflated[name] = _read_section(elf, name, limit)
    return elf.inflated[name]


def _read_section(elf: ElfFile, name: str, limit: int) -> bytes:
    plain, old = elf.sections.get(f".{name}"), elf.sections.get(f".z{name}")
    try:
        if plain is not None and not plain.nobits:
            if not plain.flags & _SHF_COMPRESSED:
                elf.keep(min(plain.size, limit))
                return _raw(elf, plain, limit)
            data = _raw(elf, plain, limit)
            kind, _, size, _ = _COMPRESSION_HEADER.unpack_from(data)
            if kind != _ZLIB:
                raise DwarfError(f".{name} is compressed in a way that cannot be read")
            return _inflated(elf, data[_COMPRESSION_HEADER.size :], size, limit)
        if old is not None and not old.nobits:
            data = _raw(elf, old, limit)
            if data[:4] != b"ZLIB":
                raise DwarfError(f".z{name} is not compressed")
            return _inflated(elf, data[12:], int.from_bytes(data[4:12], "big"), limit)
    except (ElfError, struct.error, zlib.error) as error:
        raise DwarfError(f".{name} cannot be read: {error}") from error
    return b""


def _raw(elf: ElfFile, section: Section, limit: int) -> bytes:
    if section.size > limit:
        raise DwarfError(f"{section.name} is larger than any real program's")
    return elf.read_offset(section.offset, section.size)


def _inflated(elf: ElfFile, data: bytes, size: int, limit: int) -> bytes:
    if not 0 < size <= limit:
        raise DwarfError(f"a section of {size} bytes is not one of a real program")
    elf.keep(size)
    inflated = zlib.decompressobj().decompress(data, size)
    if len(inflated) != size:
        raise DwarfError("a compressed section is shorter than it claims")
    return inflated


def _units(info: bytes) -> Iterator[_Unit]:
    """Yield the compilation units of DWARF 4 and 5; end at the first that does not fit."""
    at = 0
    for _ in range(_MAX_UNITS):
        if at + 12 > len(info):
            return
        length, version = struct.unpack_from("<IH", info, at)
        end = at + 4 + length
        # A length of 0xffffffff begins a unit of 64-bit DWARF, which Go's linker never writes.
        if length < 8 or end > len(info):
            return
        if version == 4:
            (abbrevs,) = struct.unpack_from("<I", info, at + 6)
            yield _Unit(at, end, at + 11, abbrevs)
        elif version == 5 and info[at + 6] == _UNIT_COMPILE:
            (abbrevs,) = struct.unpack_from("<I", info, at + 8)
            yield _Unit(at, end, at + 12, abbrevs)
        at = end
