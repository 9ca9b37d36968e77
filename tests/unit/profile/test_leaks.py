"""Which groups of goroutines only grow, from look to look."""

from __future__ import annotations

import pytest

from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
from ebpfprof.profile.leaks import LeakWatch, Suspects
from ebpfprof.profile.model import Frame

LEAKY = Frame("main.leaky", "/src/leaky.go", 7)
SECOND_NS = 1_000_000_000


def goroutine(goid: int, sequence: int | None = 1, state: str = "chan receive") -> DumpedGoroutine:
    return DumpedGoroutine(goid, state, (LEAKY,), True, 0, 0, False, None, 0, (), sequence=sequence)


def looks(*members: list[DumpedGoroutine]) -> list[Suspects]:
    """What the last of several looks tells, ten seconds apart."""
    watch, found = LeakWatch(), []
    for number, some in enumerate(members):
        at_ns = (5 + 10 * number) * SECOND_NS
        found = watch.add(GoroutineDump(1, "x", "go1.27", 0, tuple(some), 0, 0, 0, 0, at_ns))
    return found


def group(*goids: int) -> list[DumpedGoroutine]:
    return [goroutine(goid) for goid in goids]


def test_a_group_that_grew_twice_is_told_with_rate_and_age() -> None:
    (found,) = looks(group(1), group(1, 2), group(1, 2, 3, 4))
    assert (found.only_grows, len(found.group.goroutines), found.is_certain) == (True, 4, False)
    assert found.per_minute == pytest.approx(3 / 20 * 60)
    assert found.oldest_ns == 20 * SECOND_NS


def test_a_group_that_appears_later_began_with_none() -> None:
    (found,) = looks([], group(1, 2), group(1, 2, 3))
    assert found.per_minute == pytest.approx(3 / 20 * 60)


def test_one_growth_is_not_enough() -> None:
    assert looks(group(1), group(1, 2)) == []
    assert looks(group(1), group(1, 2), group(1, 2), group(1, 2)) == []


def test_a_group_that_does_not_grow_is_no_leak() -> None:
    assert looks(*[group(1, 2, 3)] * 6) == []


def test_a_group_of_which_one_ended_is_watched_anew() -> None:
    assert looks(group(1), group(1, 2), group(1, 2, 3), group(2, 3, 4, 5)) == []


def test_a_group_of_which_one_moved_is_watched_anew() -> None:
    moved = [goroutine(1, 2), *group(2, 3, 4, 5)]
    assert looks(group(1), group(1, 2), group(1, 2, 3), moved) == []


def test_goroutines_that_run_are_no_leak() -> None:
    some = [[goroutine(goid, None) for goid in range(1, 2 + look)] for look in range(4)]
    assert looks(*some) == []


def test_what_can_never_go_on_is_certain_at_the_first_look() -> None:
    (found,) = looks([goroutine(2, 1, "select (no cases)"), goroutine(1, 1, "select (no cases)")])
    assert found.is_certain
    assert not found.only_grows
    assert [each.goid for each in found.group.goroutines] == [2]
