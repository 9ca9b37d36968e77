"""Which threads of ours the kernel runs before all others."""

from __future__ import annotations

import os
from contextlib import suppress


def run_promptly() -> None:
    """Have the kernel run the calling thread as soon as it can run, if we may ask for that.

    For what takes little time and must not be late. What the thread starts inherits it. Without
    CAP_SYS_NICE nothing changes.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def run_as_others() -> None:
    """End what run_promptly() began, for this thread."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
