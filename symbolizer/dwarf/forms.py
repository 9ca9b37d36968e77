"""How values are written in DWARF 2 to 5: forms, and numbers of variable length (LEB128)."""

from collections.abc import Callable
from typing import Final

from symbolizer.errors import SymbolizerError

FORM_ADDR: Final = 0x01
FORM_DATA8: Final = 0x07
FORM_STRING: Final = 0x08
FORM_SDATA: Final = 0x0D
FORM_STRP: Final = 0x0E
FORM_REF_ADDR: Final = 0x10
FORM_REF_UDATA: Final = 0x15
FORM_FLAG_PRESENT: Final = 0x19
FORM_LINE_STRP: Final = 0x1F
FORM_IMPLICIT_CONST: Final = 0x21
FORM_RNGLISTX: Final = 0x23
ADDRX_FORMS: Final = frozenset((0x1B, 0x29, 0x2A, 0x2B, 0x2C))
STRX_FORMS: Final = frozenset((0x1A, 0x25, 0x26, 0x27, 0x28))

_ELSEWHERE_SIZES = {0x1F20: 4, 0x1F21: 4, 0x1C: 4, 0x1D: 4}
_ELSEWHERE_ULEBS = frozenset((0x1F01, 0x1F02))
ELSEWHERE: Final = frozenset((*_ELSEWHERE_ULEBS, *_ELSEWHERE_SIZES))
"""References into another file, as dwz and -gsplit-dwarf write them; they are not followed."""

SIZES: Final[dict[int, int]] = {
    **dict.fromkeys((FORM_FLAG_PRESENT, FORM_IMPLICIT_CONST), 0),
    **dict.fromkeys((0x0B, 0x0C, 0x11, 0x25, 0x29), 1),
    **dict.fromkeys((0x05, 0x12, 0x26, 0x2A), 2),
    **dict.fromkeys((0x27, 0x2B), 3),
    **dict.fromkeys((0x06, FORM_STRP, FORM_REF_ADDR, 0x13, 0x17, FORM_LINE_STRP, 0x28, 0x2C), 4),
    **dict.fromkeys((FORM_ADDR, FORM_DATA8, 0x14, 0x20, 0x24), 8),
    0x1E: 16,
    **_ELSEWHERE_SIZES,
}
"""Size in bytes of a value in an entry, of the forms with a fixed size."""
ULEBS: Final = _ELSEWHERE_ULEBS | frozenset(
    (FORM_SDATA, 0x0F, FORM_REF_UDATA, 0x1A, 0x1B, 0x22, FORM_RNGLISTX)
)
"""Forms that are one LEB128 number."""
BLOCKS: Final = {0x0A: 1, 0x03: 2, 0x04: 4, 0x09: 0, 0x18: 0}
"""Forms that are bytes behind their length; the length's size in bytes, 0 for LEB128."""
_RELATIVE: Final = {0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8}
_MAX_NAME_BYTES = 1 << 14

Value = int | bytes


class DwarfError(SymbolizerError):
    """The DWARF is corrupt, or larger or deeper than that of any real program."""


def take(data: bytes, position: int, size: int) -> bytes:
    """Return `size` bytes. Raises DwarfError if they are not all there."""
    value = data[position : position + size]
    if len(value) != size:
        raise DwarfError("an entry runs past the end of its section")
    return value


def uleb(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number and the offset behind it. Raises DwarfError."""
    value = 0
    for index, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise DwarfError("a number does not end")


def sleb(data: bytes, position: int) -> tuple[int, int]:
    """Return a signed LEB128 number and the offset behind it. Raises DwarfError."""
    value, end = uleb(data, position)
    bits = 7 * (end - position)
    return value - (1 << bits) if value >> (bits - 1) else value, end


Reader = Callable[[bytes, int, int], tuple[Value, int]]
"""Takes the section, an offset and the unit's start; returns a value and the offset behind it."""


def _fixed(size: int) -> Reader:
    def read(data: bytes, position: int, _unit: int) -> tuple[Value, int]:
        return int.from_bytes(take(data, position, size), "little"), position + size

    return read


def _relative(size: int) -> Reader:
    """Return a reader of references that count from the start of the unit."""

    def read(data: bytes, position: int, unit: int) -> tuple[Value, int]:
        return unit + int.from_bytes(take(data, position, size), "little"), position + size

    return read


def _relative_uleb(data: bytes, position: int, unit: int) -> tuple[Value, int]:
    value, end = uleb(data, position)
    return unit + value, end


def _block(size: int) -> Reader:
    """Return a reader of blocks behind a length of `size` bytes, 0 for LEB128."""

    def read(data: bytes, position: int, _unit: int) -> tuple[Value, int]:
        if size:
            length, position = int.from_bytes(take(data, position, size), "little"), position + size
        else:
            length, position = uleb(data, position)
        return take(data, position, length), position + length

    return read


def _string(data: bytes, position: int, _unit: int) -> tuple[Value, int]:
    end = data.find(b"\0", position, position + _MAX_NAME_BYTES)
    if end < 0:
        raise DwarfError("a name does not end")
    return data[position:end], end + 1


# The forms of DWARF 5, section 7.5.5, and GNU's. Of indices, these return the index itself.
FORMS: Final[dict[int, Reader]] = {
    **{form: _fixed(size) for form, size in SIZES.items() if form != FORM_IMPLICIT_CONST},
    **dict.fromkeys(ULEBS, lambda data, position, _unit: uleb(data, position)),
    **{form: _relative(size) for form, size in _RELATIVE.items()},
    **{form: _block(size) for form, size in BLOCKS.items()},
    FORM_STRING: _string,
    FORM_SDATA: lambda data, position, _unit: sleb(data, position),
    FORM_REF_UDATA: _relative_uleb,
    FORM_FLAG_PRESENT: lambda _data, position, _unit: (1, position),
}
"""Readers of values; FORM_IMPLICIT_CONST has none: the abbreviation has its value."""
