"""The kernel's own clock, in which BPF programs note times."""

import os
import re
import time
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_OWN = "self"


def kernel_now_ns() -> int:
    """CLOCK_MONOTONIC as bpf_ktime_get_ns() returns it, in nanoseconds.

    In a time namespace (a restored container may have one) it differs from time.monotonic_ns().
    """
    return time.monotonic_ns() - _offset_ns()


def clock_ahead_ns(pid: int) -> int | None:
    """By how much CLOCK_MONOTONIC of a process is ahead of ours: of a container it may differ.

    None if that can't be known: /proc has the offsets of children to come, and the
    process has made them another namespace than its own. Negative if its clock is behind.
    """
    own, theirs = _namespace(_OWN), _namespace(pid)
    if own == theirs:
        return 0
    if theirs is None or theirs != _namespace(pid, of="time_for_children"):
        return None
    return _read_offset_ns(pid) - _offset_ns()


def _namespace(pid: int | str, of: str = "time") -> str | None:
    """Its name; None if we can't read it, or the kernel has none."""
    try:
        return os.readlink(_PROC / str(pid) / "ns" / of).partition(":")[2]
    except OSError:
        return None


@cache
def _offset_ns() -> int:
    return _read_offset_ns(_OWN)


def _read_offset_ns(pid: int | str) -> int:
    """What a time namespace adds (time_namespaces(7)); 0 on kernels that have none."""
    try:
        text = (_PROC / str(pid) / "timens_offsets").read_text()
    except OSError:
        return 0
    match = re.search(r"^(?:monotonic|1)\s+(-?\d+)\s+(\d+)$", text, re.MULTILINE)
    return int(match[1]) * 1_000_000_000 + int(match[2]) if match else 0
