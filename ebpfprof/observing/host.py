"""Reads what the kernel counts for a process, its control groups and the machine."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.findings.host import HostMoment, MachineMoment, ThreadMoment
from ebpfprof.observing.groups import cpu_group, memory_group, stalled_us
from ebpfprof.process.control_groups import ControlGroups, mounted_groups
from ebpfprof.process.kernel_numbers import (
    keyed,
    major_faults,
    processor_ticks,
    run_delay_ns,
    start_ticks,
)
from ebpfprof.process.proc_files import ProcFiles
from ebpfprof.process.tcp_counters import tcp_connections

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.process.process import Target

_MOST_THREADS: Final = 4096
"""Reading the counters of more threads takes too long."""
_KIB: Final = 1024
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_MOST_STAT_BYTES: Final = 4096  # of /proc/stat: the first line has all that we need


class HostReader:
    """Reads the kernel's counters of one process, any number of times."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._groups = ControlGroups(mounted_groups())

    def read(self) -> HostMoment:
        """The counters now."""
        target, files = self._target, ProcFiles(self._target.pid)
        readable = ProcFiles(target.reading_pid)
        stat = files.read("stat")
        return replace(
            self.read_use(),
            age_ns=_age_ns(stat),
            affinity=_affinity(target.reading_pid),
            major_faults=major_faults(stat),
            threads=_threads(files),
            stalled_us=stalled_us(self._groups.of(readable, "")),
            machine=_machine(),
            connections=tcp_connections(readable, target.pidfd),
        )

    def read_use(self) -> HostMoment:
        """CPU time, memory and control groups alone: for moments every few seconds.

        The cost of read() grows with the number of threads and connections, this one's does not.
        """
        readable = ProcFiles(self._target.reading_pid)
        resident = keyed(readable.read("status")).get("VmRSS")
        cpu_groups = self._groups.of(readable, "cpu")
        memory_groups = self._groups.of(readable, "memory")
        return HostMoment(
            cpu_ns=self._target.cpu_ns() or 0,
            resident_bytes=None if resident is None else _KIB * resident,
            cpu_groups=tuple(map(cpu_group, cpu_groups)),
            memory_groups=tuple(map(memory_group, memory_groups)),
        )


def _age_ns(stat: bytes) -> int | None:
    ticks = start_ticks(stat)
    if ticks is None:
        return None
    return max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * _TICK_NS)


def _affinity(pid: int) -> int | None:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return None


def _threads(files: ProcFiles) -> Mapping[int, ThreadMoment] | None:
    """The counters of all threads; None if there are too many, or none is readable."""
    names = files.names("task")
    if len(names) > _MOST_THREADS:
        return None
    threads = {}
    for name in names:
        delayed_ns = run_delay_ns(files.read(f"task/{name}/schedstat"))
        switches = keyed(files.read(f"task/{name}/status")).get("voluntary_ctxt_switches")
        if delayed_ns is not None and switches is not None:
            threads[int(name)] = ThreadMoment(delayed_ns, switches)
    return threads or None


def _machine() -> MachineMoment | None:
    try:
        with open("/proc/stat", "rb") as file:
            ticks = processor_ticks(file.read(_MOST_STAT_BYTES))
    except OSError:
        return None
    if ticks is None:
        return None
    busy = ticks.user + ticks.nice + ticks.system + ticks.irq + ticks.softirq
    return MachineMoment(
        processors=os.cpu_count() or 1,
        busy_ns=busy * _TICK_NS,
        idle_ns=(ticks.idle + ticks.iowait) * _TICK_NS,
        steal_ns=ticks.steal * _TICK_NS,
    )
