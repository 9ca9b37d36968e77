"""The kernel's own clock, in which BPF programs note times."""

import re
import time
from functools import cache
from pathlib import Path

_OFFSETS = Path("/proc/self/timens_offsets")


def kernel_now_ns() -> int:
    """CLOCK_MONOTONIC as bpf_ktime_get_ns() returns it, in nanoseconds.

    In a time namespace (a restored container may have one) it differs from time.monotonic_ns().
    """
    return time.monotonic_ns() - _offset_ns()


@cache
def _offset_ns() -> int:
    """What our time namespace adds (time_namespaces(7)); 0 on kernels that have none."""
    try:
        text = _OFFSETS.read_text()
    except OSError:
        return 0
    match = re.search(r"^(?:monotonic|1)\s+(-?\d+)\s+(\d+)$", text, re.MULTILINE)
    return int(match[1]) * 1_000_000_000 + int(match[2]) if match else 0
