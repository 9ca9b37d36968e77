"""The CPU time and the memory of served processes, for the page's table."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import psutil

    from ebpfprof.continuous.process import RecordedProcess

_LEAST_S: Final = 1.0  # CPU time of a shorter time is too rough: the kernel counts in ticks


class Load(NamedTuple):
    """`cpu` is how many processors it used since the reading before, None at the first one.

    `memory_bytes` is its resident set size.
    """

    cpu: float | None
    memory_bytes: int


class _Read(NamedTuple):
    process: psutil.Process
    at_s: float  # CLOCK_MONOTONIC
    cpu_s: float
    load: Load


class Loads:
    """Reads processes when it is asked, each at most once a second."""

    def __init__(self) -> None:
        self._read: dict[RecordedProcess, _Read] = {}

    def read(self, processes: Iterable[RecordedProcess]) -> dict[int, Load]:
        """The load of each, by pid; without those that have ended or can't be read."""
        wanted = [each for each in processes if each.ending is None]
        found = {each: self._of(each) for each in wanted}
        self._read = {each: read for each, read in found.items() if read}
        return {each.pid: read.load for each, read in self._read.items()}

    def _of(self, process: RecordedProcess) -> _Read | None:
        import psutil

        before = self._read.get(process)
        now_s = time.monotonic()
        if before and now_s - before.at_s < _LEAST_S:
            return before
        try:
            opened = before.process if before else psutil.Process(process.pid)
            with opened.oneshot():
                times, memory_bytes = opened.cpu_times(), opened.memory_info().rss
        except psutil.Error:
            return None
        cpu_s = times.user + times.system
        cpu = (cpu_s - before.cpu_s) / (now_s - before.at_s) if before else None
        return _Read(opened, now_s, cpu_s, Load(cpu, memory_bytes))
