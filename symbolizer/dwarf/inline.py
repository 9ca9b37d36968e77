"""Functions and the calls inlined into them, from a unit's entries (DWARF 2 to 5).

The walk passes every entry of the unit and reads those of functions and inlined calls. It jumps
over a type or a function that it does not need where the compiler wrote the offset of the next
entry (DW_AT_sibling).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from symbolizer.dwarf.abbrevs import SKIP, Abbrev, skip
from symbolizer.dwarf.constants import (
    AT_ABSTRACT_ORIGIN,
    AT_ADDR_BASE,
    AT_CALL_FILE,
    AT_CALL_LINE,
    AT_COMP_DIR,
    AT_DECL_LINE,
    AT_HIGH_PC,
    AT_LINKAGE_NAME,
    AT_LOW_PC,
    AT_MIPS_LINKAGE_NAME,
    AT_NAME,
    AT_RANGES,
    AT_RNGLISTS_BASE,
    AT_SIBLING,
    AT_SPECIFICATION,
    AT_STMT_LIST,
    AT_STR_OFFSETS_BASE,
    TAG_ARRAY,
    TAG_CLASS,
    TAG_COMPILE_UNIT,
    TAG_ENUMERATION,
    TAG_INLINED,
    TAG_INTERFACE,
    TAG_PARTIAL_UNIT,
    TAG_SKELETON_UNIT,
    TAG_STRUCTURE,
    TAG_SUBPROGRAM,
    TAG_SUBROUTINE_TYPE,
    TAG_UNION,
)
from symbolizer.dwarf.forms import DwarfError, uleb
from symbolizer.dwarf.ranges import entry_ranges
from symbolizer.dwarf.units import Unit, Units, Values, read_values

_MAX_DEPTH = 1 << 12
_MAX_CHAIN = 16
_MAX_UNIT_BYTES = 256 << 20
_MAX_FUNCTIONS = 1 << 18
_ORIGIN_BYTES = 1 << 8
_MAX_INLINED = 128

_UNIT_TAGS = (TAG_COMPILE_UNIT, TAG_PARTIAL_UNIT, TAG_SKELETON_UNIT)
_CODE_TAGS = frozenset((TAG_INLINED, TAG_SUBPROGRAM, *_UNIT_TAGS))
# Types with children, none of which is an entry of code.
_TYPE_TAGS = frozenset(
    (
        *(TAG_ARRAY, TAG_CLASS, TAG_ENUMERATION, TAG_INTERFACE),
        *(TAG_STRUCTURE, TAG_SUBROUTINE_TYPE, TAG_UNION),
    )
)
_CODE_ATTRIBUTES = frozenset(
    (
        *(AT_NAME, AT_LINKAGE_NAME, AT_MIPS_LINKAGE_NAME, AT_DECL_LINE, AT_SIBLING),
        *(AT_ABSTRACT_ORIGIN, AT_SPECIFICATION, AT_CALL_FILE, AT_CALL_LINE),
        *(AT_LOW_PC, AT_HIGH_PC, AT_RANGES, AT_STMT_LIST, AT_COMP_DIR),
        *(AT_STR_OFFSETS_BASE, AT_ADDR_BASE, AT_RNGLISTS_BASE),
    )
)


def attributes_of_code(tag: int) -> frozenset[int]:
    """Return the attributes that `Functions`, `UnitRanges` and `line_program` need of a tag."""
    if tag in _CODE_TAGS:
        return _CODE_ATTRIBUTES
    return frozenset({AT_SIBLING}) if tag in _TYPE_TAGS else frozenset()


class Named(NamedTuple):
    """A function's name and the line of its declaration, "" and 0 if unknown."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or a call inlined into one: the depth and the values of its entry."""

    depth: int
    unit: Unit
    values: Values = field(repr=False)

    def number(self, attribute: int) -> int:
        """Return a number of the entry, 0 if it has none."""
        value = self.values.get(attribute, (0, 0))[1]
        return value if isinstance(value, int) else 0

    @property
    def call_file(self) -> int:
        """Number of the file that the call is in."""
        return self.number(AT_CALL_FILE)

    @property
    def call_line(self) -> int:
        """Line that the call is in."""
        return self.number(AT_CALL_LINE)


