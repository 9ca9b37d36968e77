"""Checks how near processes are to the memory limits of their control groups, often and cheaply."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.findings.host import difference
from ebpfprof.observing.groups import memory_group
from ebpfprof.process.control_groups import ControlGroups, mounted_groups
from ebpfprof.process.kernel_numbers import number, pressure
from ebpfprof.process.proc_files import ProcFiles

if TYPE_CHECKING:
    from ebpfprof.findings.host import MemoryGroup
    from ebpfprof.process.control_groups import ControlGroup

NEAR: Final = 0.95
"""Of the limit. `explain` reports a risk earlier; here the process may be killed at any moment."""
_FULL: Final = 0.1
"""Of the time: for so long all threads of the group waited for memory, while it was at its limit.
Reading files also reaches limits, but the kernel reclaims page cache quickly."""
_AGAIN_S: Final = 60.0  # limits change rarely


@dataclass(frozen=True, slots=True)
class NearLimit:
    """A control group near its limit: the memory that it can't do without, and the limit."""

    needed_bytes: int
    limit_bytes: int


@dataclass(slots=True)
class _Watched:
    """A group with a limit, and its counters when they were last read."""

    group: ControlGroup
    limit_bytes: int
    hits: int | None = None
    full_us: int | None = None
    read_s: float = 0.0


class MemoryLimits:
    """Checks processes, any number of times. For one thread at a time."""

    def __init__(self) -> None:
        self._groups = ControlGroups(mounted_groups())
        self._watched: dict[int, tuple[float, list[_Watched]]] = {}

    def near(self, pids: Collection[int]) -> dict[int, NearLimit]:
        """Those of the processes that are near a limit.

        Of a group with a limit that is far from it, this reads a file of a few bytes, once for all
        processes that are in it.
        """
        self._watched = {pid: known for pid, known in self._watched.items() if pid in pids}
        watched_by = {pid: self._of(pid) for pid in pids}
        groups = {one.group: one for watched in watched_by.values() for one in watched}
        near_of = {group: _near(watched) for group, watched in groups.items()}
        nearest = {}
        for pid, watched in watched_by.items():
            near = [one for each in watched if (one := near_of[each.group])]
            if near:
                nearest[pid] = max(near, key=lambda one: one.needed_bytes / one.limit_bytes)
        return nearest

    def _of(self, pid: int) -> list[_Watched]:
        now_s = time.monotonic()
        since_s, watched = self._watched.get(pid, (-_AGAIN_S, []))
        if now_s - since_s >= _AGAIN_S:
            groups = self._groups.of(ProcFiles(pid), "memory")
            limited = [(group, memory_group(group).limit_bytes) for group in groups]
            watched = [_Watched(group, limit) for group, limit in limited if limit]
            self._watched[pid] = now_s, watched
        return watched


def _near(watched: _Watched) -> NearLimit | None:
    file = "memory.current" if watched.group.is_unified else "memory.usage_in_bytes"
    used = number(watched.group.read(file))
    if used is None or used < NEAR * watched.limit_bytes:
        return None
    now = memory_group(watched.group)
    is_near = now.needed_bytes is not None and now.needed_bytes >= NEAR * watched.limit_bytes
    is_stalled = _is_stalled(watched, now)
    if is_near or is_stalled:
        return NearLimit(now.needed_bytes or used, watched.limit_bytes)
    return None


def _is_stalled(watched: _Watched, now: MemoryGroup) -> bool:
    """Whether the limit was reached again and again, while nothing else could run."""
    full_us = pressure(watched.group.read("memory.pressure")).get("full")
    now_s = time.monotonic()
    hits = difference(watched.hits, now.hits)
    stalled_us = difference(watched.full_us, full_us)
    length_us = 1e6 * (now_s - watched.read_s)
    watched.hits, watched.full_us, watched.read_s = now.hits, full_us, now_s
    return bool(hits) and stalled_us is not None and stalled_us >= _FULL * length_us
