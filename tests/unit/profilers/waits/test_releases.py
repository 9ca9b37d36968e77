"""Releases of locks: they make up what goroutines waited for the lock."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from ebpfprof.profilers.waits.releases import releases
from ebpfprof.profilers.waits.rows import KnownStack, StackSums, StackTotal
from ebpfprof.profilers.waits.sampled_sums import BlockEstimate, SampledSums
from ebpfprof.profilers.waits.stack_table import OTHER_LOCKS

MS = 1_000_000
RUNTIME_PCS = (99,)
WINDOWS = 10
LOCK, OTHER_LOCK = 0xA0, 0xB0
NONE = StackSums()
R = KnownStack(0, "mutex", 0, (30,), ())
S = KnownStack(0, "mutex", 0, (40,), ())
RUNTIME = KnownStack(0, "mutex", 0, RUNTIME_PCS, ())
Found = dict[tuple[tuple[int, ...], int], StackTotal]


def waits(
    delay_ns: int, *, sema: int = 0, variance: float = 0.0, every_ns: float = 0.0
) -> BlockEstimate:
    """What goroutines waited for a lock; `every_ns` of it while every wait was recorded."""
    row = StackTotal("block", sema, (20,), 1, delay_ns, delay_variance=variance)
    return BlockEstimate(row, StackSums(1 if every_ns else 0, every_ns), NONE)


def eighth(more: dict[KnownStack, StackSums]) -> SampledSums:
    sums = SampledSums()
    sums.add_eighth(more)
    return sums


def windows(more: dict[KnownStack, StackSums], count: int = WINDOWS) -> SampledSums:
    """Windows with half of all runs."""
    sums = SampledSums()
    for _ in range(count):
        sums.add_pause(10)
        sums.add_window(more, MS, 10)
    return sums


def released(sums: SampledSums, *locks: BlockEstimate) -> Found:
    rows = releases(sums, locks, lambda pcs: pcs == RUNTIME_PCS)
    assert {row.kind for row in rows} <= {"mutex"}
    found = {(row.return_pcs, row.sema): row for row in rows}
    assert len(found) == len(rows)
    return found


def delays(found: Found) -> dict[tuple[int, ...], int]:
    return {pcs: row.delay_ns for (pcs, _), row in found.items()}


def test_nothing_was_recorded() -> None:
    assert released(SampledSums()) == {}


def test_releases_are_charged_in_proportion_what_waiters_waited() -> None:
    sums = eighth({R: StackSums(80, 30 * MS), S: StackSums(8, 10 * MS)})
    found = released(sums, waits(500 * MS), waits(300 * MS))
    assert delays(found) == {(30,): 600 * MS, (40,): 200 * MS}
    assert {pcs: row.count for (pcs, _), row in found.items()} == {(30,): 80, (40,): 8}
    assert found[(30,), 0].count_variance == 56 * 12


def of_releases(alone: int, others_ns: float) -> StackSums:
    """Tracked releases of 1 ms; and what was charged to releases of untracked waiters."""
    lengths = 8 * WaitHistogram.of([MS] * alone)
    return StackSums(lengths.total, lengths.time_ns + others_ns, lengths=lengths)


def test_with_one_waiter_each_lengths_are_those_of_the_charges() -> None:
    sums = eighth({R: of_releases(10, 0.0)})
    assert released(sums, waits(90 * MS))[(30,), 0].lengths == 8 * WaitHistogram.of([MS] * 10)
    assert released(sums)[(30,), 0].lengths == 8 * WaitHistogram.of([MS] * 10)


def test_releases_with_other_waiters_have_no_length() -> None:
    """An eighth of the delay of others is charged to releases of untracked waiters."""
    some = released(eighth({R: of_releases(10, 8 * MS)}), waits(90 * MS))[(30,), 0]
    assert 0 < some.lengths.total < some.count
    quantile = some.lengths.quantile(0.5, waits=some.count)
    assert quantile
    assert quantile.least_ns < MS < quantile.most_ns
    always = released(eighth({R: of_releases(10, 100 * MS)}), waits(90 * MS))[(30,), 0]
    assert (always.count, always.lengths) == (80, NO_LENGTHS)


def test_lengths_of_the_exact_time_stay() -> None:
    exact = WaitHistogram.of([3 * MS] * 2)
    sums = eighth({R: of_releases(10, 100 * MS)})
    sums.add_every({R: StackSums(2, 6 * MS, lengths=exact)})
    assert released(sums, waits(90 * MS))[(30,), 0].lengths == exact
    assert released(sums)[(30,), 0].lengths == exact


def test_what_was_exact_stays_so() -> None:
    sums = eighth({R: StackSums(8, 8 * MS), S: StackSums(8, 8 * MS)})
    sums.add_every({R: StackSums(3, 100 * MS)})
    found = released(sums, waits(300 * MS, every_ns=100 * MS))
    assert delays(found) == {(30,): 200 * MS, (40,): 100 * MS}
    assert found[(30,), 0].count == 11


def test_what_corrects_the_waits_for_a_lock_corrects_its_releases() -> None:
    """By each stack as much as it was recorded; what was exact stays so."""
    sums = eighth({R: StackSums(80, 8 * MS)})
    sums.add_every({R: StackSums(5, MS)})
    some = waits(20 * MS)._replace(seen=StackSums(parks=30), correction=0.5)
    others = waits(20 * MS)._replace(seen=StackSums(parks=10), correction=0.9)
    found = released(sums, some, others)
    assert found[(30,), 0].count == pytest.approx(5 + 80 * (0.75 * 0.5 + 0.25 * 0.9))
    assert found[(30,), 0].delay_ns == 41 * MS


def test_a_release_that_charged_nothing_has_a_count_alone() -> None:
    found = released(eighth({R: StackSums(8, 8 * MS), S: StackSums(8, 0)}), waits(5 * MS))
    assert delays(found) == {(30,): 5 * MS, (40,): 0}
    assert found[(40,), 0].count == 8
    assert found[(40,), 0].delay_variance == 0


def test_waiting_without_a_recorded_release_has_an_unknown_one() -> None:
    found = released(SampledSums(), waits(7 * MS, sema=LOCK, variance=9.0))
    (row,) = found.values()
    assert (row.return_pcs, row.sema, row.labels) == ((), LOCK, ())
    assert (row.count, row.delay_ns, row.count_variance) == (0, 7 * MS, 0)
    assert row.delay_variance == pytest.approx(9.0)


def test_releases_that_charged_nobody_show_nothing_of_those_that_did() -> None:
    found = released(eighth({R: StackSums(8, 0)}), waits(7 * MS))
    assert delays(found) == {(): 7 * MS}


def test_without_waits_there_is_nothing_to_charge() -> None:
    """All waits were exact, and the estimate of the others is nothing."""
    found = released(eighth({R: StackSums(8, 8 * MS)}), waits(5 * MS, every_ns=5 * MS))
    assert delays(found) == {(30,): 0}
    assert found[(30,), 0].delay_variance == 0


def test_each_lock_has_its_own_releases() -> None:
    r, s, t = R._replace(sema=LOCK), S._replace(sema=OTHER_LOCK), S._replace(sema=LOCK)
    sums = eighth({r: StackSums(8, MS), s: StackSums(8, 100 * MS), t: StackSums(8, 3 * MS)})
    found = released(sums, waits(40 * MS, sema=LOCK), waits(7 * MS, sema=OTHER_LOCK))
    assert {place: row.delay_ns for place, row in found.items()} == {
        ((30,), LOCK): 10 * MS,
        ((40,), LOCK): 30 * MS,
        ((40,), OTHER_LOCK): 7 * MS,
    }


def test_without_a_block_kind_releases_have_what_they_were_charged() -> None:
    sums = eighth({R: StackSums(80, 30 * MS)})
    sums.add_every({R: StackSums(1, MS)})
    found = released(sums)
    assert delays(found) == {(30,): 31 * MS}
    assert found[(30,), 0].count == 81
    by_windows = released(windows({R: StackSums(8, MS)}, 3))
    assert delays(by_windows) == {(30,): 6 * MS}


def test_a_lock_without_waits_keeps_its_releases_beside_one_with_waits() -> None:
    r, s = R._replace(sema=LOCK), S._replace(sema=OTHER_LOCK)
    found = released(
        eighth({r: StackSums(8, MS), s: StackSums(8, 5 * MS)}), waits(9 * MS, sema=LOCK)
    )
    assert delays(found) == {(30,): 9 * MS, (40,): 5 * MS}


def test_the_runtimes_own_locks_have_what_was_recorded() -> None:
    sums = eighth({R: StackSums(8, MS), RUNTIME: StackSums(3, 7)})
    found = released(sums, waits(100 * MS))
    assert delays(found) == {(30,): 100 * MS, RUNTIME_PCS: 7}
    assert found[RUNTIME_PCS, 0].count == 3
    # Nothing tracks them: each was recorded.
    assert (found[RUNTIME_PCS, 0].count_variance, found[RUNTIME_PCS, 0].delay_variance) == (0, 0)


def test_the_runtimes_own_locks_in_windows_stand_for_those_in_pauses() -> None:
    sums = windows({RUNTIME: StackSums(3, 7 * MS)}, 3)
    sums.add_pause(10)
    sums.add_window({RUNTIME: StackSums(6, 14 * MS)}, MS, 10)
    row = released(sums)[RUNTIME_PCS, 0]
    assert (row.count, row.delay_ns) == (30, 70 * MS)
    # Probes slow the program down, and threads meet less often at a lock: nobody knows by how much.
    assert row.count**2 <= row.count_variance < (2 * row.count) ** 2
    assert row.delay_ns**2 <= row.delay_variance < (2 * row.delay_ns) ** 2
    sums.add_eighth({RUNTIME: StackSums(5, 10 * MS)})
    sums.runs_in_eighth = 40.0
    # 40 more runs in pauses for 80 with probes: half as much again.
    row = released(sums)[RUNTIME_PCS, 0]
    assert (row.count, row.delay_ns) == (30, round(67.5 * MS))
    assert row.count_variance >= row.count**2
    (whole,) = released(eighth({RUNTIME: StackSums(3, 7)})).values()
    assert (whole.count_variance, whole.delay_variance) == (0, 0)


def test_waiting_that_windows_cut_off_has_an_unknown_release() -> None:
    """Windows charged 10 ms each, and 30 ms remained at their ends: a quarter is known."""
    sums = windows({R: StackSums(8, 10 * MS)})
    sums.add_uncharged({LOCK: 30.0 * MS * WINDOWS})
    found = released(sums, waits(400 * MS, variance=(40.0 * MS) ** 2))
    assert delays(found) == {(30,): 100 * MS, (): 300 * MS}
    assert found[(), 0].delay_variance == pytest.approx((30.0 * MS) ** 2)


def test_each_lock_has_its_own_uncharged_waiting() -> None:
    r, s = R._replace(sema=LOCK), S._replace(sema=OTHER_LOCK)
    sums = windows({r: StackSums(8, 10 * MS), s: StackSums(8, 10 * MS)})
    sums.add_uncharged({LOCK: 10.0 * MS * WINDOWS})
    found = released(sums, waits(100 * MS, sema=LOCK), waits(100 * MS, sema=OTHER_LOCK))
    assert {place: row.delay_ns for place, row in found.items()} == {
        ((30,), LOCK): 50 * MS,
        ((), LOCK): 50 * MS,
        ((40,), OTHER_LOCK): 100 * MS,
    }


@pytest.mark.parametrize("known", [0, OTHER_LOCKS])
def test_uncharged_waiting_for_locks_that_have_one_row_is_theirs(known: int) -> None:
    r, s = R._replace(sema=LOCK), S._replace(sema=known)
    sums = windows({r: StackSums(8, 10 * MS), s: StackSums(8, 10 * MS)})
    # Half of this is of locks without rows.
    sums.add_uncharged({OTHER_LOCK: 5.0 * MS * WINDOWS, 0xC0: 5.0 * MS * WINDOWS})
    found = released(sums, waits(100 * MS, sema=LOCK), waits(100 * MS, sema=known))
    assert {place: row.delay_ns for place, row in found.items()} == {
        ((30,), LOCK): 100 * MS,
        ((40,), known): 50 * MS,
        ((), known): 50 * MS,
    }


def test_uncharged_waiting_of_a_lock_that_only_waits_know_is_its_own() -> None:
    sums = windows({R._replace(sema=LOCK): StackSums(8, MS)})
    sums.add_uncharged({OTHER_LOCK: 5.0 * MS})
    found = released(sums, waits(8 * MS, sema=LOCK), waits(9 * MS, sema=OTHER_LOCK))
    assert {place: row.delay_ns for place, row in found.items()} == {
        ((30,), LOCK): 8 * MS,
        ((), OTHER_LOCK): 9 * MS,
    }


def test_uncharged_waiting_of_a_lock_without_releases_is_none_of_the_others() -> None:
    sums = windows({R._replace(sema=OTHER_LOCKS): StackSums(8, 10 * MS)})
    sums.add_uncharged({OTHER_LOCK: 10.0 * MS * WINDOWS})
    found = released(sums, waits(100 * MS, sema=OTHER_LOCKS), waits(7 * MS, sema=OTHER_LOCK))
    assert {place: row.delay_ns for place, row in found.items()} == {
        ((30,), OTHER_LOCKS): 100 * MS,
        ((), OTHER_LOCK): 7 * MS,
    }


def test_a_nanosecond_is_charged_too() -> None:
    sums = eighth({R: StackSums(0.0, 1.0, squares=1.0)})
    sums.add_every({S: StackSums(1.0, 0.0)})
    found = released(sums, waits(1, variance=9.0))
    assert delays(found) == {(30,): 1, (40,): 0}
    assert found[(30,), 0].delay_variance == 9 + 3 * 56 + 14
    assert found[(40,), 0].count == 1
    assert delays(released(SampledSums(), waits(1))) == {(): 1}
    assert released(SampledSums(), waits(0)) == {}


@pytest.mark.parametrize("count", [2, 3, WINDOWS])
def test_few_windows_have_releases_with_a_wide_error(count: int) -> None:
    sums = windows({R: StackSums(8, 10 * MS)}, count - 1)
    sums.add_pause(10)
    sums.add_window({R: StackSums(16, 20 * MS)}, MS, 10)
    found = released(sums, waits(400 * MS))
    row = found[(30,), 0]
    errors = [
        math.sqrt(row.delay_variance) / row.delay_ns,
        math.sqrt(row.count_variance) / row.count,
    ]
    least, most = {2: (0.3, 1.2), 3: (0.3, 1.2), WINDOWS: (0.05, 0.45)}[count]
    assert all(least < error < most for error in errors)


def test_waiting_that_windows_do_not_stand_for_has_an_unknown_release() -> None:
    """Each of ten windows charged 10 ms, and they have half of all runs."""
    sums = windows({R: StackSums(8, 10 * MS)})
    found = released(sums, waits(500 * MS))
    assert delays(found) == pytest.approx({(30,): 200 * MS, (): 300 * MS}, rel=0.1)
    # By as much as chance may be, samples see more.
    found = released(sums, waits(210 * MS, variance=(5.0 * MS) ** 2))
    assert delays(found) == {(30,): 210 * MS}


def test_counts_of_releases_are_as_uncertain_as_those_of_waits() -> None:
    sums = eighth({R: StackSums(80, 30 * MS)})
    some = waits(100 * MS)
    some = some._replace(row=replace(some.row, count=100.0, count_variance=50.0**2))
    (row,) = released(sums, some).values()
    assert row.count_variance == pytest.approx(40**2)
    (row,) = released(sums, waits(100 * MS)).values()
    assert row.count_variance == 56 * 12


def test_errors_of_waits_of_charges_and_of_their_number_add_up() -> None:
    """10 % of the waits. Of 56 releases one in eight: 2 * 7 / 56, that is 50 %."""
    sums = eighth({R: StackSums(56, 10 * MS)})
    found = released(sums, waits(100 * MS, variance=(10.0 * MS) ** 2))
    error = math.sqrt(found[(30,), 0].delay_variance) / found[(30,), 0].delay_ns
    assert error == pytest.approx(math.hypot(0.1, 0.5))


def test_windows_add_to_the_error_of_releases() -> None:
    """A tenth as often, ten times as much: windows are unlike each other."""
    sums = windows({R: StackSums(8, 10 * MS)}, WINDOWS - 1)
    sums.add_pause(10)
    sums.add_window({R: StackSums(8, 1000 * MS)}, MS, 10)
    even = released(windows({R: StackSums(8, 10 * MS)}), waits(100 * MS))
    uneven = released(sums, waits(100 * MS))
    assert even[(30,), 0].delay_ns == uneven[(30,), 0].delay_ns == 100 * MS
    of_number = (100 * MS) ** 2 * 14 / (16 * WINDOWS)
    assert even[(30,), 0].delay_variance == pytest.approx(of_number, rel=0.02)
    assert uneven[(30,), 0].delay_variance > 10 * of_number


def test_a_single_recorded_release_is_very_uncertain() -> None:
    """Less than one, in a window that is not scaled up, is not more certain than one."""
    sums = eighth({R: StackSums(0.5, 10 * MS)})
    found = released(sums, waits(100 * MS))
    assert found[(30,), 0].delay_variance == pytest.approx(14 * (100.0 * MS) ** 2)


amounts = st.integers(0, 10**12)


@given(
    st.lists(st.tuples(st.sampled_from((0, LOCK)), st.integers(0, 99), amounts), max_size=5),
    st.lists(st.tuples(st.sampled_from((0, LOCK)), amounts), min_size=1, max_size=5),
    amounts,
    st.integers(0, 12),
)
def test_all_waiting_is_charged_or_unknown(
    found: list[tuple[int, int, int]],
    waited: list[tuple[int, int]],
    uncharged_ns: int,
    count: int,
) -> None:
    recorded = {
        KnownStack(0, "mutex", sema, (n + 1,), ()): StackSums(count, charged_ns)
        for n, (sema, count, charged_ns) in enumerate(found)
    }
    sums = windows(recorded, count) if count else eighth(recorded)
    sums.add_uncharged({0xC0: float(uncharged_ns)})
    rows = releases(sums, [waits(ns, sema=sema) for sema, ns in waited], lambda _: False)
    for sema in {sema for sema, _ in waited}:
        charged_ns = sum(row.delay_ns for row in rows if row.sema == sema)
        waited_ns = sum(ns for each, ns in waited if each == sema)
        assert charged_ns == pytest.approx(waited_ns, abs=len(found) + 1)
    assert all(row.delay_ns >= 0 and row.delay_variance >= 0 for row in rows)
