"""What the kernel knows of a process, its container and the machine, at a moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMoment:
    """Counters of the kernel since the process, its cgroup or the machine began."""

    cpu_ns: int
    """The CPU time of all threads of the process."""
