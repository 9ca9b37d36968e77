"""Offsets of the fields of the kernel's own structs, from /sys/kernel/btf/vmlinux.

The format: Documentation/bpf/btf.rst. One pass over the headers of all types gives their ids;
only the wanted structs are read.
"""

import os
import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from ebpfprof.errors import KernelUnsupported
from ebpfprof.kernel import program_cache

_FILE = Path("/sys/kernel/btf/vmlinux")
_KEPT = "offsets of fields"

# struct btf_header, include/uapi/linux/btf.h
_HEADER = struct.Struct("<HBBIIIII")
_MAGIC = 0xEB9F

_STRUCT = 4
_UNION = 5
_LAST_KIND = 19
_BITS_PER_BYTE = 8
_MAX_NESTING = 16

# 32-bit words behind the three of struct btf_type: always, and for each of the type's elements.
_WORDS = {1: 1, 3: 3, 14: 1, 17: 1}  # INT, ARRAY, VAR, DECL_TAG
_WORDS_EACH = {_STRUCT: 3, _UNION: 3, 6: 2, 13: 2, 15: 3, 19: 3}  # ENUM, PROTO, DATASEC, ENUM64


def field_offset(struct_name: str, field: str, file: Path = _FILE) -> int:
    """Offset in bytes of a field of one of the running kernel's structs; see read_offsets."""
    return read_offsets([(struct_name, field)], file)[0]


def field_offsets(*fields: tuple[str, str], file: Path = _FILE) -> tuple[int, ...]:
    """The same as read_offsets, which takes 25 ms of CPU time: they are kept until the next boot.

    Raises KernelUnsupported.
    """
    kernel = os.uname()
    key = program_cache.key_of([_KEPT, kernel.release, kernel.version, *map(".".join, fields)])
    offsets = _kept_offsets(program_cache.find(key), len(fields))
    if offsets is None:
        offsets = read_offsets(fields, file)
        program_cache.keep(key, {_KEPT: offsets})
    return offsets


def _kept_offsets(kept: dict[str, Any] | None, count: int) -> tuple[int, ...] | None:
    found = kept.get(_KEPT) if kept else None
    if not isinstance(found, list) or len(found) != count:
        return None
    return tuple(found) if all(isinstance(offset, int) for offset in found) else None


def read_offsets(fields: Sequence[tuple[str, str]], file: Path = _FILE) -> tuple[int, ...]:
    """Offsets in bytes of fields, each given as (struct, field), in the running kernel.

    `file` describes its structs. Fields of anonymous structs and unions inside belong to the struct
    around them, as in C.
    Raises KernelUnsupported if the kernel has no (readable) BTF, no such field, or several
    structs of that name with different offsets.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise KernelUnsupported(
            f"The kernel does not describe its structs ({file}: {error.strerror}). "
            "Use a kernel with CONFIG_DEBUG_INFO_BTF, as distributions build them, and mount /sys."
        ) from error
    try:
        types = BtfTypes(data, {name for name, _ in fields})
        return tuple(types.field_offset(name, field) for name, field in fields)
    except (struct.error, IndexError, ValueError) as error:
        raise KernelUnsupported(
            f"The layout of the kernel's structs can't be read ({file}: {error}). Please report "
            f"this with the kernel's version, {_release()}."
        ) from error


class BtfTypes:
    """The structs `names` of one BTF file.

    Raises ValueError, IndexError or struct.error if it is corrupt.
    """

    def __init__(self, data: bytes, names: Collection[str]) -> None:
        magic, _, _, header_bytes, types_at, types_bytes, names_at, names_bytes = (
            _HEADER.unpack_from(data)
        )
        if magic != _MAGIC:
            raise ValueError("not little-endian BTF")
        start = header_bytes + types_at
        types = data[start : start + types_bytes]
        if len(types) % 4 or len(types) != types_bytes:
            raise ValueError("the types are cut off")
        self._words = memoryview(types).cast("I")
        self._names = data[header_bytes + names_at :][:names_bytes]
        self._positions = self._headers()  # of type id - 1
        self._structs = self._find(names)

    def field_offset(self, struct_name: str, field: str) -> int:
        """Offset in bytes; see read_offsets. Raises KernelUnsupported for an unknown field."""
        name = field.encode()
        found = {
            offset
            for position in self._structs[struct_name]
            for offset in self._offsets_bits(position, name, _MAX_NESTING)
        }
        if len(found) != 1 or (bits := found.pop()) % _BITS_PER_BYTE:
            raise KernelUnsupported(
                f"This kernel ({_release()}) has no plain field {struct_name}.{field}, or several: "
                "ebpfprof does not know this layout. Please report the kernel's version."
            )
        return bits // _BITS_PER_BYTE

    def _headers(self) -> list[int]:
        """Positions of all struct btf_type, in words, ascending."""
        words, steps = self._words, _Steps()
        positions = []
        position, end = 0, len(words)
        while position < end:
            positions.append(position)
            position += steps[words[position + 1]]
        if position != end:
            raise ValueError("a type is cut off")
        return positions

    def _find(self, names: Collection[str]) -> dict[str, list[int]]:
        """Positions of the structs with these names."""
        words = self._words
        found: dict[str, list[int]] = {name: [] for name in names}
        name_of = {at: name for name in names for at in _all(self._names, name.encode() + b"\0")}
        for position in self._positions:
            if words[position] in name_of and _kind(words[position + 1]) == _STRUCT:
                found[name_of[words[position]]].append(position)
        return found

    def _offsets_bits(self, position: int, field: bytes, nesting: int) -> Iterator[int]:
        """Offsets in bits of the field called `field` in the struct or union at `position`."""
        words = self._words
        info = words[position + 1]
        if _kind(info) not in (_STRUCT, _UNION):
            return
        for member in range(position + 3, position + 3 + 3 * (info & 0xFFFF), 3):
            name_at, type_id, offset = words[member : member + 3]
            if info >> 31 and offset >> 24:  # kind_flag: the upper byte is a bitfield's size
                continue
            if self._names.startswith(field + b"\0", name_at):
                yield offset
            elif not self._names[name_at] and type_id and nesting:
                inner = self._positions[type_id - 1]
                for inner_offset in self._offsets_bits(inner, field, nesting - 1):
                    yield offset + inner_offset


class _Steps(dict[int, int]):
    """From btf_type.info to the length of the whole type, in words."""

    def __missing__(self, info: int) -> int:
        kind = _kind(info)
        if not 0 < kind <= _LAST_KIND:
            raise ValueError(f"unknown kind of type {kind}")
        self[info] = 3 + _WORDS.get(kind, 0) + _WORDS_EACH.get(kind, 0) * (info & 0xFFFF)
        return self[info]


def _kind(info: int) -> int:
    return info >> 24 & 0x1F


def _all(data: bytes, wanted: bytes) -> Iterator[int]:
    """All offsets of `wanted` in `data`."""
    at = data.find(wanted)
    while at >= 0:
        yield at
        at = data.find(wanted, at + 1)


def _release() -> str:
    return os.uname().release
