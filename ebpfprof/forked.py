"""What a process that we fork does first, so that it holds nothing of ours."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_NAME = 15  # include/uapi/linux/prctl.h
_FIRST_FD: Final = 3


def leave_the_others(name: str, kept_fd: int) -> None:
    """Be called `name`, in a session of its own, and keep one file descriptor: `kept_fd`.

    No terminal, no pipe, no connection, no folder; signals that are for us do not end it.
    """
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(_FIRST_FD):
        os.dup2(nothing, fd)
    os.closerange(_FIRST_FD, kept_fd)
    os.closerange(kept_fd + 1, os.sysconf("SC_OPEN_MAX"))
