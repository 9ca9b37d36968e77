"""Go types in DWARF: which field is at an offset, and which locks a type has."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from symbolizer.dwarf.constants import (
    AT_BYTE_SIZE,
    AT_GO_EMBEDDED,
    AT_GO_KIND,
    AT_LOCATION,
    AT_MEMBER_LOCATION,
    AT_TYPE,
    TAG_ARRAY,
    TAG_MEMBER,
    TAG_POINTER,
    TAG_STRUCTURE,
    TAG_TYPEDEF,
    TAG_VARIABLE,
)
from symbolizer.dwarf.entries import Die, Dwarf
from symbolizer.dwarf.forms import DwarfError
from symbolizer.locks.variables import Symbol

LOCK_TYPES: Final = frozenset({"sync.Mutex", "sync.RWMutex", "internal/sync.Mutex"})

# reflect.Kind; strings, slices and interfaces are structures in DWARF, too.
_KIND_SLICE = 23
_KIND_STRUCT = 25
_POINTER_BYTES = 8
_MAX_TYPEDEFS = 16
_MAX_NESTED = 12
_MAX_LOCKS = 256
_DW_OP_ADDR = 0x03
_ANONYMOUS = "struct {"


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a variable: its path (".first.mu", "[3]"), type, and the rest of the offset."""

    path: str
    type: Die
    rest: int


@dataclass(frozen=True, slots=True)
class LockName:
    """A lock as a field of a type: `base` "main.Cache" and `path` ".shards[].mu"."""

    base: str
    path: str

    def __str__(self) -> str:
        return self.base + self.path


Names = tuple[LockName, ...]
"""Names of one lock, the outermost type's first: main.Server.cache.mu, main.Cache.mu."""


class Types:
    """The types of a file. All methods raise DwarfError, ElfError."""

    def __init__(self, dwarf: Dwarf) -> None:
        self._dwarf = dwarf

    def of(self, die: Die) -> Die:
        """Return the type of a variable, parameter, field or element, behind its typedefs."""
        for _ in range(_MAX_TYPEDEFS):
            die = self._dwarf.die(die.number(AT_TYPE))
            if die.tag != TAG_TYPEDEF or AT_TYPE not in die.values:
                return die
        raise DwarfError("a type is defined by more typedefs than any real one")

    def name_of(self, die: Die) -> str:
        """Return the name of the type of a variable or parameter as in the source."""
        return self._dwarf.die(die.number(AT_TYPE)).name

    def pointee(self, kind: Die) -> Die | None:
        """Return the type that a pointer points to, or a slice's elements; None for other types."""
        if kind.values.get(AT_GO_KIND) == _KIND_SLICE:
            # Its first field is the pointer.
            first = next(self._members(kind), None)
            kind = kind if first is None else self.of(first)
        has_target = kind.tag == TAG_POINTER and AT_TYPE in kind.values
        return self.of(kind) if has_target else None

    def size(self, kind: Die) -> int:
        """Return the size of a type in bytes. Pointers, maps and channels have none in DWARF."""
        size = kind.values.get(AT_BYTE_SIZE, _POINTER_BYTES)
        return size if isinstance(size, int) and size >= 0 else _POINTER_BYTES

    def place(self, kind: Die, offset: int) -> Place:
        """Return the innermost part of a value of that type at an offset in bytes.

        A lock counts as a whole, and so do strings, slices and interfaces.
        """
        path = ""
        for _ in range(_MAX_NESTED):
            if kind.name in LOCK_TYPES:
                break
            if kind.tag == TAG_ARRAY:
                kind = self.of(kind)
                size = self.size(kind)
                if not size:
                    break
                path += f"[{offset // size}]"
                offset %= size
            elif is_struct(kind):
                inner = self._member_at(kind, offset)
                if inner is None:
                    break
                member, kind = inner
                path += f".{member.name}"
                offset -= member.number(AT_MEMBER_LOCATION)
            else:
                break
        return Place(path, kind, offset)

    def element(self, pointer: Die, count: int, offset: int) -> Place | None:
        """Return the part at an offset in the `count` values that a pointer or slice points to.

        None for other types, and behind the last value.
        """
        kind = self.pointee(pointer)
        size = 0 if kind is None else self.size(kind)
        if kind is None or not 0 <= offset < size * count:
            return None
        inner = self.place(kind, offset % size)
        if pointer.tag == TAG_POINTER:
            return inner
        return Place(f"[{offset // size}]{inner.path}", inner.type, inner.rest)

    def locks(self, kind: Die, wanted: Collection[str], package: str, name: str) -> list[Names]:
        """Return the locks of the types `wanted` in a value, not behind pointers.

        Only those that code in `package` can name. `name` is the value's name, for a type without
        one.
        """
        start = (LockName(name, ""),) if is_unnamed(kind) or kind.name in wanted else ()
        all_names: list[Names] = []
        for names in self._locks(kind, wanted, package, package, start, _MAX_NESTED):
            all_names.append(names)
            if len(all_names) > _MAX_LOCKS:
                raise DwarfError("a type has more locks than any real one")
        return all_names

    def behind_pointers(
        self, kind: Die, wanted: Collection[str], package: str, name: str
    ) -> list[Names]:
        """Return the locks that `locks` finds behind the pointers and slices among the fields.

        A lock that a field points to directly has the field's name.
        """
        if not is_struct(kind):
            return []
        unnamed = is_unnamed(kind)
        home = package if unnamed else package_of(kind.name)
        base = name if unnamed else without_type_arguments(kind.name)
        all_names: list[Names] = []
        for member in self._members(kind):
            target = self.pointee(self.of(member)) if _can_name(member, home, package) else None
            if target is not None:
                all_names += self.locks(target, wanted, package, f"{base}.{member.name}")
        return all_names

    def _locks(
        self,
        kind: Die,
        wanted: Collection[str],
        package: str,
        home: str,
        names: Names,
        depth: int,
    ) -> Iterator[Names]:
        if kind.name in wanted:
            yield names
        elif depth and kind.tag == TAG_ARRAY:
            longer = _extended(names, "[]")
            yield from self._locks(self.of(kind), wanted, package, home, longer, depth - 1)
        elif depth and is_struct(kind):
            if not is_unnamed(kind):
                home = package_of(kind.name)
                names = (*names, LockName(without_type_arguments(kind.name), ""))
            for member in self._members(kind):
                if _can_name(member, home, package):
                    longer = _extended(names, f".{member.name}")
                    yield from self._locks(
                        self.of(member), wanted, package, home, longer, depth - 1
                    )

    def _members(self, kind: Die) -> Iterator[Die]:
        return (die for die in self._dwarf.children(kind) if die.tag == TAG_MEMBER)

    def _member_at(self, kind: Die, offset: int) -> tuple[Die, Die] | None:
        """Return the field at an offset, and its type; fields of size 0 are left out."""
        for member in self._members(kind):
            start = member.number(AT_MEMBER_LOCATION)
            if start <= offset:
                inner = self.of(member)
                if offset < start + self.size(inner):
                    return member, inner
        return None


