"""Circles of goroutines that wait for each other's locks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.waiting_for import WaitsFor


def deadlocks(goroutines: Iterable[DumpedGoroutine]) -> list[tuple[DumpedGoroutine, ...]]:
    """Goroutines that wait for locks in a circle, and did not move between the looks.

    Each waits for a lock that the next may hold, or behind the next, which wants to write; the last
    waits for the first. One alone waits for a lock that it may hold itself. Whether they hold the
    locks is a guess, from their stacks. No goroutine is in two circles.
    """
    standing = {each.goid: each for each in goroutines if each.stood_ns and each.waits_for.lock}
    next_of = {
        goid: [other for other in _waited_for(each.waits_for) if other in standing]
        for goid, each in standing.items()
    }
    found, done = [], set[int]()
    for goid in sorted(next_of):
        if goid not in done and (circle := _shortest_circle(next_of, goid, done)):
            found.append(tuple(standing[each] for each in circle))
            done.update(circle)
        done.add(goid)
    return found


def _waited_for(waits: WaitsFor) -> tuple[int, ...]:
    return (waits.behind,) if waits.behind else waits.may_hold


def _shortest_circle(
    next_of: Mapping[int, list[int]], start: int, without: set[int]
) -> list[int] | None:
    came_from: dict[int, int] = {}
    layer = [start]
    for goid in layer:
        for other in next_of[goid]:
            if other == start:
                circle = [goid]
                while circle[-1] != start:
                    circle.append(came_from[circle[-1]])
                return circle[::-1]
            if other not in came_from and other not in without:
                came_from[other] = goid
                layer.append(other)
    return None
