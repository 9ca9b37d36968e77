"""DWARF entries (DIEs) of a Go program, found by name and read one by one.

Go's linker writes the name of an entry in place, as its first attribute (cmd/internal/dwarf
dwarf.go, Go 1.19 to 1.27). So an entry is found by searching the bytes of .debug_info for its name,
at the speed of memory; the byte in front of the name shows whether an entry begins there. Its type
is then one reference away. pyelftools would have to parse all entries before it, and trusts each
size that a file claims: a few bytes can make it build millions of attributes. Here each attribute
counts against one limit for the file.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from symbolizer.dwarf.abbrevs import READ
from symbolizer.dwarf.constants import (
    AT_BYTE_SIZE,
    AT_GO_ELEM,
    AT_GO_EMBEDDED,
    AT_GO_KIND,
    AT_GO_RUNTIME_TYPE,
    AT_LOCATION,
    AT_MEMBER_LOCATION,
    AT_NAME,
    AT_TYPE,
    AT_VARIABLE_PARAMETER,
)
from symbolizer.dwarf.forms import FORM_STRING, DwarfError, Value, uleb
from symbolizer.dwarf.sections import has_dwarf
from symbolizer.dwarf.units import Unit, Units, read_values
from symbolizer.dwarf.work import Work
from symbolizer.elf.file import ElfFile

_ATTRIBUTES: Final = frozenset(
    (
        *(AT_NAME, AT_TYPE, AT_LOCATION, AT_BYTE_SIZE, AT_MEMBER_LOCATION, AT_VARIABLE_PARAMETER),
        *(AT_GO_KIND, AT_GO_EMBEDDED, AT_GO_ELEM, AT_GO_RUNTIME_TYPE),
    )
)
"""The attributes that are read of an entry."""

MAX_WORK = 10_000_000
"""Attributes read, and blocks of 4 KiB searched: about 15 s. A lookup rarely needs a thousand."""

_SEARCHED_BYTES = 1 << 12
_MAX_DEPTH = 256
_MAX_HITS = 256
_ANY_ARGUMENTS = b"[...]"
_PRINTABLE = 0x20
_CODE_END = 0x80


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
    """The entries of a file. Reads nothing before the first lookup; then all of .debug_info."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._info: bytes | None = None
        self._units: Units | None = None

    @property
    def present(self) -> bool:
        """Whether the file has DWARF, as far as its section headers say."""
        return has_dwarf(self._elf)

    def find(self, name: str, tags: Collection[int], package: str = "") -> list[Die]:
        """Return the entries of that name with one of the tags; "[...]" is any type arguments.

        If the unit of `package` has such entries, no other is searched. No more than 256 are
        returned. Raises DwarfError, ElfError.
        """
        units, info = self._load()
        wanted = name.encode("utf-8", "replace")
        # The name of a unit is its first attribute, in place, too.
        key = package.encode("utf-8", "replace") + b"\0"
        for unit in units.all if package else ():
            if info.startswith(key, unit.first + 1):
                dies = self._search(wanted, tags, unit.first, unit.end)
                if dies:
                    return dies
        return self._search(wanted, tags, 0, len(info))

    def _search(self, name: bytes, tags: Collection[int], start: int, end: int) -> list[Die]:
        units, info = self._load()
        units.work.spend((end - start) // _SEARCHED_BYTES)
        head, *rest = name.split(_ANY_ARGUMENTS)
        needle, tail = (head + b"[", b"]" + rest[-1]) if rest else (name + b"\0", b"")
        dies: list[Die] = []
        hit = info.find(needle, start, end)
        while hit >= 0 and len(dies) < _MAX_HITS:
            units.work.spend(1)
            # Go has fewer than 128 abbreviations: their numbers take one byte.
            unit = units.at(hit - 1)
            if unit is not None and self._begins(unit, hit - 1, tags):
                die = self.die(hit - 1)
                if die.name.encode("utf-8", "replace").endswith(tail):
                    dies.append(die)
            hit = info.find(needle, hit + 1, end)
        return dies

    def die(self, offset: int) -> Die:
        """Return the entry at an offset. Raises DwarfError if none can be there."""
        units, info = self._load()
        unit = units.at(offset)
        if unit is None:
            raise DwarfError(f"no entry can be at {offset:#x}")
        code, position = uleb(info, offset)
        units.work.spend(1)
        if code == 0:
            return Die(offset, position, 0, False, {})
        abbrev = units.table(unit).get(code)
        units.work.spend(len(abbrev.steps))
        try:
            values, position = read_values(info, position, unit, abbrev)
        except IndexError as error:
            raise DwarfError(f"the entry at {offset:#x} is cut off") from error
        if position > unit.end:
            raise DwarfError(f"the entry at {offset:#x} runs past the end of its unit")
        said = {attribute: value for attribute, (_, value) in values.items()}
        return Die(offset, position, abbrev.tag, abbrev.has_children, said)

    def children(self, parent: Die, inside: Collection[int] = ()) -> Iterator[Die]:
        """Yield the children of an entry, and the children of those with a tag of `inside`.

        Raises DwarfError.
        """
        shown = [True] if parent.has_children else []
        position = parent.end
        while shown:
            child = self.die(position)
            position = child.end
            if child.tag == 0:
                shown.pop()
                continue
            if shown[-1]:
                yield child
            if child.has_children:
                shown.append(shown[-1] and child.tag in inside)
                if len(shown) > _MAX_DEPTH:
                    raise DwarfError("entries are nested deeper than in any real program")

    def _begins(self, unit: Unit, position: int, tags: Collection[int]) -> bool:
        """Whether an entry begins here: with its abbreviation's number, one byte, and its name."""
        units, info = self._load()
        code = info[position]
        abbrev = units.table(unit).find(code) if 0 < code < _CODE_END else None
        if abbrev is None or abbrev.tag not in tags or not abbrev.steps:
            return False
        # Then a longer name ends with this one: no entry ends with a printable byte.
        if code >= _PRINTABLE and info[position - 1] >= _PRINTABLE:
            return False
        first = abbrev.steps[0]
        return (first.op, first.attribute, first.form) == (READ, AT_NAME, FORM_STRING)

    def _load(self) -> tuple[Units, bytes]:
        """Return the units and all of .debug_info. If that fails once, it is not tried again."""
        if self._info is None:
            self._info = b""
            work = Work(self._elf, MAX_WORK)
            self._units = Units(self._elf, lambda _tag: _ATTRIBUTES, work)
            self._info = self._units.whole("debug_info")
        if self._units is None:
            raise DwarfError("the DWARF cannot be read")
        return self._units, self._info
