"""Whose processes we see."""

from __future__ import annotations

import os
from typing import Final

_FIRST_PID_NAMESPACE: Final = 0xEFFFFFFC  # include/linux/proc_ns.h, PROC_PID_INIT_INO


def sees_whole_machine() -> bool:
    """Whether we are in the machine's own pid namespace: others show only their own processes.

    There, pids are as the kernel itself numbers them.
    """
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:  # a kernel without pid namespaces
        return True
