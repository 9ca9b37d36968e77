"""Circles of goroutines that wait for each other's locks."""

from __future__ import annotations

from ebpfprof.profile import deadlocks
from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.waiting_for import LockState, Sureness, WaitsFor

LOCK = LockState(0xC000, "sync.Mutex", None, is_locked=True)


def waiting(
    goid: int,
    *may_hold: int,
    behind: int = 0,
    stood_ns: int = 1,
    surely: tuple[int, ...] = (),
    is_steady: bool = False,
) -> DumpedGoroutine:
    waits = WaitsFor(LOCK, may_hold, behind, surely_hold=surely, is_steady=is_steady)
    state = "sync.Mutex.Lock"
    return DumpedGoroutine(goid, state, (), True, stood_ns, 0, False, None, 0, (), (), waits)


def circles(*goroutines: DumpedGoroutine) -> list[list[int]]:
    return [
        [goroutine.goid for goroutine in circle.goroutines]
        for circle in deadlocks.circles(goroutines)
    ]


def sureness(*goroutines: DumpedGoroutine) -> list[tuple[list[int], str]]:
    return [
        ([goroutine.goid for goroutine in circle.goroutines], circle.sureness)
        for circle in deadlocks.circles(goroutines)
    ]


def test_each_waits_for_the_next() -> None:
    assert circles(waiting(1, 2), waiting(2, 3), waiting(3, 1)) == [[1, 2, 3]]
    assert circles(waiting(1, 2), waiting(2, 3), waiting(3)) == []


def test_one_may_wait_for_itself() -> None:
    assert circles(waiting(4, 4), waiting(5, 4)) == [[4]]


def test_those_who_lead_into_a_circle_are_not_in_it() -> None:
    assert circles(waiting(1, 3), waiting(2, 3), waiting(3, 4), waiting(4, 3)) == [[3, 4]]


def test_a_circle_needs_all_to_have_stood() -> None:
    assert circles(waiting(1, 2), waiting(2, 1, stood_ns=0)) == []


def test_one_behind_a_writer_waits_for_that_alone() -> None:
    assert circles(waiting(1, 1, behind=2), waiting(2, 1)) == [[1, 2]]
    assert circles(waiting(1, 1, behind=3), waiting(3)) == []


def test_a_goroutine_is_in_one_circle_only() -> None:
    found = circles(waiting(1, 2), waiting(2, 1, 3), waiting(3, 2), waiting(7, 8), waiting(8, 7))
    assert found == [[1, 2], [7, 8]]


def test_a_long_chain_takes_no_recursion() -> None:
    chain = [waiting(goid, goid + 1) for goid in range(1, 5000)]
    assert circles(*chain, waiting(5000, 1)) == [list(range(1, 5001))]


def test_a_circle_is_certain_if_each_surely_holds_its_lock_and_no_lock_changed() -> None:
    first = waiting(1, 2, surely=(2,), is_steady=True)
    second = waiting(2, 1, surely=(1,), is_steady=True)
    assert sureness(first, second) == [([1, 2], Sureness.CERTAIN)]
    assert sureness(first, waiting(2, 1, is_steady=True)) == [([1, 2], Sureness.LIKELY)]
    assert sureness(first, waiting(2, 1, surely=(1,))) == [([1, 2], Sureness.LIKELY)]


def test_a_writer_that_waits_behind_readers_is_known_from_memory() -> None:
    reader = waiting(1, behind=2, is_steady=True)
    writer = waiting(2, 1, surely=(1,), is_steady=True)
    assert sureness(reader, writer) == [([1, 2], Sureness.CERTAIN)]


def test_certain_circles_come_first_and_share_no_goroutine_with_others() -> None:
    certain = (
        waiting(8, 1, 9, surely=(9,), is_steady=True),
        waiting(9, 8, surely=(8,), is_steady=True),
    )
    likely = waiting(1, 2, 8), waiting(2, 1)
    assert sureness(*likely, *certain) == [([8, 9], Sureness.CERTAIN), ([1, 2], Sureness.LIKELY)]
