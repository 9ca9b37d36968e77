"""Times as intervals of nanoseconds, and what is covered by them."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]
"""From a time to a later one."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time in order, without overlaps and empty intervals."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if begin >= end:
            continue
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


def within(intervals: Iterable[Interval], span: Interval) -> list[Interval]:
    """The part of them that lies in `span`, as union() has it."""
    return union((max(begin, span[0]), min(end, span[1])) for begin, end in intervals)


def without(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """The time that is in `intervals` and not in `others`."""
    gaps = []
    removed = union(others)
    for begin, end in union(intervals):
        begin_of_gap = begin
        for start, stop in removed:
            if stop <= begin_of_gap or start >= end:
                continue
            gaps.append((begin_of_gap, start))
            begin_of_gap = stop
        gaps.append((begin_of_gap, end))
    return union(gaps)


def both(one: Iterable[Interval], other: Iterable[Interval]) -> list[Interval]:
    """The time that is in both."""
    one = union(one)
    return without(one, without(one, other))


def length_ns(intervals: Iterable[Interval]) -> int:
    """How long they are together; time in several of them counts once."""
    return sum(end - begin for begin, end in union(intervals))
