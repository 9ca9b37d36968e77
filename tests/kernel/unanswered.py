"""A file whose contents never come, or come no more: a file system of FUSE that falls silent."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# include/uapi/linux/fuse.h
_HEADER: Final = struct.Struct("<IIQQ")  # length, operation, number, node
_ANSWER: Final = struct.Struct("<IiQ")  # length, error, number
_GETATTR, _OPEN, _READ, _INIT = 3, 14, 15, 26
_WITHOUT_ANSWER: Final = (_READ, 2, 36)  # and FORGET, INTERRUPT
_MAX_REQUEST_BYTES: Final = 1 << 17
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
    """Make the file; set the event to end it: who waits for it gets an error then."""
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


@contextmanager
def _mounted(path: Path, contents: bytes, silent: threading.Event) -> Iterator[threading.Event]:
    path.touch()
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    options = f"fd={fd},rootmode={_FILE_MODE:o},user_id=0,group_id=0,allow_other"
    if _libc.mount(b"unanswered", bytes(path), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    over = threading.Event()
    server = threading.Thread(target=_serve, args=(fd, over, contents, silent))
    server.start()
    try:
        assert path.stat().st_size == len(contents)  # which is asked for here, not in a page fault
        yield over
    finally:
        over.set()
        server.join()
        _libc.umount2(bytes(path), _MNT_DETACH)


def _serve(fd: int, over: threading.Event, contents: bytes, silent: threading.Event) -> None:
    size = len(contents)
    attributes = struct.pack(
        "<6Q10I", 1, size, -(-size // 512), *[0] * 6, _FILE_MODE, 1, 0, 0, 0, 4096, 0
    )
    answers = {
        _INIT: _INIT_ANSWER,
        _GETATTR: struct.pack("<QII", _VALID_S, 0, 0) + attributes,
        _OPEN: struct.pack("<QII", 1, 0, 0),
    }
    while not over.wait(0.001):
        try:
            request = os.read(fd, _MAX_REQUEST_BYTES)
        except BlockingIOError:
            continue
        _, operation, number, _ = _HEADER.unpack_from(request)
        if operation == _READ and not silent.is_set():
            _, offset, length = _READ_REQUEST.unpack_from(request)
            piece = contents[offset : offset + length]
            os.write(fd, _ANSWER.pack(_ANSWER.size + len(piece), 0, number) + piece)
        elif operation not in _WITHOUT_ANSWER:
            answer = answers.get(operation)
            error = 0 if answer else -_ENOSYS
            answer = answer or b""
            os.write(fd, _ANSWER.pack(_ANSWER.size + len(answer), error, number) + answer)
    os.close(fd)  # which ends the file system
