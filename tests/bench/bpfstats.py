"""How often the kernel ran a process's BPF programs, and for how long."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SYS_BPF: Final = 321
_BPF_ENABLE_STATS: Final = 32
_BPF_STATS_RUN_TIME: Final = 0
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Runs:
    """Runs of BPF programs: how many, and nanoseconds altogether."""

    count: int
    time_ns: int

    def __sub__(self, earlier: Runs) -> Runs:
        return Runs(self.count - earlier.count, self.time_ns - earlier.time_ns)


@contextmanager
def counting_runs() -> Iterator[None]:
    """Have the kernel count while the block runs, for all programs; it costs each run two clocks.

    As sysctl kernel.bpf_stats_enabled, but nothing is left switched on if we are killed
    (bpf(2), BPF_ENABLE_STATS, Linux 5.8).
    """
    attribute = ctypes.c_uint32(_BPF_STATS_RUN_TIME)
    size = ctypes.sizeof(attribute)
    fd = _libc.syscall(_SYS_BPF, _BPF_ENABLE_STATS, ctypes.byref(attribute), size)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"BPF_ENABLE_STATS: {os.strerror(code)}")
    try:
        yield
    finally:
        os.close(fd)


def runs_of(pid: int) -> Runs:
    """Of all programs that a process holds, since they were loaded (proc_pid_fdinfo)."""
    count = time_ns = 0
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            text = path.read_text()
            lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
            count += int(lines.get("run_cnt", 0))
            time_ns += int(lines.get("run_time_ns", 0))
    return Runs(count, time_ns)
