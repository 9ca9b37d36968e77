"""What a process that we fork does first, so that it holds nothing of ours."""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Sequence
from typing import Final

_PR_SET_NAME = 15  # include/uapi/linux/prctl.h
_STANDARD_FILES: Final = 3


def leave_the_others(name: str, kept: Sequence[int], *, spare: int = 0) -> list[int]:
    """Be called `name`, and hold no terminal, pipe, connection or folder: only the files `kept`.

    Returns what their descriptors are now. Standard files lead nowhere, and so do as many `spare`
    descriptors behind them.
    """
    call(name)
    os.chdir("/")
    first = _STANDARD_FILES + spare
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, first) for fd in kept]
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(first):
        os.dup2(nothing, fd)
    close_but(moved, first)
    return moved


def call(name: str) -> None:
    """Give this process a name (15 characters), which `ps` shows."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def close_but(kept: Sequence[int], first: int) -> None:
    """Close all file descriptors from `first` on but these."""
    for fd in sorted(kept):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
