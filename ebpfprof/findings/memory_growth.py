"""A heap that grows from collection to collection, or that is never collected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import duration, quantity
from ebpfprof.findings.finding import MORE_GOROUTINES, Finding, Level
from ebpfprof.findings.words import place
from ebpfprof.profile.operations import caller_outside_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.finding import Subject
    from ebpfprof.findings.runtime import HeapMoment

_LEAST_BYTES: Final = 5_000_000
"""Less within seconds is what requests in progress hold."""
_LEAST_PER_SECOND: Final = 0.01
"""Of the heap: one that grows more slowly doubles in more than a minute, and may be a cache."""
_LEAST_RISES: Final = 3
"""Collections in a row of which each found more than the one before, or nearly."""
_LEAST_KEPT: Final = 0.3
"""Of what was allocated: if so much of it stays, two rises are enough."""
_FEWEST_RISES: Final = 2
_YOUNG_NS: Final = 60_000_000_000
"""Younger processes fill tables and caches. The agent waits for as long before it explains one."""
_DOUBLED: Final = 2.0
"""The heap of a young process must grow by this factor: nothing shows yet where it will end."""
_SURE: Final = 4.0  # standard errors of the slope
_MOST_PLACES: Final = 2
_LEAST_OF_HEAP: Final = 0.2
"""Of the heap: a type that takes less is not what fills it."""
_LEAST_TO_SAY: Final = 0.05
"""Of the heap: with less it is called steady."""
_MINUTE_S: Final = 60
_NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Grown:
    """How much the heap grew, in bytes, by how many collections, and how fast it grows."""

    bytes: int
    collections: int
    per_second: float


def find(evidence: Evidence) -> Iterator[Finding]:
    """The heap grows, with the stacks that allocated what was added."""
    grown = growth(evidence.heap) or _never_collected(evidence)
    if grown is None or not _is_much(evidence, grown):
        return
    last = evidence.heap[-1]
    speed = f"{quantity(grown.per_second * _MINUTE_S, 'bytes', 2)} a minute"
    lines = [_evidence_line(evidence, grown), *_places(evidence)]
    pid = evidence.program.pid
    yield Finding(
        kind="memory_growth" if grown.collections else "never_collected",
        level=Level.RISK,
        title=f"Memory: the heap grows by {speed}, to {quantity(last.live, 'bytes')} now.",
        lines=tuple(lines),
        next=f"memory --pid {pid} --watch",
        place=caller_outside_library(evidence.growing[0].frames) if evidence.growing else None,
        about=_about(evidence),
    )


def _is_much(evidence: Evidence, grown: Grown) -> bool:
    last = evidence.heap[-1]
    now = max(1, last.marked or last.live)
    if grown.bytes < _LEAST_BYTES or grown.per_second < _LEAST_PER_SECOND * now:
        return False
    if not grown.collections:
        return True
    age_ns = _age_ns(evidence)
    if age_ns is not None and age_ns < _YOUNG_NS and now < _DOUBLED * (now - grown.bytes):
        return False
    return _is_kept(evidence, grown)


def _age_ns(evidence: Evidence) -> int | None:
    return evidence.host.after.age_ns if evidence.host else None


def _about(evidence: Evidence) -> frozenset[Subject]:
    """The functions that allocated what was added; any if they are not known."""
    if not evidence.growing:
        return frozenset({MORE_GOROUTINES})
    return frozenset(caller_outside_library(stack.frames).function for stack in evidence.growing)


def fine(evidence: Evidence) -> str:
    """Whether memory is steady, or by how much it grew, if there were collections that show it."""
    cycles = {moment.cycles for moment in evidence.heap}
    if len(cycles) <= 1:
        return ""
    grown = growth(evidence.heap)
    if grown is None or grown.bytes < _LEAST_TO_SAY * evidence.heap[-1].marked:
        return "memory steady"
    age_ns = _age_ns(evidence)
    when = f", {duration(age_ns, 2)} after the start" if age_ns and age_ns < _YOUNG_NS else ""
    return f"heap {quantity(grown.bytes, 'bytes', 2)} larger{when}"


def growth(heap: Sequence[HeapMoment]) -> Grown | None:
    """How the heap grew from collection to collection; None unless it did so beyond chance.

    A line through what collections found must rise by four standard errors, and all but one in ten
    of them must have found more than the one before by any half of the growth.
    """
    first_seen: dict[int, HeapMoment] = {}
    for moment in heap:
        first_seen.setdefault(moment.cycles, moment)
    points = [moment for moment in first_seen.values() if moment.cycles and moment.marked]
    rises = len(points) - 1
    if rises < _FEWEST_RISES:
        return None
    gained = points[-1].marked - points[0].marked
    passed_s = (points[-1].at_ns - points[0].at_ns) / _NS
    if gained <= 0 or passed_s <= 0 or not _rises_beyond_chance(points):
        return None
    return Grown(gained, points[-1].cycles - points[0].cycles, gained / passed_s)


def _rises_beyond_chance(points: Sequence[HeapMoment]) -> bool:
    if len(points) <= _LEAST_RISES:
        return all(a.marked < b.marked for a, b in pairwise(points))
    third = max(1, len(points) // 3)
    if min(p.marked for p in points[-third:]) <= max(p.marked for p in points[:third]):
        return False
    times = [point.at_ns / _NS for point in points]
    mean_s, mean = sum(times) / len(times), sum(p.marked for p in points) / len(points)
    spread = sum((s - mean_s) ** 2 for s in times)
    slope = sum((s - mean_s) * (p.marked - mean) for s, p in zip(times, points, strict=True))
    slope /= spread
    rest = sum(
        (p.marked - mean - slope * (s - mean_s)) ** 2 for s, p in zip(times, points, strict=True)
    )
    error = math.sqrt(rest / (len(points) - 2) / spread)
    return slope > _SURE * error


def _is_kept(evidence: Evidence, grown: Grown) -> bool:
    """Whether enough collections show it, or a large part of what was allocated stayed."""
    if grown.collections >= _LEAST_RISES:
        return True
    runtime = evidence.runtime
    if runtime is None or runtime.before.memory is None or runtime.after.memory is None:
        return False
    allocated = runtime.after.memory.total_allocated - runtime.before.memory.total_allocated
    return grown.bytes >= _LEAST_KEPT * allocated


def _never_collected(evidence: Evidence) -> Grown | None:
    """GOGC=off without a limit: all that is allocated stays."""
    runtime, heap = evidence.runtime, evidence.heap
    if runtime is None or runtime.after.memory is None or len(heap) < _FEWEST_RISES:
        return None
    collector = runtime.after.memory.collector
    if collector.percent >= 0 or collector.limit is not None:
        return None
    passed_s = (heap[-1].at_ns - heap[0].at_ns) / _NS
    if heap[-1].cycles != heap[0].cycles or passed_s <= 0:
        return None
    gained = heap[-1].live - heap[0].live
    return Grown(gained, 0, gained / passed_s)


def _evidence_line(evidence: Evidence, grown: Grown) -> str:
    if not grown.collections:
        return "GOGC=off and no GOMEMLIMIT: nothing is ever freed."
    first = next(moment for moment in evidence.heap if moment.cycles)
    last = evidence.heap[-1]
    return (
        f"In use after {grown.collections + 1:,} collections: {quantity(first.marked, 'bytes')}, "
        f"then {quantity(last.marked, 'bytes')}."
    )


def _places(evidence: Evidence) -> list[str]:
    """The stacks that allocated what was added; without a memory profile, the largest types."""
    if evidence.growing:
        most = [
            f"{place(caller_outside_library(stack.frames))}: "
            f"{quantity(stack.bytes, 'bytes', 2)} more"
            for stack in evidence.growing[:_MOST_PLACES]
        ]
        return [f"Allocated by {', '.join(most)}."]
    if not evidence.largest_types:
        return []
    least = _LEAST_OF_HEAP * evidence.heap[-1].live
    types = [
        f"{kind.name} ({quantity(kind.used, 'bytes', 2)})"
        for kind in evidence.largest_types[:_MOST_PLACES]
        if kind.used >= least
    ]
    # The heap has the types of objects with pointers only.
    what = ", ".join(types) or "data without pointers, such as []byte and string"
    return [f"Most of the heap: {what}."]
