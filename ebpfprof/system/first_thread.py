"""Processes whose first thread has ended while others continue, as a C program's after
pthread_exit.

The kernel then calls the first thread a zombie, and shows no memory, files or program in
/proc/PID. /proc/TID of any other thread shows them, and system calls take its number, too. Whether
the whole process has ended is known by its pidfd.
"""

from __future__ import annotations

import os
from contextlib import suppress

_MAX_THREADS = 1 << 16


def reading_pid(pid: int) -> int:
    """The number by which the memory and files of process `pid` can be read.

    That is `pid` itself; once its first thread has ended, the lowest number of those that continue.
    """
    if _has_program(pid):
        return pid
    try:
        names = os.listdir(f"/proc/{pid}/task")[:_MAX_THREADS]
    except OSError:
        return pid
    threads = sorted(int(name) for name in names if name.isdecimal())
    return next((thread for thread in threads if thread != pid and _has_program(thread)), pid)


def _has_program(thread: int) -> bool:
    """Whether a thread has memory with a program, or we may not know that."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        try:
            os.readlink(f"/proc/{thread}/exe")
        except PermissionError:
            return True
        return True
    return False
