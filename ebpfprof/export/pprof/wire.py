"""Unpacks the bytes of a pprof file in pieces, and splits them into protobuf fields.

Memory holds one piece and one field at a time, however large the unpacked file is.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ebpfprof.errors import InvalidProfile

MAX_DECODED_BYTES = 256 << 20
"""The largest unpacked profile that we read: some forty times what 100,000 stacks take."""

MAX_MEMBERS = 64
"""The most gzip streams, one after the other, that one file may hold."""

MAX_FIELD = 1 << 20
"""The most bytes of one sample, mapping, location, function or string."""

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20
_FED = 1 << 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


class Field(NamedTuple):
    """A field of a message: `content` without its tag and length, `whole` with them.

    The message has it `times` times in a row.
    """

    number: int
    has_length: bool
    content: bytes
    whole: bytes
    times: int


def unpacked(data: bytes) -> Iterator[bytes]:
    """The content of the file, gzipped or not, a piece at a time. Raises InvalidProfile."""
    if not data:
        raise InvalidProfile("The file is empty.")
    room = MAX_DECODED_BYTES
    pieces = _gunzipped(data) if data.startswith(_GZIP) else _pieces(data)
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            raise InvalidProfile(
                f"The profile is larger than {MAX_DECODED_BYTES >> 20} MiB unpacked."
            )
        yield piece


def _pieces(data: bytes) -> Iterator[bytes]:
    for position in range(0, len(data), _PIECE):
        yield data[position : position + _PIECE]


def _gunzipped(data: bytes) -> Iterator[bytes]:
    position = 0
    for _ in range(MAX_MEMBERS):
        stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
        while not stream.eof:
            fed = stream.unconsumed_tail or data[position : position + _FED]
            position += 0 if stream.unconsumed_tail else len(fed)
            try:
                piece = stream.decompress(fed, _PIECE)
            except zlib.error as error:
                raise InvalidProfile(f"The profile's gzip data is damaged: {error}.") from error
            if not (fed or piece or stream.eof):
                raise InvalidProfile(
                    "The profile's gzip data is damaged: it ends too early. Fetch it again."
                )
            yield piece
        position -= len(stream.unused_data)
        if position == len(data):
            return
    raise InvalidProfile(f"The file is more than {MAX_MEMBERS} gzip files in one.")


def fields(pieces: Iterable[bytes]) -> Iterator[Field]:
    """The fields of the message that the pieces make up.

    Raises ValueError if the message is malformed, InvalidProfile if a field is huge.
    """
    buffer = b""
    for piece in pieces:
        buffer += piece
        position = 0
        while (field := _field(buffer, position)) is not None:
            number, has_length, content, end = field
            whole = buffer[position:end]
            times, position = 1, end
            while buffer.startswith(whole, position):
                times, position = times + 1, position + len(whole)
            yield Field(number, has_length, buffer[content:end], whole, times)
        buffer = buffer[position:]
    if buffer:
        raise ValueError("a field beyond the end")


def _field(data: bytes, position: int) -> tuple[int, bool, int, int] | None:
    """The field at an offset: its number, whether it has a length, start and end of its content.

    None if `data` ends before the field does. Raises ValueError, InvalidProfile.
    """
    try:
        tag, content = _varint(data, position)
        wire = tag & 7
        if wire == _BYTES:
            length, content = _varint(data, content)
            if length > MAX_FIELD:
                raise InvalidProfile(f"A field of the profile is huge: {length} bytes.")
            end = content + length
        elif wire == _VARINT:
            _, end = _varint(data, content)
        elif wire in _FIXED:
            end = content + _FIXED[wire]
        else:
            raise ValueError(f"a field of the wire type {wire}")
    except IndexError:
        return None
    return (tag >> 3, wire == _BYTES, content, end) if end <= len(data) else None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The varint at an offset, and where it ends. Raises IndexError if `data` ends, ValueError."""
    number = data[position]
    if number < 0x80:
        return number, position + 1
    number &= 0x7F
    for count in range(1, 10):
        byte = data[position + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return number, position + count + 1
    raise ValueError("a number of more than ten bytes")
