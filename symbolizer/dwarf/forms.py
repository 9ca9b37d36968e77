"""How values are written in DWARF 4 and 5: forms, and numbers of variable length (LEB128)."""

from collections.abc import Callable
from typing import Final

from symbolizer.errors import SymbolizerError

FORM_STRING: Final = 0x08
FORM_IMPLICIT_CONST: Final = 0x21
_MAX_NAME_BYTES = 1 << 14

Value = int | bytes


class DwarfError(SymbolizerError):
    """The DWARF is corrupt, or says more than a real program has to say."""


def take(data: bytes, at: int, size: int) -> bytes:
    """Return `size` bytes. Raises DwarfError if they are not all there."""
    value = data[at : at + size]
    if len(value) != size:
        raise DwarfError("an entry runs past the end of its section")
    return value


def uleb(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number and the offset behind it. Raises DwarfError."""
    value = 0
    for index, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise DwarfError("a number does not end")


def sleb(data: bytes, at: int) -> tuple[int, int]:
    """Return a signed LEB128 number and the offset behind it. Raises DwarfError."""
    value, end = uleb(data, at)
    bits = 7 * (end - at)
    return value - (1 << bits) if value >> (bits - 1) else value, end


Reader = Callable[[bytes, int, int], tuple[Value, int]]
"""Takes the section, an offset and where the unit starts; returns a value and what follows it."""


def _fixed(size: int) -> Reader:
    def read(data: bytes, at: int, _unit: int) -> tuple[Value, int]:
        return int.from_bytes(take(data, at, size), "little"), at + size

    return read


def _relative(size: int) -> Reader:
    """Return a reader of references that count from the start of the unit."""

    def read(data: bytes, at: int, unit: int) -> tuple[Value, int]:
        return unit + int.from_bytes(take(data, at, size), "little"), at + size

    return read


def _relative_uleb(data: bytes, at: int, unit: int) -> tuple[Value, int]:
    value, end = uleb(data, at)
    return unit + value, end


def _block(size: int) -> Reader:
    """Return a reader of blocks behind a length of `size` bytes, 0 for LEB128."""

    def read(data: bytes, at: int, _unit: int) -> tuple[Value, int]:
        if size:
            length, at = int.from_bytes(take(data, at, size), "little"), at + size
        else:
            length, at = uleb(data, at)
        return take(data, at, length), at + length

    return read


def _string(data: bytes, at: int, _unit: int) -> tuple[Value, int]:
    end = data.find(b"\0", at, at + _MAX_NAME_BYTES)
    if end < 0:
        raise DwarfError("a name does not end")
    return data[at:end], end + 1


# The forms of DWARF 4 and 5 (section 7.5.5 of the standard); what they index is not looked up.
FORMS: Final[dict[int, Reader]] = {
    **{form: _fixed(1) for form in (0x0B, 0x0C, 0x25, 0x29)},
    **{form: _fixed(2) for form in (0x05, 0x26, 0x2A)},
    **{form: _fixed(3) for form in (0x27, 0x2B)},
    **{form: _fixed(4) for form in (0x06, 0x0E, 0x10, 0x17, 0x1C, 0x1D, 0x1F, 0x28, 0x2C)},
    **{form: _fixed(8) for form in (0x01, 0x07, 0x20, 0x24)},
    **{form: lambda data, at, _: uleb(data, at) for form in (0x0F, 0x1A, 0x1B, 0x22, 0x23)},
    **{form: _relative(size) for form, size in ((0x11, 1), (0x12, 2), (0x13, 4), (0x14, 8))},
    **{form: _block(size) for form, size in ((0x0A, 1), (0x03, 2), (0x04, 4), (0x09, 0))},
    FORM_STRING: _string,
    0x0D: lambda data, at, _: sleb(data, at),
    0x15: _relative_uleb,
    0x18: _block(0),
    0x19: lambda _data, at, _unit: (1, at),
    0x1E: _fixed(16),
}
