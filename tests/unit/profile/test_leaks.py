"""Which groups of goroutines only grow, from sample to sample."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
from ebpfprof.profile.leaks import LeakWatch, Suspects
from ebpfprof.profile.model import Frame

LEAKY = Frame("main.leaky", "/src/leaky.go", 7)
SECOND_NS = 1_000_000_000


def goroutine(goid: int, wait: int | None = 1, state: str = "chan receive") -> DumpedGoroutine:
    number = None if wait is None else (goid << 8 | wait) % (1 << 64)
    return DumpedGoroutine(goid, state, (LEAKY,), True, 0, 0, False, None, 0, (), wait=number)


def suspects(*members: list[DumpedGoroutine], most_groups: int = 99) -> list[Suspects]:
    """What the last of several samples tells, ten seconds apart."""
    watch, found = LeakWatch(most_groups=most_groups), []
    for number, some in enumerate(members):
        at_ns = (5 + 10 * number) * SECOND_NS
        found = watch.add(GoroutineDump(1, "x", "go1.27", 0, tuple(some), 0, 0, 0, 0, at_ns))
    return found


def group(*goids: int) -> list[DumpedGoroutine]:
    return [goroutine(goid) for goid in goids]


def test_a_group_that_grew_twice_is_reported_with_rate_and_age() -> None:
    (found,) = suspects(group(1), group(1, 2), group(1, 2, 3, 4))
    assert (found.only_grows, len(found.group.goroutines), found.is_certain) == (True, 4, False)
    assert found.per_minute == pytest.approx(3 / 20 * 60)
    assert found.oldest_ns == 20 * SECOND_NS


def test_a_group_that_appears_later_began_with_none() -> None:
    (found,) = suspects([], group(1, 2), group(1, 2, 3))
    assert found.per_minute == pytest.approx(3 / 20 * 60)


def test_one_growth_is_not_enough() -> None:
    assert suspects(group(1), group(1, 2)) == []
    assert suspects(group(1), group(1, 2), group(1, 2), group(1, 2)) == []


def test_a_group_that_does_not_grow_is_not_a_leak() -> None:
    assert suspects(*[group(1, 2, 3)] * 6) == []


def test_a_group_of_which_one_ended_is_watched_again() -> None:
    assert suspects(group(1), group(1, 2), group(1, 2, 3), group(2, 3, 4, 5)) == []


def test_a_group_of_which_one_moved_is_watched_again() -> None:
    moved = [goroutine(1, 2), *group(2, 3, 4, 5)]
    assert suspects(group(1), group(1, 2), group(1, 2, 3), moved) == []


def moving(number: int, *goids: int) -> list[DumpedGoroutine]:
    """Goroutines that move at each sample."""
    return [goroutine(goid, number) for goid in goids]


def test_leaks_are_distinguished_from_those_that_move_with_the_same_stack() -> None:
    some = [[*moving(number, 101, 102, 103), *group(*range(1, 2 + number))] for number in range(7)]
    (found,) = suspects(*some)
    assert found.only_grows
    # Of those at sample 6 the last two are no older than waits that ended; one was there before.
    assert [each.goid for each in found.group.goroutines] == [1, 2, 3, 4]
    assert found.others == 6
    assert found.per_minute == pytest.approx(3 / (60 - 20) * 60)
    assert found.oldest_ns == 60 * SECOND_NS


def test_workers_that_all_move_in_the_end_are_not_leak() -> None:
    """Of ten goroutines one moves at each sample: each waits for a hundred seconds."""
    for length in range(2, 40):
        some = [
            [goroutine(goid, (number + goid) // 10 + 1) for goid in range(10)]
            for number in range(length)
        ]
        assert suspects(*some) == [], length


def test_how_long_waits_were_is_known_of_a_group_that_comes_again() -> None:
    assert suspects(group(1), group(1), [], group(2), group(2, 3), group(2, 3, 4)) == []


def test_a_leak_after_one_that_went_on_is_found() -> None:
    """Goroutine 1 moved within 10 s; those that leak afterwards are counted."""
    some = [[goroutine(1, min(number, 1)), *group(*range(2, 2 + number))] for number in range(6)]
    (found,) = suspects(*some)
    assert len(found.group.goroutines) == 3
    assert found.others == 3


def test_goroutines_that_run_are_not_leak() -> None:
    some = [[goroutine(goid, None) for goid in range(1, 2 + number)] for number in range(4)]
    assert suspects(*some) == []


def test_what_can_never_continue_is_certain_at_the_first_sample() -> None:
    (found,) = suspects(
        [goroutine(2, 1, "select (no cases)"), goroutine(1, 1, "select (no cases)")]
    )
    assert found.is_certain
    assert not found.only_grows
    assert [each.goid for each in found.group.goroutines] == [2]


def test_ids_of_a_hostile_target_are_not_error() -> None:
    hostile = [goroutine((1 << 64) - 1), goroutine((1 << 64) - 1, 2), *group(7, 7, 7)]
    assert suspects(hostile, hostile, group(7), hostile) == []


CREATOR = Frame("main.open", "/src/open.go", 3)


def born(number: int, *goids: int, state: str = "select") -> list[DumpedGoroutine]:
    """Goroutines of one creator that move at each sample."""
    return [replace(goroutine(goid, number, state), created_by=CREATOR) for goid in goids]


def test_goroutines_that_move_and_do_not_end_are_found_by_their_creator() -> None:
    (found,) = suspects(*(born(number, *range(1, 20 + 10 * number)) for number in range(4)))
    assert (found.is_alive, found.only_grows) == (True, True)
    assert (found.newest_ns, found.oldest_ns) == (0, 30 * SECOND_NS)


@pytest.mark.parametrize(("came", "is_leak"), [(9, False), (10, True)])
def test_goroutines_that_move_are_a_leak_once_ten_came(came: int, is_leak: bool) -> None:
    numbers = (1, 2, came // 2 + 1, came + 1)
    found = suspects(*(born(turn, *range(number)) for turn, number in enumerate(numbers)))
    assert bool(found) == is_leak


def test_of_many_creators_the_largest_groups_are_watched() -> None:
    def sample(number: int) -> list[DumpedGoroutine]:
        once = [
            replace(goroutine(1000 + one, number, "select"), created_by=Frame("f", "", one))
            for one in range(9)
        ]
        return [*once, *born(number, *range(20 + 10 * number))]

    (found,) = suspects(*map(sample, range(4)), most_groups=1)
    assert found.group.first.created_by == CREATOR


def test_of_many_stacks_the_largest_groups_are_watched() -> None:
    def sample(number: int) -> list[DumpedGoroutine]:
        other = [replace(one, frames=(CREATOR,)) for one in group(*range(50, 51 + number))]
        return [*other, *group(*range(9 + number))]

    (found,) = suspects(*map(sample, range(4)), most_groups=1)
    assert found.group.first.frames == (LEAKY,)
    assert len(suspects(*map(sample, range(4)))) == 2


def test_goroutines_that_end_in_time_are_not_leak() -> None:
    load = [born(number, *range(100 * number, 110 * number + 20)) for number in range(6)]
    assert suspects(*load) == []


def test_goroutines_of_more_and_more_connections_are_not_leak() -> None:
    served = [
        [*born(number, *range(1, 20 + 10 * number)), *born(number, 999, state="IO wait")]
        for number in range(4)
    ]
    assert suspects(*served) == []
