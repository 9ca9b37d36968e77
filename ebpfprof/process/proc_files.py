"""The files that the kernel shows of a process: those below /proc/PID."""

from __future__ import annotations

import os
from typing import Final

_MAX_BYTES: Final = 1 << 26  # of one file
_MAX_NAMES: Final = 1 << 16  # of one folder


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
            with open(f"{self._folder}/{name}", "rb") as file:
                return file.read(_MAX_BYTES)
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
