"""Reads what the kernel counts for a process, its control groups and the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ebpfprof.findings.host import HostMoment, MachineMoment, Stalls, ThreadMoment
from ebpfprof.observing.groups import cpu_group, memory_group
from ebpfprof.process.control_groups import ControlGroups, mounted_groups
from ebpfprof.process.kernel_numbers import keyed, pressure, run_times, thread_state
from ebpfprof.process.kernel_numbers import stat_fields as fields_of
from ebpfprof.process.proc_files import ProcFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.process.control_groups import ControlGroup
    from ebpfprof.process.process import Target

_RESOURCES: Final = ("cpu", "memory", "io")
_MOST_THREADS: Final = 4096
"""Reading the counters of more threads takes too long."""
_KIB: Final = 1024
_S: Final = 1_000_000_000


class HostReader:
    """Reads the kernel's counters of one process, any number of times."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._groups = ControlGroups(mounted_groups())

    def read(self) -> HostMoment:
        """The counters now."""
        target, files = self._target, ProcFiles(self._target.pid)
        readable = ProcFiles(target.reading_pid)
        status, io = keyed(readable.read("status")), keyed(files.read("io"))
        stat, resident = fields_of(files.read("stat")), status.get("VmRSS")
        cpu_groups = self._groups.of(readable, "cpu")
        memory_groups = self._groups.of(readable, "memory")
        return HostMoment(
            cpu_ns=target.cpu_ns() or 0,
            kernel_ns=target.kernel_ns(),
            affinity=_affinity(target.reading_pid),
            resident_bytes=None if resident is None else _KIB * resident,
            minor_faults=stat.get("minor_faults"),
            major_faults=stat.get("major_faults"),
            read_bytes=io.get("read_bytes"),
            written_bytes=io.get("write_bytes"),
            threads=_threads(files),
            cpu_groups=tuple(map(cpu_group, cpu_groups)),
            memory_groups=tuple(map(memory_group, memory_groups)),
            stalls=_stalls(self._groups.of(readable, "")),
            machine=_machine(),
        )


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
        times = run_times(files.read(f"task/{name}/schedstat"))
        status = files.read(f"task/{name}/status")
        switches = keyed(status).get("voluntary_ctxt_switches")
        if times is not None and switches is not None:
            threads[int(name)] = ThreadMoment(thread_state(status), times.delayed_ns, switches)
    return threads or None


def _stalls(groups: tuple[ControlGroup, ...]) -> Mapping[str, Stalls]:
    """The stalls by resource: of the innermost group that has them, else of the machine."""
    stalls = {}
    for resource in _RESOURCES:
        texts = (group.read(f"{resource}.pressure") for group in groups)
        found = next((totals for text in texts if (totals := pressure(text))), None)
        totals = found or pressure(_of_machine(resource))
        if totals:
            stalls[resource] = Stalls(totals.get("some"), totals.get("full"))
    return stalls


def _of_machine(resource: str) -> bytes:
    try:
        with open(f"/proc/pressure/{resource}", "rb") as file:
            return file.read()
    except OSError:  # PSI is off, or this kernel has none
        return b""


def _machine() -> MachineMoment | None:
    import psutil

    try:
        times, load = psutil.cpu_times(), psutil.getloadavg()
        processors = psutil.cpu_count() or os.cpu_count() or 1
    except (OSError, ValueError):
        return None
    busy_s = times.user + times.nice + times.system + times.irq + times.softirq
    return MachineMoment(
        processors=processors,
        busy_ns=int(busy_s * _S),
        idle_ns=int((times.idle + times.iowait) * _S),
        waiting_ns=int(times.iowait * _S),
        steal_ns=int(times.steal * _S),
        load=load[0],
    )
