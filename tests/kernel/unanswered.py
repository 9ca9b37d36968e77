"""A file on a FUSE file system that does not answer, from the beginning or later."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# include/uapi/linux/fuse.h
_HEADER: Final = struct.Struct("<IIQQ")  # length, operation, number, node
_ANSWER: Final = struct.Struct("<IiQ")  # length, error, number
_GETATTR, _OPEN, _READ, _INIT = 3, 14, 15, 26
_WITHOUT_ANSWER: Final = (_READ, 2, 36)  # and FORGET, INTERRUPT
_MAX_REQUEST_BYTES: Final = 1 << 17
_KEEP_CACHE: Final = 2
_READ_REQUEST: Final = struct.Struct("<40xQQI")  # behind the header: file; offset, size
_ENOSYS: Final = 38
_FILE_MODE: Final = 0o100755
_FILE_BYTES: Final = 4096
_VALID_S: Final = 1000
_INIT_ANSWER: Final = struct.pack("<4I2H2I2H8I", 7, 31, 1 << 16, 0, 16, 12, 1 << 16, 1, 1, *[0] * 9)
_MNT_DETACH: Final = 2

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def unanswered(path: Path) -> Iterator[threading.Event]:
    """Make the file; set the event to end it: pending reads get an error then."""
    silent = threading.Event()
    silent.set()
    with _mounted(path, bytes(_FILE_BYTES), silent) as over:
        yield over


@contextmanager
def answering(path: Path, contents: bytes) -> Iterator[threading.Event]:
    """Make a file that can be read, and executed, until the event is set."""
    silent = threading.Event()
    with _mounted(path, contents, silent):
        yield silent


@dataclass(frozen=True, slots=True)
class HeldPart:
    """The part of a file from an offset on: it is given only when `goes_on` is set."""

    offset: int
    is_wanted: threading.Event = field(default_factory=threading.Event)
    """Set once somebody reads it."""
    goes_on: threading.Event = field(default_factory=threading.Event)


@contextmanager
def held_from(path: Path, contents: bytes, offset: int) -> Iterator[HeldPart]:
    """Make a file of which one part can be read at once, and the rest when the test says so."""
    part = HeldPart(offset)
    with _mounted(path, contents, threading.Event(), part):
        try:
            yield part
        finally:
            part.goes_on.set()


@contextmanager
def _mounted(
    path: Path, contents: bytes, silent: threading.Event, part: HeldPart | None = None
) -> Iterator[threading.Event]:
    path.touch()
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    options = f"fd={fd},rootmode={_FILE_MODE:o},user_id=0,group_id=0,allow_other"
    if _libc.mount(b"unanswered", bytes(path), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    over = threading.Event()
    server = threading.Thread(target=_serve, args=(fd, over, contents, silent, part))
    server.start()
    try:
        assert path.stat().st_size == len(contents)  # which is asked for here, not in a page fault
        yield over
    finally:
        over.set()
        server.join()
        _libc.umount2(bytes(path), _MNT_DETACH)


def _serve(
    fd: int,
    over: threading.Event,
    contents: bytes,
    silent: threading.Event,
    part: HeldPart | None,
) -> None:
    held: list[bytes] = []
    size = len(contents)
    attributes = struct.pack(
        "<6Q10I", 1, size, -(-size // 512), *[0] * 6, _FILE_MODE, 1, 0, 0, 0, 4096, 0
    )
    answers = {
        _INIT: _INIT_ANSWER,
        _GETATTR: struct.pack("<QII", _VALID_S, 0, 0) + attributes,
        # With a cache that is thrown away, open() waits for the page that is held.
        _OPEN: struct.pack("<QII", 1, _KEEP_CACHE if part else 0, 0),
    }
    while not over.wait(0.001):
        if held and part and part.goes_on.is_set():
            request = held.pop()
        else:
            try:
                request = os.read(fd, _MAX_REQUEST_BYTES)
            except BlockingIOError:
                continue
        _, operation, number, _ = _HEADER.unpack_from(request)
        if operation == _READ and not silent.is_set():
            _, offset, length = _READ_REQUEST.unpack_from(request)
            if part and offset >= part.offset and not part.goes_on.is_set():
                part.is_wanted.set()
                held.append(request)
                continue
            piece = contents[offset : offset + length]
            os.write(fd, _ANSWER.pack(_ANSWER.size + len(piece), 0, number) + piece)
        elif operation not in _WITHOUT_ANSWER:
            answer = answers.get(operation)
            error = 0 if answer else -_ENOSYS
            answer = answer or b""
            os.write(fd, _ANSWER.pack(_ANSWER.size + len(answer), error, number) + answer)
    os.close(fd)  # which ends the file system