class Functions:
    """Finds the functions and the inlined calls at addresses, and their names."""

    def __init__(self, units: Units) -> None:
        self._units: Final = units
        self._origins: dict[int, tuple[str, bool, int]] = {}

    def chains(self, unit: Unit, wanted: Sequence[int]) -> dict[int, list[Call]]:
        """Return for addresses, sorted, the function and the calls inlined there, outermost first.

        Raises DwarfError, ElfError.
        """
        chains, has_jumped = self._scan(unit, wanted, skips_functions=True)
        left = [address for address in wanted if address not in chains]
        if left and has_jumped:
            # A function nested in another one's entry has its own code.
            chains |= self._scan(unit, left, skips_functions=False)[0]
        return chains

    def _scan(
        self, unit: Unit, wanted: Sequence[int], skips_functions: bool
    ) -> tuple[dict[int, list[Call]], bool]:
        size = unit.end - unit.first
        if size > _MAX_UNIT_BYTES:
            raise DwarfError("a unit is larger than in any real program")
        data = self._units.info.read(unit.first, size)
        try:
            return self._walk(unit, data, wanted, skips_functions)
        except IndexError as error:
            raise DwarfError("an entry runs past the end of its unit") from error

    def _walk(
        self, unit: Unit, data: bytes, wanted: Sequence[int], skips_functions: bool
    ) -> tuple[dict[int, list[Call]], bool]:
        """Return what `chains` does, and whether the walk jumped over a function."""
        chains: dict[int, list[Call]] = {}
        table = self._units.table(unit)
        known = table.known
        spend = self._units.work.spend
        position, end, depth, count = 0, len(data), 0, 0
        # From this depth on, calls are inside a function or call that has no wanted address.
        quiet, has_jumped = _MAX_UNIT_BYTES, False
        while position < end:
            count += 1
            if not count & 0xFFF:
                spend(0x1000)
            code = data[position]
            position += 1
            if not code:
                depth -= 1
                if depth < quiet:
                    quiet = _MAX_UNIT_BYTES
                if depth <= 0:
                    break
                continue
            if code >= 0x80:
                code, position = uleb(data, position - 1)
            abbrev = known.get(code) or table.get(code)
            if abbrev.has_children:
                depth += 1
            if abbrev.fixed >= 0:
                position += abbrev.fixed
                continue
            tag = abbrev.tag
            if tag == TAG_SUBPROGRAM or (
                tag == TAG_INLINED and depth - abbrev.has_children < quiet
            ):
                values, position = read_values(data, position, unit, abbrev)
                holds = self._note(chains, unit, wanted, Call(depth, unit, values), abbrev)
                if not holds and abbrev.has_children:
                    quiet = min(quiet, depth)
                elif holds:
                    quiet = _MAX_UNIT_BYTES
                if holds or not skips_functions:
                    continue
                has_jumped |= AT_SIBLING in values
            elif abbrev.reads and tag != TAG_INLINED:
                values, position = read_values(data, position, unit, abbrev)
                if tag not in _TYPE_TAGS:
                    continue
            else:
                for op, size, _, _, _ in abbrev.skips:
                    position = position + size if op == SKIP else skip(data, position, op, size)
                continue
            if AT_SIBLING in values and abbrev.has_children:
                sibling = values[AT_SIBLING][1]
                after = sibling - unit.first if isinstance(sibling, int) else 0
                if after > position:
                    position = after
                    depth -= 1
                    if depth < quiet:
                        quiet = _MAX_UNIT_BYTES
        spend(count & 0xFFF)
        if depth > _MAX_DEPTH:
            raise DwarfError("entries are nested deeper than in any real program")
        return chains, has_jumped

    def _note(
        self,
        chains: dict[int, list[Call]],
        unit: Unit,
        wanted: Sequence[int],
        call: Call,
        abbrev: Abbrev,
    ) -> bool:
        """Add a function or call to the chains of its addresses; return whether there are any."""
        holds = False
        # The entry's own depth, with or without children.
        depth = call.depth - abbrev.has_children
        call = Call(depth, unit, call.values)
        for low, high in entry_ranges(self._units, unit, call.values):
            start, end = bisect_left(wanted, low), bisect_right(wanted, high - 1)
            self._units.work.spend(end - start + 1)
            for address in wanted[start:end]:
                holds = True
                if abbrev.tag == TAG_SUBPROGRAM:
                    chains[address] = [call]
                elif address in chains:
                    chain = chains[address]
                    while len(chain) > 1 and chain[-1].depth >= depth:
                        chain.pop()
                    if len(chain) < _MAX_INLINED:
                        chain.append(call)
        return holds

    def named(self, call: Call) -> Named:
        """Return the name of a function or of an inlined one. Raises DwarfError, ElfError."""
        name, _, line = self._described(call.unit, call.values, 0)
        return Named(name, line)

    def _described(self, unit: Unit, values: Values, links: int) -> tuple[str, bool, int]:
        """Return the name, whether it is a linkage name, and the line, of an entry or its origins.

        The first linkage name of the chain has precedence, then the first name.
        """
        name, is_linkage = self._text(unit, values, AT_LINKAGE_NAME), True
        if not name:
            name, is_linkage = self._text(unit, values, AT_NAME), False
        declared = values.get(AT_DECL_LINE, (0, 0))[1]
        line = declared if isinstance(declared, int) else 0
        origin = values.get(AT_ABSTRACT_ORIGIN) or values.get(AT_SPECIFICATION)
        if (is_linkage and line) or origin is None or not isinstance(origin[1], int):
            return name, is_linkage, line
        further, further_is_linkage, further_line = self._origin(origin[1], links + 1)
        if not name or (further_is_linkage and not is_linkage):
            name, is_linkage = further, further_is_linkage
        return name, is_linkage, line or further_line

    def _origin(self, offset: int, links: int) -> tuple[str, bool, int]:
        description = self._origins.get(offset)
        if description is not None:
            return description
        units = self._units
        unit = units.at(offset)
        if links > _MAX_CHAIN or unit is None:
            return "", False, 0
        units.open(unit)
        description = self._described(unit, units.entry(unit, offset), links)
        if len(self._origins) < _MAX_FUNCTIONS:
            units.work.keep(1, _ORIGIN_BYTES + len(description[0]))
            self._origins[offset] = description
        return description

    def _text(self, unit: Unit, values: Values, attribute: int) -> str:
        return self._units.text(unit, *values[attribute]) if attribute in values else ""
