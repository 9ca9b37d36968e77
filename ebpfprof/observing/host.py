"""Reads what the kernel counts for a process, its cgroup and the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.findings.host import HostMoment

if TYPE_CHECKING:
    from ebpfprof.process.process import Target


class HostReader:
    """Reads the kernel's counters of one process, any number of times."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def read(self) -> HostMoment:
        """The counters now."""
        return HostMoment(cpu_ns=self._target.cpu_ns() or 0)
