"""Which threads of ours the kernel runs before all others."""

from __future__ import annotations

import os
from contextlib import suppress


def run_promptly(*, with_children: bool = False) -> None:
    """Have the kernel run the calling thread as soon as it can run, if we may ask for that.

    For what takes little time and must not be late: it would starve all others. Threads and
    processes that it starts are as others, unless it is meant `with_children`. Without CAP_SYS_NICE
    nothing changes.
    """
    policy = os.SCHED_FIFO if with_children else os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
    with suppress(OSError):  # we may not: see above
        os.sched_setscheduler(0, policy, os.sched_param(1))


def run_as_others() -> None:
    """End what run_promptly() began, for this thread."""
    with suppress(OSError):  # then it could not begin, either
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
