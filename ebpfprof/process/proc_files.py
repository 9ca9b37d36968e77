"""The files that the kernel shows of a process: those below /proc/PID."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from typing import Final

from ebpfprof.system.bounded_file import read_bounded

_MAX_BYTES: Final = 1 << 26  # of one file
_MAX_NAMES: Final = 1 << 16  # of one folder
# include/uapi/linux/fcntl.h and stat.h
_AT_FDCWD: Final = -100
_AT_STATX_DONT_SYNC: Final = 0x4000
_STATX_TYPE: Final = 1
_STATX_BYTES: Final = 256
_MODE_AT: Final = 28  # in struct statx

_libc = ctypes.CDLL(None)


class ProcFiles:
    """The files of process `pid`. What this user may not read, or is gone, is empty.

    Names are relative to /proc/PID: "task/12/syscall". A saved process has its own
    (tests/images).
    """

    def __init__(self, pid: int) -> None:
        self._folder = f"/proc/{pid}"

    def read(self, name: str) -> bytes:
        """The content of a file, up to 64 MiB."""
        try:
            return read_bounded(f"{self._folder}/{name}", _MAX_BYTES)
        except OSError:
            return b""

    def names(self, folder: str) -> list[str]:
        """The names in a folder, up to 65,536, in no order."""
        try:
            return os.listdir(f"{self._folder}/{folder}")[:_MAX_NAMES]
        except OSError:
            return []

    def link(self, name: str) -> str:
        """Where a symbolic link leads."""
        try:
            return os.readlink(f"{self._folder}/{name}")
        except OSError:
            return ""

    def file_type(self, name: str) -> int:
        """The type of what a link leads to, such as stat.S_IFIFO; 0 if it is unknown.

        No file system is asked, which may not answer: only what the kernel already has.
        """
        buffer = ctypes.create_string_buffer(_STATX_BYTES)
        path = f"{self._folder}/{name}".encode()
        if _libc.statx(_AT_FDCWD, path, _AT_STATX_DONT_SYNC, _STATX_TYPE, buffer):
            return 0
        return stat.S_IFMT(struct.unpack_from("<H", buffer, _MODE_AT)[0])
