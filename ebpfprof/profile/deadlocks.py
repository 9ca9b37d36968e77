"""Circles of goroutines that wait for each other's locks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.waiting_for import Sureness, WaitsFor


@dataclass(frozen=True, slots=True)
class Circle:
    """Goroutines of which each waits for a lock of the next, and the last for one of the first.

    It is certain if each surely holds its lock, or wants to write first, and no lock changed while
    they were read; else who holds a lock is a guess.
    """

    goroutines: tuple[DumpedGoroutine, ...]
    sureness: Sureness


def circles(goroutines: Iterable[DumpedGoroutine]) -> list[Circle]:
    """Goroutines that wait for locks in a circle, and did not move between the samples.

    Each waits for a lock that the next may hold, or behind the next, which wants to write; the last
    waits for the first. One alone waits for a lock that it may hold itself. No goroutine is in two
    circles. Those that are certain come first.
    """
    standing = {
        goroutine.goid: goroutine
        for goroutine in goroutines
        if goroutine.stood_ns and goroutine.waits_for.lock
    }
    cycles, done = list[Circle](), set[int]()
    for sureness in Sureness:
        next_of = {
            goid: [
                other
                for other in _waited_for(pair.waits_for, sureness)
                if other in standing and other not in done
            ]
            for goid, pair in standing.items()
            if goid not in done
        }
        looked_at = set(done)
        for goid in sorted(next_of):
            if goid not in looked_at and (circle := _shortest_circle(next_of, goid, looked_at)):
                members = tuple(standing[goid] for goid in circle)
                cycles.append(Circle(members, sureness))
                looked_at.update(circle)
                done.update(circle)
            looked_at.add(goid)
    return cycles


def _waited_for(waits: WaitsFor, sureness: Sureness) -> tuple[int, ...]:
    if sureness is Sureness.CERTAIN and not waits.is_steady:
        return ()
    if waits.behind:
        return (waits.behind,)
    return waits.surely_hold if sureness is Sureness.CERTAIN else waits.may_hold


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
