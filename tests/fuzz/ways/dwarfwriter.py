"""A little DWARF as Go's linker writes it: a function, a package variable, types with locks."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

GLOBAL: Final = 0x3200_0000
"""Address of the package variable main.global."""

_STRING, _UDATA, _DATA1, _REF_ADDR, _EXPRLOC, _ADDR = 0x08, 0x0F, 0x0B, 0x10, 0x18, 0x01
_NAME, _SIZE, _TYPE, _KIND = (0x03, _STRING), (0x0B, _UDATA), (0x49, _REF_ADDR), (0x2900, _DATA1)
_UNIT, _VARIABLE, _FUNCTION, _PARAMETER, _STRUCT, _MEMBER, _POINTER, _ARRAY, _BASE, _TYPEDEF = (
    range(1, 11)
)
# code: tag, whether it has children, attributes and forms
_ABBREVS: Final[dict[int, tuple[int, bool, Sequence[tuple[int, int]]]]] = {
    _UNIT: (0x11, True, [_NAME]),
    _VARIABLE: (0x34, False, [_NAME, (0x02, _EXPRLOC), _TYPE]),
    _FUNCTION: (0x2E, True, [_NAME, (0x11, _ADDR)]),
    _PARAMETER: (0x05, False, [_NAME, (0x4B, _DATA1), _TYPE]),
    _STRUCT: (0x13, True, [_NAME, _SIZE, _KIND]),
    _MEMBER: (0x0D, False, [_NAME, (0x38, _UDATA), _TYPE, (0x2903, _DATA1)]),
    _POINTER: (0x0F, False, [_NAME, _TYPE, _KIND]),
    _ARRAY: (0x01, False, [_NAME, _SIZE, _TYPE]),
    _BASE: (0x24, False, [_NAME, _SIZE]),
    _TYPEDEF: (0x16, False, [_NAME, _TYPE]),
}


def _uleb(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _uleb(value >> 7)


class _Info:
    """.debug_info, with references to entries by name, filled in at the end."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.places: dict[str, int] = {}
        self.wanted: list[tuple[int, str]] = []

    def die(self, code: int, name: str, *values: int | bytes | str) -> None:
        self.places.setdefault(name, len(self.data))
        self.data += bytes([code]) + name.encode() + b"\0"
        for (_, form), value in zip(_ABBREVS[code][2][1:], values, strict=True):
            if isinstance(value, str):
                self.wanted.append((len(self.data), value))
                self.data += bytes(4)
            elif isinstance(value, bytes):
                self.data += _uleb(len(value)) + value
            else:
                self.data += struct.pack("<Q", value) if form == _ADDR else _uleb(value)

    def end(self) -> None:
        self.data += b"\0"

    def begin_unit(self) -> int:
        self.data += struct.pack("<IHIB", 0, 4, 0, 8)
        return len(self.data) - 11

    def end_unit(self, at: int) -> None:
        self.end()
        struct.pack_into("<I", self.data, at, len(self.data) - at - 4)

    def build(self) -> bytes:
        for at, name in self.wanted:
            struct.pack_into("<I", self.data, at, self.places[name])
        return bytes(self.data)


def go_dwarf(function: str) -> tuple[bytes, bytes, bytes, bytes]:
    """.debug_info, .debug_abbrev, .symtab and .strtab; `function` takes a *main.Cache."""
    info = _Info()
    unit = info.begin_unit()
    info.die(_UNIT, "main")
    info.die(_VARIABLE, "main.global", b"\x03" + struct.pack("<Q", GLOBAL), "main.Cache")
    for name in (function, "main.(*Cache).Get", "main.other.func1"):
        info.die(_FUNCTION, name, 0x401000)
        info.die(_PARAMETER, "c", 0, "*main.Cache")
        info.die(_VARIABLE, "&local", b"\x91\x08", "*main.Cache")
        info.die(_VARIABLE, "shards", b"\x91\x10", "[4]main.shard")
        info.end()
    info.end_unit(unit)
    unit = info.begin_unit()
    info.die(_UNIT, "runtime")
    info.die(_STRUCT, "sync.Mutex", 8, 25)
    info.die(_MEMBER, "state", 0, "int32", 0)
    info.die(_MEMBER, "sema", 4, "int32", 0)
    info.end()
    info.die(_STRUCT, "sync.RWMutex", 24, 25)
    info.die(_MEMBER, "w", 0, "sync.Mutex", 0)
    info.end()
    info.die(_STRUCT, "main.Cache", 112, 25)
    info.die(_MEMBER, "Mutex", 0, "sync.Mutex", 1)
    info.die(_MEMBER, "rw", 8, "sync.RWMutex", 0)
    info.die(_MEMBER, "shards", 32, "[4]main.shard", 0)
    info.die(_MEMBER, "next", 96, "*main.Cache", 0)
    info.die(_MEMBER, "named", 104, "main.alias", 0)
    info.end()
    info.die(_STRUCT, "main.shard", 16, 25)
    info.die(_MEMBER, "mu", 8, "sync.Mutex", 0)
    info.end()
    info.die(_ARRAY, "[4]main.shard", 64, "main.shard")
    info.die(_POINTER, "*main.Cache", "main.Cache", 22)
    info.die(_TYPEDEF, "main.alias", "sync.Mutex")
    info.die(_BASE, "int32", 4)
    info.end_unit(unit)
    abbrevs = b""
    for code, (tag, has_children, specs) in _ABBREVS.items():
        pairs = b"".join(_uleb(attribute) + _uleb(form) for attribute, form in specs)
        abbrevs += _uleb(code) + _uleb(tag) + bytes([has_children]) + pairs + b"\0\0"
    strings = b"\0main.global\0main.pointer\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 1, 0, 1, GLOBAL, 112)
    symbols += struct.pack("<IBBHQQ", 13, 1, 0, 1, GLOBAL + 128, 8)
    return info.build(), abbrevs + b"\0", symbols, strings
