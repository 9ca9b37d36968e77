"""Reads files of /proc and /sys, whose size nobody knows before, up to a bound."""

from __future__ import annotations

from typing import Final

_PIECE_BYTES: Final = 1 << 14


def read_bounded(path: str, most_bytes: int) -> bytes:
    """The content of a file, or its first `most_bytes`. Raises OSError.

    In pieces: of a read of many megabytes Python allocates all of them first, which takes longer
    than to read the few hundred bytes that most of these files have.
    """
    with open(path, "rb", buffering=0) as file:
        data: bytes = file.read(_PIECE_BYTES)
        while len(data) < most_bytes and (more := file.read(_PIECE_BYTES)):
            data += more
        return data[:most_bytes]
