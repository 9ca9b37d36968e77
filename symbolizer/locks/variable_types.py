"""The types of package variables in DWARF: where their pointers are, and what these lead to.

A type that the program uses at run time has a descriptor, and DWARF says where
(DW_AT_go_runtime_type in cmd/internal/dwarf/dwarf.go, Go 1.19 to 1.27). Here are also the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from symbolizer.dwarf.constants import (
    AT_GO_ELEM,
    AT_GO_KIND,
    AT_GO_RUNTIME_TYPE,
    AT_MEMBER_LOCATION,
    AT_TYPE,
    TAG_MEMBER,
    TAG_POINTER,
    TAG_TYPEDEF,
)
from symbolizer.dwarf.entries import Die, Dwarf
from symbolizer.errors import SymbolizerError
from symbolizer.go.type_descriptors import (
    ARRAY,
    CHAN,
    INTERFACE,
    MAP,
    POINTER,
    SLICE,
    STRUCT,
    UNSAFE_POINTER,
)
from symbolizer.locks.types import Types, variable_die
from symbolizer.locks.variables import Symbol

if TYPE_CHECKING:
    from symbolizer.elf.file import ElfFile

_MAX_TYPEDEFS: Final = 16
_MAX_FIELDS: Final = 1 << 12
_AS_TYPEDEFS: Final = frozenset((CHAN, INTERFACE, MAP))
_WITH_METHODS: Final = "runtime.iface"
_SIZES: Final = {CHAN: 8, INTERFACE: 16, MAP: 8, POINTER: 8}


@dataclass(frozen=True, slots=True)
class VariableType:
    """A type: its size in bytes, its kind as in reflect, and offsets in DWARF of what it has.

    `fields` are names, offsets in bytes, and types.
    """

    name: str
    size: int
    kind: int
    fields: tuple[tuple[str, int, int], ...] = ()
    element: int = 0
    target: int = 0
    has_methods: bool = False


class VariableTypes:
    """The types of a program's variables; there are none in stripped programs or corrupt DWARF."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._dwarf = Dwarf(elf)
        self._types = Types(self._dwarf)

    def type_of(self, name: str, address: int) -> int:
        """The offset in DWARF of the type of a variable, by its symbol; 0 if it is not known."""
        if not self._dwarf.present:
            return 0
        try:
            with self._elf.allowance:
                variable = variable_die(self._dwarf, Symbol(name, address, 0))
                return variable.number(AT_TYPE) if variable else 0
        except SymbolizerError:
            return 0

    def runtime_type(self, offset: int) -> int:
        """Where the descriptor of a type is, in bytes from moduledata.types; 0 without one."""
        try:
            with self._elf.allowance:
                value = self._entry(offset).values.get(AT_GO_RUNTIME_TYPE, 0)
        except SymbolizerError:
            return 0
        return value if isinstance(value, int) else 0

    def at(self, offset: int) -> VariableType | None:
        """The type at an offset in DWARF; None if there is none that makes sense."""
        try:
            with self._elf.allowance:
                return self._read(self._entry(offset))
        except SymbolizerError:
            return None

    def _entry(self, offset: int) -> Die:
        """The entry of a type, behind typedefs but those that are maps, channels or interfaces."""
        die = self._dwarf.die(offset)
        for _ in range(_MAX_TYPEDEFS):
            is_end = die.tag != TAG_TYPEDEF or die.values.get(AT_GO_KIND) in _AS_TYPEDEFS
            if is_end or AT_TYPE not in die.values:
                break
            die = self._dwarf.die(die.number(AT_TYPE))
        return die

    def _read(self, die: Die) -> VariableType:
        kind = die.values.get(AT_GO_KIND, 0)
        if not isinstance(kind, int):
            kind = 0
        if not kind and die.tag == TAG_POINTER and AT_TYPE not in die.values:
            kind = UNSAFE_POINTER
        size = _SIZES.get(kind) or self._types.size(die)
        name = die.name
        target = die.values.get(AT_TYPE, 0) if kind in (POINTER, ARRAY) else 0
        if kind in (MAP, CHAN):
            target = die.values.get(AT_GO_ELEM, 0)
        target = target if isinstance(target, int) else 0
        if kind == ARRAY:
            return VariableType(name, size, kind, element=target)
        if kind == STRUCT:
            return VariableType(name, size, kind, self._fields(die))
        if kind == SLICE:
            pointee = self._types.pointee(die)
            return VariableType(name, size, kind, target=pointee.offset if pointee else 0)
        if kind == INTERFACE:
            inner = self._dwarf.die(die.number(AT_TYPE)) if AT_TYPE in die.values else die
            return VariableType(name, size, kind, has_methods=inner.name == _WITH_METHODS)
        return VariableType(name, size, kind, target=target)

    def _fields(self, die: Die) -> tuple[tuple[str, int, int], ...]:
        fields: list[tuple[str, int, int]] = []
        for member in self._dwarf.children(die):
            if member.tag == TAG_MEMBER and len(fields) < _MAX_FIELDS:
                place = member.number(AT_MEMBER_LOCATION)
                fields.append((member.name, place, member.number(AT_TYPE)))
        return tuple(fields)
