"""The memory limit of the container: how near it is, and whether it was reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.console.text import counted, percent, quantity
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.host import MemoryGroup, difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.host import HostChange

_NEAR: Final = 0.88
"""Of the limit: the rest is less than what a burst of requests, or the next collection, may need.
Between two collections the heap grows, so memory is often near 90 % where this is seen."""
_LEAST_STALLED: Final = 0.1
"""Of the time: threads that wait for memory for less do so where files are read once."""
_MANY_FAULTS: Final = 10
"""Page faults a second that wait for a disk: fewer are code that is used for the first time."""


class _Use(NamedTuple):
    """A group with a limit, and how often that was reached meanwhile."""

    group: MemoryGroup
    hits: int
    kills: int


def find(evidence: Evidence) -> Iterator[Finding]:
    """The group in which processes were killed; else the one that is nearest to its limit, if it is
    near, or that reached it while threads waited for memory."""
    change = evidence.host_change
    uses = _uses(change) if change else []
    if change is None or not uses:
        return
    use = max(uses, key=lambda use: (use.kills, _is_near(use.group), use.hits, _part(use.group)))
    stalled = change.stalled("memory")
    # The page cache alone reaches a limit, too, and is then reclaimed: that is no fault.
    if use.kills or _is_near(use.group) or (use.hits and stalled >= _LEAST_STALLED):
        yield Finding(
            kind="memory_limit",
            level=Level.RISK,
            title=f"Memory: the container uses {percent(_part(use.group))} of its limit "
            f"({quantity(use.group.limit_bytes or 0, 'bytes')}).",
            lines=tuple(_lines(change, use, stalled)),
            next=f"memory --pid {evidence.program.pid}",
        )


def fine(evidence: Evidence) -> str:
    """How much of its limit the container uses, if it has one."""
    change = evidence.host_change
    parts = [_part(use.group) for use in (_uses(change) if change else ())]
    return f"memory {percent(max(parts))} of the limit" if parts else ""


def _uses(change: HostChange) -> list[_Use]:
    """The groups with a limit, when they needed most."""
    before = {group.name: group for group in change.before.memory_groups}
    uses = []
    for after in change.after.memory_groups:
        earlier = before.get(after.name, MemoryGroup(name=after.name))
        known = [
            group
            for group in (earlier, after)
            if group.limit_bytes and group.needed_bytes is not None
        ]
        if known:
            hits = difference(earlier.hits, after.hits) or 0
            kills = difference(earlier.kills, after.kills) or 0
            uses.append(_Use(max(known, key=_part), hits, kills))
    return uses


def _is_near(group: MemoryGroup) -> bool:
    return _part(group) >= _NEAR


def _part(group: MemoryGroup) -> float:
    """How much of its limit the group needs, without the page cache."""
    return (group.needed_bytes or 0) / (group.limit_bytes or 1)


def _lines(change: HostChange, use: _Use, stalled: float) -> Iterator[str]:
    faults = difference(change.before.major_faults, change.after.major_faults)
    resident = change.after.resident_bytes
    if resident is not None:
        size = quantity(resident, "bytes")
        yield f"This process has {size} in memory. The page cache is not counted."
    if use.kills:
        yield f"The OOM killer ended {use.kills} of the container's processes meanwhile."
    elif use.hits:
        reached = f"It reached the limit {counted(use.hits, 'time')} meanwhile"
        yield f"{reached}; threads waited for memory {percent(stalled)} of the time."
    elif faults and faults >= _MANY_FAULTS * change.length_ns / 1e9:
        yield f"Its threads waited for {counted(faults, 'page')} to be read from a disk."
