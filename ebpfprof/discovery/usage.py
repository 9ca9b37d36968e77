"""The CPU time and the memory that processes use now."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import psutil

INTERVAL_S: Final = 0.5
"""How long CPU time is measured: the kernel counts it in hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Usage:
    """`cpu` is the CPU time as a fraction of one processor, `memory_bytes` the resident set."""

    cpu: float
    memory_bytes: int


class UsageMeter:
    """Measures processes from the constructor to finish(), but for at least INTERVAL_S."""

    def __init__(self, pids: Iterable[int]) -> None:
        import psutil

        self._began: dict[int, tuple[psutil.Process, float]] = {}
        for pid in pids:
            try:
                process = psutil.Process(pid)
                self._began[pid] = process, _cpu_s(process)
            except psutil.Error:
                continue
        self._began_s = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether INTERVAL_S have passed, so that finish() does not wait."""
        return time.monotonic() >= self._began_s + INTERVAL_S

    def finish(self) -> dict[int, Usage]:
        """The usage by pid, without processes that have ended or are unreadable."""
        import psutil

        if not self._began:
            return {}
        time.sleep(max(0.0, self._began_s + INTERVAL_S - time.monotonic()))
        length_s = time.monotonic() - self._began_s
        usages = {}
        for pid, (process, before_s) in self._began.items():
            try:
                cpu = max(0.0, _cpu_s(process) - before_s) / length_s
                usages[pid] = Usage(cpu, process.memory_info().rss)
            except psutil.Error:
                continue
        return usages


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
