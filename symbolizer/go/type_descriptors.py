"""The descriptors of a Go program's types, as the runtime and reflect use them.

Every program has them, stripped or not: the runtime needs the descriptor of what it allocates. The
layout of abi.Type, StructType, ArrayType, UncommonType and Name (internal/abi/type.go; before Go
1.21 runtime/type.go) is the same in Go 1.19 to 1.27.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from symbolizer.errors import GoTableError
from symbolizer.go.runtime_layout import RuntimeLayout

MAX_BYTES: Final = 128 << 20
"""More than the read-only data of any program that was seen."""

# Size_, PtrBytes, Hash, TFlag, Align_, FieldAlign_, Kind_, Equal, GCData, Str, PtrToThis.
_TYPE = struct.Struct("<QQIBBBBQQiI")
_TEXT_AT: Final = 40  # of Str in it
# Of a StructType behind its Type: PkgPath, Fields; of an ArrayType: Elem, Slice, Len.
_STRUCT = struct.Struct("<QQQQ")
_ARRAY = struct.Struct("<QQQ")
_FIELD = struct.Struct("<QQQ")
_WORDS = struct.Struct("<Q")
_NAME_OFFSET = struct.Struct("<i")
_UNCOMMON, _EXTRA_STAR, _NAMED = 1, 2, 4
_EXPORTED, _EMBEDDED = 1, 8
_KIND_MASK: Final = 31
# reflect.Kind; strings, slices and interfaces have no fields.
ARRAY: Final = 17
CHAN: Final = 18
FUNC: Final = 19
INTERFACE: Final = 20
MAP: Final = 21
POINTER: Final = 22
SLICE: Final = 23
STRING: Final = 24
STRUCT: Final = 25
UNSAFE_POINTER: Final = 26
_WITH_TARGET: Final = frozenset((CHAN, MAP, POINTER, SLICE))
# Of a MapType behind its Type: Key, Elem, and Group (before Go 1.24 Bucket). Of an InterfaceType:
# PkgPath, Methods.
_MAP = struct.Struct("<QQQ")
_INTERFACE = struct.Struct("<QQQ")
_STRUCT_BYTES: Final = _TYPE.size + _STRUCT.size
_MAX_FIELDS = 1 << 12
_MAX_NAME_BYTES = 1 << 12
_MAX_LENGTH_BYTES = 3  # a varint
_MAX_TYPE_BYTES = 1 << 40
_WORD = 8


@dataclass(frozen=True, slots=True)
class StructField:
    """A field of a struct: the address of its type, its offset in bytes.

    `is_open`: code of other packages reaches it, as it is exported or embedded.
    """

    name: str
    type: int
    offset: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class TypeDescriptor:
    """A type: its size in bytes, and what it consists of.

    `name` is "net/http.Server", "" for a type without one; `package` is its import path. A struct
    has `fields`, an array the address of the type of its elements, `element`; 0 for other types.
    `target` is the address of what a pointer, slice, channel or map leads to; `key` and `group` are
    of a map: its keys, and what its memory consists of. `has_methods` is of an interface.
    """

    size: int
    has_pointers: bool
    name: str
    package: str
    fields: tuple[StructField, ...] = ()
    element: int = 0
    kind: int = 0
    target: int = 0
    key: int = 0
    group: int = 0
    has_methods: bool = False


class TypeDescriptors:
    """The descriptors in the bytes from moduledata.types to moduledata.etypes, by address."""

    def __init__(self, data: bytes, start: int, *, flags_in_offsets: bool = False) -> None:
        """`start` is the address of the first byte; pointers in `data` are of the same kind.

        `flags_in_offsets`: bit 0 of a field's offset says that it is embedded, as in Go 1.18 and
        older (runtime/type.go, structfield.offsetAnon).
        """
        self._data = data
        self._start = start
        self._flags_in_offsets = flags_in_offsets
        self._known: dict[int, TypeDescriptor | None] = {}

    def at(self, address: int) -> TypeDescriptor | None:
        """The type at an address; None where there is none that makes sense."""
        if address not in self._known:
            try:
                self._known[address] = self._read(address)
            except (GoTableError, struct.error):
                self._known[address] = None
        return self._known[address]

    def text(self, address: int) -> str:
        """The type as Go code writes it, with the name of its package: "[]main.node".

        "" where there is none that makes sense.
        """
        try:
            at = self._offset(address, _TYPE.size)
            _, _, _, flags, _, _, _, _, _, text, _ = _TYPE.unpack_from(self._data, at)
            _, shown = self._name(self._start + text)
        except (GoTableError, struct.error):
            return ""
        return shown.removeprefix("*") if flags & _EXTRA_STAR else shown

    def structs(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """The addresses of all that may be struct types, and their sizes in bytes."""
        first = -self._start % _WORD
        whole = max(0, len(self._data) - first) // _WORD
        words = np.frombuffer(self._data[first : first + whole * _WORD], "<u8")
        count = max(0, len(words) - _STRUCT_BYTES // _WORD + 1)
        size, pointers, facts, fields, length, capacity = (
            words[at : at + count] for at in (0, 1, 2, 7, 8, 9)
        )
        kind = (facts >> np.uint64(56)) & np.uint64(_KIND_MASK)
        end = np.uint64(self._start + len(self._data))
        is_struct = (
            (kind == STRUCT)
            & (size > 0)
            & (size < _MAX_TYPE_BYTES)
            & (pointers <= size)
            & (length == capacity)
            & (length > 0)
            & (length <= _MAX_FIELDS)
            & (fields >= np.uint64(self._start))
            & (fields < end)
        )
        at = np.flatnonzero(is_struct)
        addresses = at.astype(np.uint64) * np.uint64(_WORD) + np.uint64(self._start + first)
        return addresses, size[at]

    def structs_named(self, text: str) -> list[int]:
        """The addresses of the struct types that Go code writes like this: "sql.DB"."""
        names = [
            position - 1
            for shown in (text, f"*{text}")
            for position in self._positions(bytes([len(shown)]) + shown.encode())
        ]
        addresses, _ = self.structs()
        if not names or not len(addresses):
            return []
        at = (addresses - np.uint64(self._start)).astype(np.int64) + _TEXT_AT
        data = np.frombuffer(self._data, np.uint8)
        offsets = data[at[:, None] + np.arange(_NAME_OFFSET.size)].view("<i4")[:, 0]
        named: list[int] = addresses[np.isin(offsets, names)].tolist()
        return [address for address in named if self.text(address) == text]

    def _positions(self, part: bytes) -> Iterator[int]:
        at = self._data.find(part)
        while at >= 0:
            yield at
            at = self._data.find(part, at + 1)

    def _read(self, address: int) -> TypeDescriptor:
        size, pointers, _, flags, _, _, kind, _, _, text, _ = _TYPE.unpack_from(
            self._data, self._offset(address, _TYPE.size)
        )
        if size >= _MAX_TYPE_BYTES or pointers > size:
            raise GoTableError("a type is larger than any real one")
        kind &= _KIND_MASK
        name, package = "", ""
        if kind == STRUCT and flags & _NAMED:
            name, package = self._full_name(address, text, flags)
        fields: tuple[StructField, ...] = ()
        element = target = key = group = 0
        has_methods = False
        if kind == STRUCT:
            fields = self._fields(address, size)
        elif kind == ARRAY:
            element, _, _ = self._behind(address, _ARRAY)
        elif kind == MAP:
            key, target, group = self._behind(address, _MAP)
        elif kind in _WITH_TARGET:
            (target,) = self._behind(address, _WORDS)
        elif kind == INTERFACE:
            _, _, methods = self._behind(address, _INTERFACE)
            has_methods = methods > 0
        return TypeDescriptor(
            size,
            pointers > 0,
            name,
            package,
            fields,
            element,
            kind,
            target,
            key,
            group,
            has_methods,
        )

    def _behind(self, address: int, parts: struct.Struct) -> tuple[int, ...]:
        """What follows the abi.Type of a kind of types."""
        return parts.unpack_from(self._data, self._offset(address + _TYPE.size, parts.size))

    def _fields(self, address: int, size: int) -> tuple[StructField, ...]:
        at = self._offset(address + _TYPE.size, _STRUCT.size)
        _, fields, count, _ = _STRUCT.unpack_from(self._data, at)
        if count > _MAX_FIELDS:
            raise GoTableError("a struct has more fields than any real one")
        struct_fields = []
        at = self._offset(fields, count * _FIELD.size)
        part = self._data[at : at + count * _FIELD.size]
        for name, type_at, offset in _FIELD.iter_unpack(part):
            flags, text = self._name(name)
            is_open = bool(flags & (_EXPORTED | _EMBEDDED))
            if self._flags_in_offsets:
                is_open |= bool(offset & 1)
                offset >>= 1
            if offset > size:
                raise GoTableError("a field lies outside of its struct")
            struct_fields.append(StructField(text, type_at, offset, is_open))
        return tuple(struct_fields)

    def _full_name(self, address: int, text: int, flags: int) -> tuple[str, str]:
        """The name as functions have it in theirs, and the package."""
        _, shown = self._name(self._start + text)
        if flags & _EXTRA_STAR:
            shown = shown.removeprefix("*")
        # The package's name without its path stands before the type's own; type arguments may
        # have dots, too.
        own = shown.partition("[")[0].rpartition(".")[2] + "".join(shown.partition("[")[1:])
        package = ""
        if flags & _UNCOMMON:
            (path,) = _NAME_OFFSET.unpack_from(
                self._data, self._offset(address + _STRUCT_BYTES, _NAME_OFFSET.size)
            )
            package = _escaped(self._name(self._start + path)[1]) if path else ""
        return (f"{package}.{own}" if package else own), package

    def _name(self, address: int) -> tuple[int, str]:
        """The flags and the text of an abi.Name."""
        first = self._offset(address, 2)
        length, end = 0, first + 1
        for number, byte in enumerate(self._data[end : end + _MAX_LENGTH_BYTES]):
            length |= (byte & 0x7F) << 7 * number
            end += 1
            if byte < 0x80:
                break
        if not 0 < length <= _MAX_NAME_BYTES or end + length > len(self._data):
            raise GoTableError("a name has no length that makes sense")
        return self._data[first], self._data[end : end + length].decode("utf-8", "replace")

    def _offset(self, address: int, size: int) -> int:
        offset = address - self._start
        if not 0 <= offset <= len(self._data) - size:
            raise GoTableError("a type's descriptor leads out of the program's types")
        return offset


def _escaped(path: str) -> str:
    """An import path as the names of symbols have it: dots of its last element are escaped.

    cmd/internal/objabi, PathToPrefix.
    """
    head, slash, last = path.rpartition("/")
    return f"{head}{slash}{last.replace('.', '%2e')}"


def has_flags_in_offsets(layout: RuntimeLayout) -> bool:
    """See TypeDescriptors."""
    return layout.has("structfield", "offsetAnon")
