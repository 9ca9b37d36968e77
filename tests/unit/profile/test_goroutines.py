"""Goroutines of a dump in groups: how many, and for how long they wait."""

from __future__ import annotations

from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineGroup


def group(*waited_ns: int, stood_ns: int = 0) -> GoroutineGroup:
    return GoroutineGroup(
        tuple(
            DumpedGoroutine(1, "select", (), True, stood_ns, ns, False, None, 0, ())
            for ns in waited_ns
        )
    )


def test_the_longest_and_the_shortest_wait_of_a_group_are_those_that_are_known() -> None:
    found = group(0, 30, 20, 90)
    assert (found.longest_ns, found.newest_ns, found.timed) == (90, 20, 3)


def test_of_a_group_without_a_known_wait_nothing_is_known() -> None:
    found = group(0, 0)
    assert (found.longest_ns, found.newest_ns, found.timed) == (0, 0, 0)


def test_goroutines_that_did_not_move_are_counted() -> None:
    assert (group(1, 2, stood_ns=5).standing, group(1, 2).standing) == (2, 0)
