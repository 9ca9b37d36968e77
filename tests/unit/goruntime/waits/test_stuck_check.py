"""How sure it is that nothing is about to wake the waiters of a free lock."""

from __future__ import annotations

from collections.abc import Mapping

from ebpfprof.goruntime.waits.stuck_check import Awake, StuckSample, sureness
from ebpfprof.profile.waiting_for import Sureness

CERTAIN, LIKELY = Sureness.CERTAIN, Sureness.LIKELY


def running(sequence: int = 1) -> Awake:
    return Awake(sequence, in_sync=False, has_stack=False, takes_signals=False)


def unlocking(sequence: int = 1) -> Awake:
    return Awake(sequence, in_sync=True, has_stack=True, takes_signals=False)


def elsewhere(sequence: int = 1) -> Awake:
    return Awake(sequence, in_sync=False, has_stack=True, takes_signals=False)


def judged(*awake: Mapping[int, Awake], beyond: int = 0) -> Sureness | None:
    return sureness([StuckSample({}, {}, dict(each), 0, 0) for each in awake], beyond=beyond)


def test_it_is_certain_if_no_goroutine_can_have_been_about_to_all_the_time() -> None:
    assert judged({}, {}) is CERTAIN
    assert judged({1: elsewhere()}, {1: elsewhere()}) is CERTAIN
    assert judged({1: running()}, {}) is CERTAIN
    assert judged({1: running()}, {2: running()}) is CERTAIN
    assert judged({1: unlocking()}, {1: elsewhere(2)}) is CERTAIN


def test_one_that_is_inside_of_an_unlock_all_the_time_wakes_them_later() -> None:
    assert judged({1: unlocking()}, {1: unlocking()}) is None
    assert judged({1: unlocking()}, {1: running(2)}) is None


def test_one_that_runs_all_the_time_may_be_inside_unless_it_stopped_in_between() -> None:
    assert judged({1: running()}, {1: running()}) is None
    assert judged({1: running(1)}, {1: running(2)}) is LIKELY


def test_goroutines_that_were_not_read_may_be_about_to() -> None:
    assert judged({}, {}, beyond=1) is LIKELY
