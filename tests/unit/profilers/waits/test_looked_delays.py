"""Delays from looks in place of those of windows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from ebpfprof.goruntime.samples.state_sums import GoroutineState, StateTotal, StateTotals
from ebpfprof.profilers.waits.looked_delays import LookedDelays
from ebpfprof.profilers.waits.rows import KnownStack, StackTotal
from ebpfprof.profilers.waits.stack_table import OTHER_LOCKS
from ebpfprof.profilers.waits.window_sums import Deviation, WindowCoverage

MS = 1_000_000
PARK, A, B = 7, (8, 9), (11, 12)
LOCK = (20, 21)


@dataclass
class Looks:
    """Looks that found what a test says; a stack begins with the address of its park."""

    states: dict[GoroutineState, StateTotal] = field(default_factory=dict)
    looks: int = 101

    @property
    def sampler(self) -> Looks:
        return self

    def sample(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def standing_states(self, _: int) -> dict[GoroutineState, tuple[int, int, int]]:
        return {}

    def park_at(self, pcs: tuple[int, ...]) -> int | None:
        return 1 if pcs and pcs[0] == PARK else None

    def totals(self) -> StateTotals:
        return StateTotals(dict(self.states), self.looks, (self.looks - 1) * 10 * MS)

    def find(self, pcs: tuple[int, ...], word: str = "select", **values: Any) -> None:  # noqa: ANN401 - fields of StateTotal
        known = {"ns": 0, "hits": 0, "ended_ns": 0, "ended": 0, "variance": 0.0, **values}
        self.states[GoroutineState(word, (PARK, *pcs), 1, ())] = StateTotal(**known)


def block(pcs: tuple[int, ...], count: float, delay_ns: int) -> StackTotal:
    return StackTotal("block", 0, pcs, count, delay_ns)


def mutex(pcs: tuple[int, ...], count: float, delay_ns: int) -> StackTotal:
    return StackTotal("mutex", 0, pcs, count, delay_ns)


def begun(looks: Looks) -> LookedDelays:
    delays = LookedDelays(cast("Any", looks))
    delays.start()
    delays.begin()
    return delays


def applied(
    delays: LookedDelays,
    *totals: StackTotal,
    exact: dict[KnownStack, tuple[float, float]] | None = None,
    uncharged: dict[int, float] | None = None,
    windows: int = 20,
) -> tuple[dict[Any, StackTotal], WindowCoverage]:
    deviations = {"block": Deviation(1, 1, 4.0, 4.0)}
    coverage = WindowCoverage(1, 100, windows, deviations, 0, has_paused=True)
    found, told = delays.applied(
        *(totals, coverage, exact or {}, uncharged or {}),
        *(lambda pcs: pcs == LOCK, lambda pcs: pcs == (99,)),
    )
    return {(each.kind, each.return_pcs): each for each in found}, told


def test_counts_are_those_of_windows_and_delays_those_of_looks() -> None:
    looks = Looks()
    delays = begun(looks)
    looks.find(A, ns=80 * MS, hits=8, ended_ns=70 * MS, ended=7, variance=9.0 * MS**2)
    found, coverage = applied(delays, block(A, 5000, 123 * MS))
    total = found["block", A]
    assert (total.count, total.delay_ns, total.delay_variance) == (5000, 70 * MS, 9.0 * MS**2)
    assert coverage.looks == looks.looks
    deviation = coverage.deviations["block"]
    assert (deviation.count, deviation.delay_ns) == (5000, 70 * MS)
    assert (deviation.count_variance, deviation.delay_variance) == (4.0, 9.0 * MS**2)


def test_waits_that_windows_missed_are_counted_by_their_mean() -> None:
    """Windows met no burst, looks did."""
    looks = Looks()
    delays = begun(looks)
    exact = {KnownStack(0, "block", 0, A, ()): (200.0, 2.0 * MS)}
    looks.find(A, ns=600 * MS, hits=60, ended_ns=600 * MS, ended=60)
    found, coverage = applied(delays, block(A, 300, 3 * MS), exact=exact)
    assert found["block", A].count == 200 + 600 * 100
    added = 200 + 600 * 100 - 300
    assert coverage.deviations["block"].count_variance == pytest.approx(
        4.0 + added**2 / coverage.factor
    )


def test_releases_that_windows_missed_are_not_known() -> None:
    looks = Looks()
    delays = begun(looks)
    exact = {KnownStack(0, "mutex", 0, A, ()): (10.0, 1.0 * MS)}
    looks.find(LOCK, ns=600 * MS, hits=60, ended_ns=600 * MS, ended=60)
    found, coverage = applied(delays, mutex(A, 10, 1 * MS), exact=exact)
    assert (found["mutex", A].count, found["mutex", A].delay_ns) == (10, 1 * MS)
    assert (found["mutex", ()].count, found["mutex", ()].delay_ns) == (0, 600 * MS)
    assert coverage.uncharged_ns == 600 * MS


def test_waiting_that_windows_cut_off_has_an_unknown_release() -> None:
    """Most releases after short holds were recorded, and few after long ones."""
    looks = Looks()
    delays = begun(looks)
    looks.find(LOCK, ns=600 * MS, hits=60, ended_ns=600 * MS, ended=60)
    found, _ = applied(delays, mutex(A, 90, 600 * MS), uncharged={0xA0: 1800.0 * MS})
    assert found["mutex", A].delay_ns == 150 * MS
    assert found["mutex", ()].delay_ns == 450 * MS


def test_few_windows_say_nothing_of_releases() -> None:
    looks = Looks()
    delays = begun(looks)
    exact = {KnownStack(0, "mutex", 0, A, ()): (10.0, 1.0 * MS)}
    looks.find(LOCK, ns=600 * MS, hits=60, ended_ns=600 * MS, ended=60)
    found, _ = applied(delays, mutex(A, 90, 700 * MS), mutex(B, 1, 9), exact=exact, windows=9)
    assert (found["mutex", A].count, found["mutex", A].delay_ns) == (10, 1 * MS)
    assert ("mutex", B) not in found
    assert found["mutex", ()].delay_ns == 600 * MS


def test_releases_of_a_lock_are_charged_no_more_than_its_waiters_waited() -> None:
    """Looks bound what windows saw of rare waits; a release has no more than they leave."""
    found, _ = applied(begun(Looks()), block(LOCK, 7, 5000 * MS), mutex(A, 7, 5000 * MS))
    assert found["block", LOCK].delay_ns == 10 * MS
    assert found["mutex", A].delay_ns == 10 * MS


def test_what_was_recorded_before_stays_exact() -> None:
    looks = Looks()
    looks.find(A, ns=5 * MS, hits=5, ended_ns=5 * MS, ended=5, variance=1.0)
    delays = begun(looks)
    exact = {KnownStack(0, "block", 0, A, ()): (30.0, 3.0 * MS)}
    looks.find(A, ns=25 * MS, hits=7, ended_ns=25 * MS, ended=7, variance=3.0)
    found, _ = applied(delays, block(A, 5000, 123 * MS), exact=exact)
    assert found["block", A].delay_ns == (3 + 20) * MS
    assert found["block", A].delay_variance == 2.0


def test_waits_that_last_for_many_looks_are_counted_by_looks() -> None:
    """A window that saw one of them stands for too many."""
    looks = Looks()
    delays = begun(looks)
    exact = {KnownStack(0, "block", 0, A, ()): (2.0, 1.0)}
    looks.find(A, ns=900 * MS, hits=90, ended_ns=900 * MS, ended=3)
    found, _ = applied(delays, block(A, 400, 1), exact=exact)
    assert found["block", A].count == 2 + 3


def test_there_is_no_count_without_a_delay_and_no_delay_without_a_count() -> None:
    looks = Looks()
    delays = begun(looks)
    looks.find(B, ns=50 * MS, hits=5, ended_ns=40 * MS, ended=4)
    found, _ = applied(delays, block(A, 700, 2 * MS))
    assert (found["block", A].count, found["block", A].delay_ns) == (700, 2 * MS)
    assert found["block", A].delay_variance == (2.0 * MS) ** 2
    assert (found["block", B].count, found["block", B].delay_ns) == (4, 40 * MS)


def test_a_window_stands_for_no_more_than_looks_leave_room_for() -> None:
    found, _ = applied(begun(Looks()), block(A, 700, 5000 * MS))
    assert found["block", A].delay_ns == 10 * MS  # between two looks


def test_what_still_waits_and_what_waits_no_longer_is_left_out() -> None:
    looks = Looks()
    delays = begun(looks)
    looks.find(A, ns=500 * MS, hits=50)  # continues
    looks.find(B, word="runnable", ns=50 * MS, hits=5, ended_ns=50 * MS, ended=5)
    found, _ = applied(delays)
    assert found == {}


def test_releases_are_charged_what_waiters_waited() -> None:
    looks = Looks()
    delays = begun(looks)
    exact = {KnownStack(0, "mutex", 0, A, ()): (1.0, 10.0 * MS)}
    looks.find(LOCK, ns=600 * MS, hits=60, ended_ns=600 * MS, ended=60, variance=36.0 * MS**2)
    found, _ = applied(
        delays, mutex(A, 10, 110 * MS), mutex(B, 5, 300 * MS), mutex((99,), 1, 7), exact=exact
    )
    assert found["mutex", A].delay_ns == 10 * MS + 100 * MS
    assert found["mutex", B].delay_ns == 300 * MS
    assert found["mutex", B].delay_variance == pytest.approx((300 * MS * 0.01) ** 2)
    assert found["mutex", ()].delay_ns == 200 * MS
    assert found["mutex", (99,)].delay_ns == 7  # the runtime's own lock


def test_what_looks_found_bounds_what_releases_are_charged() -> None:
    looks = Looks()
    delays = begun(looks)
    looks.find(LOCK, ns=40 * MS, hits=4, ended_ns=40 * MS, ended=4, variance=100.0 * MS**2)
    found, _ = applied(delays, mutex(A, 10, 500 * MS))
    assert found["mutex", A].delay_ns == found["block", LOCK].delay_ns == 40 * MS


def test_releases_of_waits_that_no_look_found_are_charged_the_time_between_two_looks() -> None:
    found, _ = applied(begun(Looks()), mutex(A, 10, 500 * MS))
    assert found["mutex", A].delay_ns == 10 * MS
    assert found["mutex", A].delay_variance == pytest.approx((10 * MS) ** 2)


def test_delays_stay_when_looks_end_and_begin_again() -> None:
    looks = Looks()
    delays = begun(looks)
    looks.find(A, ns=40 * MS, hits=4, ended_ns=40 * MS, ended=4)
    delays.stop()
    assert delays.has_begun
    looks.find(A, ns=90 * MS, hits=9, ended_ns=90 * MS, ended=9)  # meanwhile all was recorded
    found, _ = applied(delays, block(A, 9, 1))
    assert found["block", A].delay_ns == 40 * MS


def find_of_lock(looks: Looks, sema: int, **values: Any) -> None:  # noqa: ANN401 - fields of StateTotal
    known = {"ns": 0, "hits": 0, "ended_ns": 0, "ended": 0, "variance": 0.0, **values}
    looks.states[GoroutineState("semacquire", (PARK, *A), 1, (), sema)] = StateTotal(**known)


def by_lock(*, locks: int, hit: int) -> tuple[LookedDelays, list[StackTotal]]:
    """A stack that waits for many locks, of which looks have hit some, and windows all."""
    looks = Looks()
    delays = begun(looks)
    for number in range(hit):
        find_of_lock(looks, 4 * (number + 1), hits=1, ended_ns=10 * MS, ended=1, variance=MS**2)
    totals = [StackTotal("block", 4 * (n + 1), A, 20, MS) for n in range(locks)]
    return delays, totals


def test_locks_of_a_stack_add_up_to_what_the_stack_waited() -> None:
    """Those that no look hit must not add what windows saw of them to what looks found."""
    delays, totals = by_lock(locks=50, hit=5)
    coverage = WindowCoverage(1, 100, 5, {}, 0, has_paused=True)
    found, _ = delays.applied(totals, coverage, {}, {}, lambda _: True, lambda _: False)
    whole = [replace(each, sema=0) for each in totals[:1]]
    whole[0].count, whole[0].delay_ns = 50 * 20, 50 * MS
    plain = begun(Looks())
    plain.looks.find(A, hits=5, ended_ns=50 * MS, ended=5, variance=5.0 * MS**2)  # type: ignore[attr-defined]  # it is a Looks
    (expected,) = (
        each
        for each in plain.applied(whole, coverage, {}, {}, lambda _: True, lambda _: False)[0]
        if each.kind == "block"
    )
    found = [each for each in found if each.kind == "block"]
    assert len(found) == 50
    assert sum(each.delay_ns for each in found) == pytest.approx(expected.delay_ns, abs=50)
    assert sum(each.count for each in found) == pytest.approx(expected.count)
    assert expected.delay_ns == 50 * MS
    # And those that looks hit have the larger part.
    hit = [each.delay_ns for each in found if each.sema <= 4 * 5]
    assert min(hit) > 5 * max(each.delay_ns for each in found if each.sema > 4 * 5)


def test_locks_that_are_not_told_apart_have_their_delays_together() -> None:
    delays, totals = by_lock(locks=1, hit=3)
    totals.append(StackTotal("block", OTHER_LOCKS, A, 40, 2 * MS))
    coverage = WindowCoverage(1, 100, 5, {}, 0, has_paused=True)
    found, _ = delays.applied(totals, coverage, {}, {}, lambda _: True, lambda _: False)
    expected = {4: 10 * MS, OTHER_LOCKS: 20 * MS}
    for kind in ("block", "mutex"):
        assert {each.sema: each.delay_ns for each in found if each.kind == kind} == expected
