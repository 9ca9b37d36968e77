"""What this process and its children use: CPU time and memory."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class OwnUsage:
    """CPU time so far of the process and all descendants, in seconds, and its own memory now.

    The memory of children is not told: most of it is what they share with the process (fork).
    """

    cpu_s: float
    rss_bytes: int


def own_usage() -> OwnUsage:
    """What this process uses, with its children that run and those that ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = sum(each.ru_utime + each.ru_stime for each in (ended, own))
    _, rss = _of(os.getpid())
    cpu_s += sum(_of(pid)[0] for pid in _descendants(os.getpid()))
    return OwnUsage(cpu_s, rss)


def _of(pid: int) -> tuple[float, int]:
    """The CPU time of a process, with that of its children that ended, and its memory."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0, 0
    return sum(map(int, fields[11:15])) * _TICK_S, pages * _PAGE_BYTES


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
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
                    children = [int(each) for each in file.read().split()]
            except OSError:
                continue
            found += children
            todo += children
    return found