def is_struct(kind: Die) -> bool:
    """Whether it is a struct in Go, not a string, slice or interface (structures in DWARF)."""
    return kind.tag == TAG_STRUCTURE and kind.values.get(AT_GO_KIND) == _KIND_STRUCT


def is_unnamed(kind: Die) -> bool:
    """Whether it has no name but its source text, such as `struct { mu sync.Mutex }`."""
    return not is_struct(kind) or kind.name.startswith(_ANONYMOUS)


def package_of(name: str) -> str:
    """Return the import path in the name of a function or type: "net/http" of "net/http.(*T).M"."""
    head = re.split(r"[\[(]", name, maxsplit=1)[0]
    dot = head.find(".", head.rfind("/") + 1)
    return head[:dot] if dot >= 0 else ""


def without_type_arguments(name: str) -> str:
    """Return "main.Box[...]" of "main.Box[int]", as function names have it."""
    start, end = name.find("["), name.rfind("]")
    return f"{name[:start]}[...]{name[end + 1 :]}" if 0 < start < end else name


def _can_name(member: Die, home: str, package: str) -> bool:
    """Whether code in `package` can reach a field of a type of the package `home`.

    Methods of an embedded type are promoted, even if its name is not exported.
    """
    return home == package or member.name[:1].isupper() or bool(member.values.get(AT_GO_EMBEDDED))


def _extended(names: Names, path: str) -> Names:
    return tuple(LockName(name.base, name.path + path) for name in names)


def variable_die(dwarf: Dwarf, symbol: Symbol) -> Die | None:
    """The entry of a package variable; None without one. Raises DwarfError, ElfError."""
    location = bytes([_DW_OP_ADDR]) + symbol.address.to_bytes(8, "little")
    return next(
        (
            die
            for die in dwarf.find(symbol.name, (TAG_VARIABLE,), package_of(symbol.name))
            if die.values.get(AT_LOCATION) == location and AT_TYPE in die.values
        ),
        None,
    )
