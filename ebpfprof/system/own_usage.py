"""What this process and its children use: CPU time and memory."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class OwnUsage:
    """CPU time so far of the process and all descendants, in seconds, and their memory now.

    What several of them share counts once: the sum of their proportional set sizes (Pss).
    """

    cpu_s: float
    memory_bytes: int


def own_usage() -> OwnUsage:
    """What this process uses, with its children that run and those that ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in (ended, own))
    children = _descendants(os.getpid())
    cpu_s += sum(map(_cpu_s, children))
    return OwnUsage(cpu_s, sum(map(_memory_bytes, [os.getpid(), *children])))


def _cpu_s(pid: int) -> float:
    """The CPU time of a process, with that of its children that ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) * _TICK_S
    except (OSError, IndexError, ValueError):
        return 0.0


def _memory_bytes(pid: int) -> int:
    """The proportional set size of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:"))
    except (OSError, IndexError, ValueError, StopIteration):
        return 0


def _descendants(pid: int) -> list[int]:
    descendants: list[int] = []
    todo = [pid]
    while todo:
        parent = todo.pop()
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                with open(f"/proc/{parent}/task/{task}/children", "rb") as file:
                    children = [int(word) for word in file.read().split()]
            except OSError:
                continue
            descendants += children
            todo += children
    return descendants
