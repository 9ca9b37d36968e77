"""Numbers of variable length (LEB128), as protobuf, Go's tables and DWARF have them."""

from __future__ import annotations


def varint(number: int) -> bytes:
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])
