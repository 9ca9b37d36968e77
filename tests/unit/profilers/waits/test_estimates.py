"""Rows of the profiles of waits: one wait in eight, and long waits from goroutine samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.profile.evidence import is_ranked
from ebpfprof.profile.model import Label
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.waits.estimates import StackFacts, WaitEstimates, estimates
from ebpfprof.profilers.waits.long_waits import SampledStack, StackKey
from ebpfprof.profilers.waits.rows import NO_WAKER, KnownStack, StackSums, StackTotal, Waker
from ebpfprof.profilers.waits.sampled_sums import SampledSums
from ebpfprof.profilers.waits.stack_table import OTHER_LOCKS

US, MS = 1000, 1_000_000
PCS, OTHER_PCS, LOCK_PCS, RUNTIME_PCS = (8, 9), (11, 9), (20, 21), (99,)
SEMAPHORE_PCS = (40, 21)
A, B, LOCK = (KnownStack(0, "block", 0, pcs, ()) for pcs in (PCS, OTHER_PCS, LOCK_PCS))
RELEASE = KnownStack(0, "mutex", 0, (30,), ())
ANNA = (Label("user", "anna"),)
CHANCE = 56 * 102
"""The variance of the count that 100 tracked waits stand for: two more make it that of few, too."""


def tracked(waits: int, mean_ns: int, *, probed: bool = True, unknown: int = 0) -> StackSums:
    """The sums of a number of tracked waits."""
    return StackSums(
        count=8 * waits,
        delay_ns=8 * waits * mean_ns,
        parks=waits,
        probed=waits if probed else 0,
        unknown=unknown,
        row_squares=waits,
        squares=float(waits * mean_ns**2),
    )


def key(stack: KnownStack) -> StackKey:
    return stack.sema, stack.return_pcs, stack.labels


def estimated(
    sums: SampledSums, waits: Mapping[StackKey, SampledStack] | None = None, hit_ns: float = 0.0
) -> WaitEstimates:
    return estimates(
        sums,
        waits or {},
        StackFacts(
            is_lock=lambda pcs: pcs == LOCK_PCS,
            is_semaphore=lambda pcs: pcs == SEMAPHORE_PCS,
            is_runtime_lock=lambda pcs: pcs == RUNTIME_PCS,
            group_of=lambda pcs: pcs[-1],
        ),
        hit_ns=hit_ns,
    )


def rows(found: WaitEstimates) -> dict[tuple[object, ...], StackTotal]:
    return {(row.kind, row.return_pcs, row.sema): row for row in found.rows}


def block_row(
    sums: SampledSums,
    waits: Mapping[StackKey, SampledStack] | None = None,
    hit_ns: float = 0.0,
    stack: KnownStack = A,
) -> StackTotal:
    return rows(estimated(sums, waits, hit_ns))["block", stack.return_pcs, stack.sema]


def eighth(*more: Mapping[KnownStack, StackSums]) -> SampledSums:
    sums = SampledSums()
    for each in more:
        sums.add_eighth(each)
    return sums


def windows(*more: Mapping[KnownStack, StackSums], length_ns: float = 10 * MS) -> SampledSums:
    """Windows of a tenth of all runs."""
    sums = SampledSums()
    for each in more:
        sums.add_pause(90)
        sums.add_window(each, length_ns, 10)
    return sums


def test_nothing_was_recorded() -> None:
    found = estimated(SampledSums())
    assert (found.rows, found.deviations, found.uncharged_ns) == ([], {}, 0)


def test_of_long_enough_waits_counts_and_delays_are_those_of_one_in_eight() -> None:
    row = block_row(eighth({A: tracked(100, MS)}))
    assert (row.count, row.delay_ns) == (800, 800 * MS)
    assert row.count_variance == CHANCE
    assert row.delay_variance == pytest.approx(CHANCE * MS**2, rel=0.001)


def test_a_wait_that_two_samples_saw_is_added_once() -> None:
    """The probes leave it out. It is in the time of all waits that samples saw, too."""
    seen = SampledStack(
        ns=1600 * MS, hits=90, ended=30, long_ns=800 * MS, long=20, variance=9.0 * MS**2
    )
    row = block_row(eighth({A: tracked(100, MS)}), {key(A): seen})
    assert row.count == 800 + 20
    assert row.delay_ns == 800 * MS + 800 * MS
    long_alone = replace(seen, ns=800 * MS, ended=20)
    row = block_row(eighth({A: tracked(100, MS)}), {key(A): long_alone})
    assert row.delay_ns == 800 * MS + 800 * MS
    of_long = long_alone.as_uncertain().variance
    assert row.delay_variance == pytest.approx(CHANCE * MS**2 + of_long, rel=0.001)


def test_lengths_are_those_of_tracked_waits_and_of_those_that_samples_saw() -> None:
    short, long = WaitHistogram.of([MS] * 80 + [3 * MS] * 20), WaitHistogram.of([200 * MS] * 20)
    sums = eighth({A: replace(tracked(100, MS), lengths=8 * short)})
    seen = SampledStack(ns=900 * MS, hits=90, ended=30, long_ns=800 * MS, long=20, lengths=long)
    row = block_row(sums, {key(A): seen})
    assert row.lengths == 8 * short + long
    assert row.lengths.total == row.count


def test_lengths_of_windows_stand_for_pauses_too_and_what_they_cut_off_is_unknown() -> None:
    short = 8 * WaitHistogram.of([MS] * 50)
    each = replace(tracked(50, MS, unknown=5), lengths=short)
    seen = SampledStack(ns=80_000.0 * MS, hits=20, ended=20)
    row = block_row(windows(*[{A: each}] * 10), {key(A): seen})
    assert row.lengths.total == pytest.approx(10 * 10 * 400)
    assert row.count - row.lengths.total == pytest.approx(8 * 10 * 10 * 5)


def test_of_events_with_several_parks_the_length_is_not_known() -> None:
    """Of ten parks, one is followed by another: eight events have one park, and one has two."""
    parks = replace(tracked(100, MS), lengths=8 * WaitHistogram.of([MS] * 100), runs=100, again=10)
    row = block_row(eighth({A: parks}))
    assert row.count == 720
    assert row.lengths.total == pytest.approx(640)


def test_lengths_of_a_stack_that_only_samples_saw_are_theirs() -> None:
    long = WaitHistogram.of([200 * MS] * 20)
    seen = SampledStack(ns=900 * MS, hits=90, ended=30, long_ns=800 * MS, long=20, lengths=long)
    row = block_row(windows({B: tracked(100, MS)}), {key(A): seen})
    assert row.lengths == long


def test_times_in_the_run_queue_stand_for_those_after_all_waits() -> None:
    """Of 100 tracked waits the goroutines of 50 were seen to run."""
    in_queue = WaitHistogram.of([5 * US] * 40 + [900 * US] * 10)
    waits = 8 * WaitHistogram.of([MS] * 100)
    parks = replace(tracked(100, MS), lengths=waits, runs=50, runnable_lengths=in_queue)
    queued = rows(estimated(eighth({A: parks})))["runqueue", PCS, 0]
    assert queued.lengths == replace(16 * in_queue, weight=16.0)
    assert queued.lengths.total == queued.count == 800


@pytest.mark.parametrize("mean_ns", [MS, 10 * US])
def test_time_that_probes_lack_is_that_of_samples_if_they_saw_much_more(mean_ns: int) -> None:
    """Of 800 waits of 1 ms or 10 us, those of 100 ms may not have been tracked."""
    seen = SampledStack(2400 * mean_ns, 24, 24, variance=24 * (100.0 * mean_ns) ** 2)
    row = block_row(eighth({A: tracked(100, mean_ns)}), {key(A): seen})
    assert (row.count, row.delay_ns) == (800, 2400 * mean_ns)
    disturbed = 0.05 if mean_ns == MS else 0.5  # of the time of tracked waits
    of_times = (0.1 * seen.ns) ** 2 + (disturbed * 800 * mean_ns) ** 2
    assert row.delay_variance == pytest.approx(seen.as_uncertain().variance + of_times)


def test_delays_are_from_probes_and_samples_with_the_weights_of_their_precision() -> None:
    by_probes = block_row(eighth({A: tracked(100, MS)}))
    seen = SampledStack(900.0 * MS, 90, 90, variance=CHANCE * MS**2)
    # Samples may come late, and may themselves make waits longer.
    of_times = (0.1 * 900 * MS) ** 2 + (0.05 * 800 * MS) ** 2
    variance = seen.as_uncertain().variance + of_times
    row = block_row(eighth({A: tracked(100, MS)}), {key(A): seen})
    precisions = 1 / by_probes.delay_variance, 1 / variance
    assert row.delay_variance == pytest.approx(1 / sum(precisions))
    expected = 800 * MS * precisions[0] + 900 * MS * precisions[1]
    assert row.delay_ns == pytest.approx(expected / sum(precisions))


@pytest.mark.parametrize(("seen_ms", "hits"), [(600, 120), (1600, 8), (2400, 3)])
def test_intervals_have_both_where_probes_and_samples_do_not_agree(seen_ms: int, hits: int) -> None:
    """Samples of a busy machine come late, and of few hits it may be chance."""
    seen = SampledStack(seen_ms * MS, hits, hits)
    row = block_row(eighth({A: tracked(100, MS)}), {key(A): seen})
    assert min(800, seen_ms) < row.delay_ns / MS < max(800, seen_ms)
    error_ns = 1.96 * math.sqrt(row.delay_variance)
    for delay_ms in (800, seen_ms):
        assert abs(row.delay_ns - delay_ms * MS) < error_ns


def test_samples_of_short_waits_count_little() -> None:
    """While a sample is taken, what wakes the goroutine may lack a processor."""
    seen = SampledStack(24 * MS, 40, 40, variance=(2.0 * MS) ** 2)
    row = block_row(eighth({A: tracked(100, 20 * US)}), {key(A): seen})
    assert row.delay_ns == pytest.approx(16 * MS, rel=0.1)
    by_windows = windows(*[{A: tracked(100, 20 * US)}] * 10)
    many = SampledStack(2400 * MS, 40, 40, variance=(200.0 * MS) ** 2)
    row = block_row(by_windows, {key(A): many})
    assert row.count == pytest.approx(80_000, rel=0.1)
    assert row.delay_ns == pytest.approx(1600 * MS, rel=0.1)


def test_samples_that_saw_long_waits_alone_say_nothing_of_others() -> None:
    seen = SampledStack(MS, hits=2, ended=1, long_ns=MS, long=1)
    row = block_row(eighth({A: tracked(100, MS)}), {key(A): seen})
    assert row.delay_ns == 801 * MS


def test_of_waits_of_very_different_lengths_samples_count_less() -> None:
    """Their mean is known less, and so is how many fit into the time that samples saw."""
    alike = tracked(10, MS)
    seen = {key(A): SampledStack(4000.0 * MS, 100, 100, variance=(200.0 * MS) ** 2)}
    by_probes, of_alike, of_different = (
        block_row(windows(*[{A: sums}] * 10), waits).count
        for sums, waits in (
            (alike, None),
            (alike, seen),
            (replace(alike, squares=50 * alike.squares), seen),
        )
    )
    assert of_alike < of_different < by_probes


@pytest.mark.parametrize(
    ("seen_ms", "hits", "error"),
    [(400, 16, 0.5), (700, 16, 0.0), (0, 16, 0.0), (520, 16, 0.35), (520, 4, 0.0)],
)
def test_waits_that_samples_saw_for_half_of_the_time_may_be_half_as_many(
    seen_ms: int, hits: int, error: float
) -> None:
    """A single goroutine in regular turns, tracked at this stack alone. Few hits show less."""
    seen = SampledStack(seen_ms * MS, hits, hits, variance=4.0 * MS**2)
    row = block_row(eighth({A: tracked(100, MS)}), {key(A): seen} if seen_ms else {})
    assert row.count == 800
    assert row.count_variance == pytest.approx(CHANCE + (error * 800) ** 2)


def test_the_trap_at_the_wake_of_a_lock_is_in_the_error() -> None:
    row = block_row(eighth({LOCK: tracked(100, 10 * US, probed=False)}), stack=LOCK)
    assert row.delay_ns == 8 * MS
    assert row.delay_variance == pytest.approx(CHANCE * (10 * US) ** 2 + (800 * 700) ** 2)


def test_a_stack_that_few_samples_saw_has_a_large_error() -> None:
    seen = SampledStack(
        ns=900 * MS, hits=24, ended=30, long_ns=800 * MS, long=3, variance=10.0 * MS**2
    )
    row = block_row(SampledSums(), {key(A): seen})
    assert (row.count, row.delay_ns) == (30, 900 * MS)
    assert row.delay_variance == seen.as_uncertain().variance + (900 * MS / 24) ** 2
    assert (row.count_variance, row.labels, row.waker) == (30**2, (), None)


@pytest.mark.parametrize(("long", "in_doubt"), [(4, 2), (3, 6), (2, 6)])
def test_long_waits_are_in_doubt_where_as_many_short_ones_were_seen(
    long: int, in_doubt: int
) -> None:
    seen = SampledStack(ns=90 * MS, hits=9, ended=6, long_ns=70 * MS, long=long)
    row = block_row(SampledSums(), {key(A): seen})
    assert (row.count, row.count_variance) == (6, in_doubt**2)


def test_long_waits_alone_are_counted_exactly() -> None:
    seen = SampledStack(ns=900 * MS, hits=24, ended=3, long_ns=900 * MS, long=3)
    row = block_row(SampledSums(), {key(A): seen})
    assert (row.count, row.count_variance) == (3, 0)


def test_a_stack_that_many_samples_saw_has_all_waits_that_they_hit() -> None:
    """No window had one of them. How many short ones no sample hit is not known."""
    seen = SampledStack(
        ns=900 * MS, hits=25, ended=30, long_ns=800 * MS, long=3, variance=10.0 * MS**2
    )
    for sums in (SampledSums(), windows({B: tracked(1, MS)})):
        row = block_row(sums, {key(A): seen})
        assert (row.count, row.delay_ns) == (30, 900 * MS)
        assert (row.count_variance, row.delay_variance) == (30**2, seen.as_uncertain().variance)


def test_a_stack_that_one_sample_saw_once_has_no_row_without_a_tracked_wait() -> None:
    seen = SampledStack(ns=9 * MS, hits=1, ended=1)
    assert estimated(SampledSums(), {key(A): seen}).rows == []


def before_a_pause(hits: int, ended: int, long: int = 0) -> StackTotal:
    """3 exact waits of 1 ms, then a pause with four times as many runs, and no window."""
    sums = SampledSums()
    sums.add_every({A: StackSums(3, 3 * MS)})
    sums.runs_at_first = 10
    sums.add_pause(40)
    seen = SampledStack(50.0 * MS, hits, ended, 20.0 * MS * long, long, 1000.0 * MS**2)
    return block_row(sums, {key(A): seen})


def test_without_a_window_the_larger_of_what_the_begin_and_samples_make_expect_counts() -> None:
    row = before_a_pause(hits=1, ended=1)
    assert (row.count, row.delay_ns) == (3 + 12, (3 + 12) * MS)
    assert row.delay_variance == (12 * MS) ** 2
    assert row.count_variance == 12**2 + (50 - 12) ** 2  # there was time for 50 of them
    row = before_a_pause(hits=24, ended=24, long=2)
    assert (row.count, row.delay_ns) == (3 + 24, (3 + 40) * MS)
    assert row.count_variance == 24**2
    row = before_a_pause(hits=25, ended=14)
    assert (row.count, row.delay_ns) == (3 + 14, 53 * MS)
    assert row.count_variance == 14**2 + (50 - 14) ** 2
    assert row.delay_variance > 1000 * MS**2  # which a few hits don't show


def test_samples_count_where_the_begin_makes_expect_less_though_its_error_is_smaller() -> None:
    """Twelve times 1 ms, give or take as much, are no bound for what was in a pause."""
    sums = SampledSums()
    sums.add_every({A: StackSums(3, 3 * MS)})
    sums.runs_at_first = 10
    sums.add_pause(40)
    seen = SampledStack(900.0 * MS, 18, 18, variance=(200.0 * MS) ** 2)
    assert block_row(sums, {key(A): seen}).delay_ns == 903 * MS


def test_exact_waits_of_a_stack_that_no_window_had_may_have_been_many_more() -> None:
    """Nine of ten runs were in pauses, ten times as many as at first."""
    sums = windows(*9 * [{B: tracked(1, MS)}])
    sums.runs_at_first = 81.0
    sums.add_every({A: StackSums(3, 3 * MS), RELEASE: StackSums(2, MS)})
    row = block_row(sums)
    assert (row.count, row.delay_ns) == (3, 3 * MS)
    assert (row.count_variance, row.delay_variance) == (30**2, (30 * MS) ** 2)
    sums.runs_in_eighth, sums.runs_at_first = 809.0, 1.0
    # One in eight saw none either; of a few, none may have been among these.
    assert block_row(sums).count_variance == pytest.approx(3**2 + 56 * 2 * sums.scale**2)
    sums.runs_in_eighth, sums.runs_at_first = 0.0, 81.0
    released = rows(estimated(sums))["mutex", RELEASE.return_pcs, 0]
    assert (released.count, released.count_variance) == (2, 20**2)
    # Samples show how long all of them took.
    seen = SampledStack(ns=90 * MS, hits=9, ended=9, variance=(20.0 * MS) ** 2)
    row = block_row(sums, {key(A): seen})
    assert (row.count, row.delay_ns) == (3 + 9, 93 * MS)
    assert row.count_variance == 30**2 + (90 - 9) ** 2
    assert row.delay_variance == seen.as_uncertain().variance + (10 * MS) ** 2


def test_exact_waits_of_a_stack_that_later_nobody_saw_are_exact() -> None:
    sums = eighth({B: tracked(1, MS)})
    sums.add_every({A: StackSums(3, 3 * MS)})
    row = block_row(sums)
    assert (row.count, row.delay_ns, row.count_variance, row.delay_variance) == (3, 3 * MS, 0, 0)


def test_what_was_exact_stays_so() -> None:
    sums = eighth({A: tracked(100, MS)})
    sums.add_every({A: StackSums(5, 7 * MS)})
    row = block_row(sums)
    assert (row.count, row.delay_ns) == (805, 807 * MS)
    assert row.count_variance == CHANCE


def test_half_a_hit_is_subtracted_from_waits_that_began_at_a_probe() -> None:
    row = block_row(eighth({A: tracked(100, 5 * US)}), hit_ns=900)
    assert row.delay_ns == 800 * (5 * US - 450)
    assert row.delay_variance == pytest.approx(CHANCE * (5 * US) ** 2 + (800 * US) ** 2)
    stamped = block_row(eighth({A: tracked(100, 5 * US, probed=False)}), hit_ns=900)
    assert stamped.delay_ns == 800 * 5 * US


def test_at_most_half_of_a_wait_is_subtracted() -> None:
    row = block_row(eighth({A: tracked(100, 500)}), hit_ns=2000)
    assert row.delay_ns == 800 * 250
    assert math.sqrt(row.delay_variance) > 800 * 250


def test_waits_that_were_exact_are_added_to_those_of_samples() -> None:
    seen = SampledStack(ns=3.0 * MS, hits=30, ended=30)
    sums = eighth({A: tracked(100, 5 * US)})
    before = block_row(sums, {key(A): seen})
    sums.add_every({A: StackSums(10, MS)})
    row = block_row(sums, {key(A): seen})
    assert (row.count, row.delay_ns) == (810, MS + before.delay_ns)


def test_in_windows_delays_come_mostly_from_samples_which_are_more_precise() -> None:
    seen = SampledStack(ns=700.0 * MS, hits=70, ended=70, variance=4.0 * MS**2)
    row = block_row(windows(*[{A: tracked(1, MS)}] * 10), {key(A): seen})
    assert 700 * MS < row.delay_ns < 730 * MS
    few = SampledStack(ns=700.0 * MS, hits=3, ended=3)
    row = block_row(windows(*[{A: tracked(1, MS)}] * 10), {key(A): few})
    assert 780 * MS < row.delay_ns < 800 * MS


@pytest.mark.parametrize(("pauses_ms", "least_ms", "most_ms"), [(900, 65, 80), (300, 40, 50)])
def test_where_probes_slow_a_program_down_samples_know_better_how_long_it_waits(
    pauses_ms: int, least_ms: int, most_ms: int
) -> None:
    """80 ms of waiting by probes, 40 ms by samples. Ten windows of 10 ms have 100 runs, the time
    between them has 900 in 900 ms, or in a third of that."""
    sums = windows(*[{A: tracked(10, 10 * US, probed=False)}] * 10)
    sums.pauses_ns = pauses_ms * MS
    assert sums.slowdown == pytest.approx(900 / pauses_ms)
    seen = SampledStack(ns=40.0 * MS, hits=400, ended=400, variance=(2.0 * MS) ** 2)
    row = block_row(sums, {key(A): seen})
    assert least_ms * MS < row.delay_ns < most_ms * MS


BUSY = windows(*[{A: tracked(1, MS)}] * 10)
"""800 waits of 1 ms, by runs of goroutines, of which nine in ten followed no wait."""


def test_runs_without_waits_are_a_doubt_about_counts_in_windows() -> None:
    row = block_row(BUSY)
    assert row.count == 800
    of_windows = BUSY.window_variances(A)[0]
    assert row.count_variance == pytest.approx((0.45 * 800) ** 2 + of_windows)
    sums = windows(*[{A: tracked(10, MS)}] * 10)
    all_waits = block_row(sums)
    assert (all_waits.count, all_waits.count_variance) == (8000, sums.window_variances(A)[0])


def test_the_time_in_samples_counts_the_waits_of_windows_if_it_knows_better() -> None:
    """700 ms in all without long ones, of 1 ms each: 700 waits, for 800 by runs."""
    seen = SampledStack(
        ns=900.0 * MS, hits=90, ended=70, long_ns=200.0 * MS, long=3, variance=49.0 * MS**2
    )
    row, by_runs = block_row(BUSY, {key(A): seen}), block_row(BUSY)
    # As the time, which is 5 % too long, or so; 2 us of each of 1 ms; as that of 10 waits varies.
    of_time = seen.as_uncertain().variance / (700 * MS) ** 2 + 0.05**2
    of_samples = 700**2 * (of_time + 0.002**2) + 800**2 * 2 / 10
    precisions = 1 / by_runs.count_variance, 1 / of_samples
    assert row.count_variance == pytest.approx(1 / sum(precisions))
    expected = 800 * precisions[0] + 700 * precisions[1]
    assert row.count - 3 == pytest.approx(expected / sum(precisions))


def test_a_long_wait_that_windows_met_by_chance_makes_counts_no_smaller() -> None:
    """80,000 waits of 1 ms, and one of 1 s, which windows have as eight: their mean is 2 ms."""
    waits = [*[tracked(100, MS)] * 9, tracked(99, MS) + tracked(1, 1000 * MS)]
    sums = windows(*[{A: each} for each in waits])
    seen = SampledStack(ns=81_000.0 * MS, hits=8100, ended=8100, variance=(800.0 * MS) ** 2)
    row, by_runs = block_row(sums, {key(A): seen}), block_row(sums)
    assert row.count == pytest.approx(80_000, rel=0.01)
    assert row.count_variance == pytest.approx(by_runs.count_variance, rel=0.01)


@pytest.mark.parametrize(
    ("sums", "seen"),
    [
        (BUSY, SampledStack(ns=700.0 * MS, hits=24, ended=70)),
        (BUSY, SampledStack(ns=700.0 * MS, hits=70, ended=70, long_ns=700.0 * MS, long=0)),
        (
            windows(*[{A: tracked(1, 2000)}] * 10),
            SampledStack(ns=800.0 * 2000, hits=70, ended=70),
        ),
        (eighth({A: tracked(100, MS)}), SampledStack(ns=700.0 * MS, hits=70, ended=70)),
    ],
    ids=["few-samples", "only-long-waits", "short-waits", "no-windows"],
)
def test_counts_stay_where_samples_do_not_know_better(
    sums: SampledSums, seen: SampledStack
) -> None:
    assert block_row(sums, {key(A): seen}).count == block_row(sums).count


def test_releases_of_locks_are_as_many_fewer_as_their_waits() -> None:
    sums = windows(*[{LOCK: tracked(1, MS), RELEASE: StackSums(8, 8 * MS)}] * 10)
    seen = SampledStack(ns=600.0 * MS, hits=60, ended=60)
    found = rows(estimated(sums, {key(LOCK): seen}))
    block, row = found["block", LOCK_PCS, 0], found["mutex", (30,), 0]
    assert 600 < block.count < 800  # by samples, by runs
    assert row.count == pytest.approx(block.count)
    assert row.delay_ns == pytest.approx(block.delay_ns, abs=1)


def test_waits_that_began_before_a_window_are_counted_by_the_time_that_samples_saw() -> None:
    """Of waits of half a window most have no begin in a window: all that were seen are ends."""
    sums = windows(*[{A: StackSums(unknown=2)}] * 10)
    seen = SampledStack(ns=200.0 * MS, hits=20, ended=20, variance=4.0 * MS**2)
    row = block_row(sums, {key(A): seen})
    # 20 ends of tracked waits in a tenth of the runs would be 1600 waits. There is time for 40.
    assert row.count == 200 / 5
    variance = seen.as_uncertain().variance + (0.1 * 200 * MS) ** 2
    assert row.delay_ns == 200 * MS
    assert row.delay_variance == pytest.approx(variance)


def test_cut_off_waits_are_no_more_than_were_seen_to_end() -> None:
    sums = windows({A: StackSums(unknown=1)}, *[{}] * 9)
    seen = SampledStack(ns=20_000.0 * MS, hits=2000, ended=200)
    assert block_row(sums, {key(A): seen}).count == 8 * 10


def test_long_waits_are_no_cut_off_ones_besides() -> None:
    """A wait that two samples saw has its begin in none of the windows, either."""
    sums = windows({A: StackSums(unknown=1)}, *[{}] * 9)
    seen = SampledStack(ns=20_000.0 * MS, hits=2000, ended=80, long_ns=19_000.0 * MS, long=78)
    row = block_row(sums, {key(A): seen})
    assert row.count == (80 - 78) + 78
    only_long = SampledStack(ns=500.0 * MS, hits=80, ended=80, long_ns=500.0 * MS, long=80)
    row = block_row(sums, {key(A): only_long})
    assert (row.count, row.delay_ns) == (80, 500 * MS)


def test_a_few_cut_off_waits_are_as_long_as_the_others() -> None:
    """800 waits of 1 ms, and 40 more: less than a tenth, and too few samples to replace all."""
    sums = windows(*[{A: tracked(1, MS)}] * 9, {A: tracked(1, MS, unknown=1)})
    seen = SampledStack(ns=200.0 * MS, hits=20, ended=20, variance=1e9 * MS**2)
    row = block_row(sums, {key(A): seen})
    assert row.count == 800 + 200 / 5
    assert row.delay_ns == pytest.approx(840 * MS, rel=0.001)
    many = SampledStack(ns=500.0 * MS, hits=20, ended=20)
    row = block_row(windows(*[{A: tracked(1, MS, unknown=1)}] * 10), {key(A): many})
    assert (row.count, row.delay_ns) == (800 + 500 / 5, 500 * MS)  # more than a tenth


def test_waits_that_windows_cut_off_are_longer_than_others_and_have_a_part_in_the_mean() -> None:
    """8000 waits, a tenth of them of 30 ms, the others of 1 ms: of each second window one is cut.

    The mean of those with a known length is 2.5 ms, of all 3.9.
    """
    short, long = tracked(9, MS), tracked(1, 30 * MS)
    cut, whole = short + StackSums(unknown=1), short + long
    sums = windows(*[{A: cut}, {A: whole}] * 5, length_ns=60 * MS)
    seen = SampledStack(ns=31_200.0 * MS, hits=3120, ended=3120, variance=(312.0 * MS) ** 2)
    row = block_row(sums, {key(A): seen})
    assert row.count == pytest.approx(8000, rel=0.03)


def test_a_sum_without_a_count_has_a_row_and_one_without_both_has_none() -> None:
    sums = eighth({A: StackSums(delay_ns=1, parks=1), B: StackSums(parks=1)})
    assert [(row.return_pcs, row.count, row.delay_ns) for row in estimated(sums).rows] == [
        (PCS, 0, 1)
    ]


def test_the_time_of_long_waits_is_no_room_for_cut_off_ones() -> None:
    sums = windows(*[{A: StackSums(unknown=2)}] * 10)
    seen = SampledStack(ns=200.0 * MS, hits=20, ended=20, long_ns=100.0 * MS, long=2)
    assert block_row(sums, {key(A): seen}).count == 100 / 5 + 2


def test_without_windows_no_wait_is_cut_off() -> None:
    sums = eighth({A: tracked(100, MS, unknown=50)})
    seen = SampledStack(ns=900 * MS, hits=24, ended=24)
    assert block_row(sums, {key(A): seen}).count == 800


def test_waits_of_other_labels_and_locks_are_others() -> None:
    anna = A._replace(labels=ANNA)
    locked = A._replace(sema=0xA0)
    sums = eighth(dict.fromkeys((A, anna, locked), tracked(100, MS)))
    seen = {key(each): SampledStack(long=n) for n, each in enumerate((A, anna, locked), 1)}
    found = {(row.sema, row.labels): row.count for row in estimated(sums, seen).rows}
    assert found == {(0, ()): 801, (0, ANNA): 802, (0xA0, ()): 803}


def test_locks_that_the_kernel_does_not_tell_apart_are_not_by_samples() -> None:
    sums = eighth({A._replace(sema=sema): tracked(100, MS) for sema in (0xA0, OTHER_LOCKS)})
    waits = {
        key(A._replace(sema=sema)): SampledStack(ns=MS, hits=2, ended=1, long_ns=MS, long=1)
        for sema in (0xA0, 0xB0, 0xC0)
    }
    found = {row.sema: (row.count, row.delay_ns) for row in estimated(sums, waits).rows}
    assert found == {0xA0: (801, 801 * MS), OTHER_LOCKS: (802, 802 * MS)}


def test_locks_stay_apart_if_there_was_room_for_all() -> None:
    waits = {key(A._replace(sema=sema)): SampledStack(long=1, long_ns=MS) for sema in (4, 8)}
    found = estimated(eighth({A._replace(sema=4): tracked(1, MS)}), waits)
    assert {row.sema: row.count for row in found.rows} == {4: 9, 8: 1}


def test_goroutines_that_wait_in_turns_have_a_larger_error() -> None:
    """All 100 tracked waits of A came in a row: its goroutine may have waited at B between them."""
    plain, in_a_row = (
        eighth({A: StackSums(800, 800 * MS, 100, row_squares=squares), B: tracked(100, MS)})
        for squares in (100, 100**2)
    )
    before, row = block_row(plain), block_row(in_a_row)
    added = row.count_variance - before.count_variance
    # Half of what is tracked is at A. So about half of 800 may have been at B.
    assert math.sqrt(added) == pytest.approx(400, rel=0.02)
    assert math.sqrt(row.delay_variance - before.delay_variance) == pytest.approx(
        math.sqrt(added) * MS
    )
    assert row.count == before.count


def test_releases_and_pairs_are_made_of_the_estimated_waits() -> None:
    waker = Waker("wakers", (50,))
    pair = LOCK._replace(kind="wakers", waker=waker)
    runtime = RELEASE._replace(return_pcs=RUNTIME_PCS)
    sums = eighth(
        {
            LOCK: tracked(100, MS),
            A: tracked(10, MS),
            RELEASE: StackSums(count=640, delay_ns=640 * MS),
            runtime: StackSums(count=1, delay_ns=7),
            pair: StackSums(count=800, delay_ns=800 * MS),
        }
    )
    waits = {
        key(LOCK): SampledStack(ns=500 * MS, hits=50, ended=1, long_ns=500 * MS, long=1),
        key(B): SampledStack(ns=30 * MS, hits=3, ended=1, long_ns=30 * MS, long=1),
    }
    found = rows(estimated(sums, waits))
    assert found["block", LOCK_PCS, 0].delay_ns == 1300 * MS
    assert (found["mutex", (30,), 0].count, found["mutex", (30,), 0].delay_ns) == (640, 1300 * MS)
    assert found["mutex", RUNTIME_PCS, 0].delay_ns == 7
    row = found["wakers", LOCK_PCS, 0]
    assert (row.waker, row.count, row.delay_ns) == (waker, 801, 1300 * MS)
    assert found["wakers", PCS, 0].waker == found["wakers", OTHER_PCS, 0].waker == NO_WAKER
    assert len(found) == 3 + 2 + 3


def test_waiting_without_a_known_release_is_uncharged() -> None:
    found = estimated(eighth({LOCK: tracked(100, MS)}))
    assert found.uncharged_ns == 800 * MS
    assert rows(found)["mutex", (), 0].delay_ns == 800 * MS
    charged = eighth({LOCK: tracked(100, MS), RELEASE: StackSums(8, 8 * MS)})
    assert estimated(charged).uncharged_ns == 0


def watched(sums: StackSums, runs: int, runnable_ns: int, again: int = 0) -> StackSums:
    """The same with what was seen where goroutines began to run."""
    return replace(sums, runs=runs, runnable_ns=runnable_ns, again=again)


def test_without_a_goroutine_that_was_seen_to_run_nothing_is_known_of_run_queues() -> None:
    assert {row.kind for row in estimated(eighth({A: tracked(100, MS)})).rows} == {"block"}


def test_run_queues_are_as_long_after_all_waits_as_after_those_that_were_seen() -> None:
    """Of 100 tracked waits 10 were followed until the goroutine ran, after 5 us each."""
    sums = eighth({A: watched(tracked(100, MS), 10, 50 * US)})
    sums.add_every({A: StackSums(5, 7 * MS)})
    row = rows(estimated(sums, {key(A): SampledStack(long=20, long_ns=MS)}))["runqueue", PCS, 0]
    assert (row.count, row.delay_ns) == (825, 825 * 5 * US)
    changed = 0.03 * 10 / 100 * 800
    assert row.count_variance == pytest.approx(CHANCE + changed**2)
    # Times in a queue are exponential, or less regular.
    error = math.sqrt(row.delay_variance) / row.delay_ns
    assert error == pytest.approx(
        math.hypot(math.sqrt(2 / 10), math.sqrt(row.count_variance) / 825)
    )


def test_a_goroutine_that_parks_again_was_in_the_run_queue_before_each_park() -> None:
    """Of 100 parks three of four were repeated: 200 waits, and 800 wakes."""
    sums = eighth({LOCK: watched(tracked(100, MS, probed=False), 100, 500 * US, again=75)})
    found = rows(estimated(sums))
    block, row = found["block", LOCK_PCS, 0], found["runqueue", LOCK_PCS, 0]
    assert block.count == 200
    assert (row.count, row.delay_ns) == (800, 800 * 5 * US)
    assert row.count_variance == pytest.approx(16 * block.count_variance)


def test_errors_of_a_kind_are_those_of_its_rows_together() -> None:
    found = estimated(eighth({A: tracked(100, MS), B: tracked(50, MS)}))
    assert found.deviations.keys() == {"block"}
    block = found.deviations["block"]
    assert (block.count, block.delay_ns) == (1200, 1200 * MS)
    assert block.count_variance == CHANCE + 56 * 52
    assert block.delay_variance == pytest.approx((CHANCE + 56 * 52) * MS**2, rel=0.001)


def test_windows_together_vary_less_than_each_stack() -> None:
    """A or B, as many waits in each window: there is little doubt how many there were of both."""
    found = estimated(windows(*[{A: tracked(10, MS)}, {B: tracked(10, MS)}] * 5))
    assert min(row.count_variance for row in found.rows) > 100**2
    of_rows = sum(row.count_variance for row in found.rows)
    assert found.deviations["block"].count_variance < 0.1 * of_rows


def test_counts_that_come_from_samples_have_their_error_together_too() -> None:
    """Windows have A or B in turns. That both together are certain holds for windows alone."""
    sums = windows(*[{A: tracked(5, MS)}, {B: tracked(5, MS)}] * 5)
    seen = SampledStack(ns=2000.0 * MS, hits=200, ended=200, variance=(20.0 * MS) ** 2)
    found = estimated(sums, {key(A): seen, key(B): seen})
    assert [row.count for row in found.rows] == pytest.approx([2000, 2000])
    of_rows = sum(row.count_variance for row in found.rows)
    assert of_rows / 2 < sums.window_variances(A)[0]
    assert found.deviations["block"].count_variance == of_rows > 0
    one = estimated(sums, {key(A): seen}).deviations["block"].count_variance
    assert one > of_rows / 2


def test_errors_that_windows_share_are_larger_than_those_of_each_stack() -> None:
    """Both have many waits in the same windows."""
    sums = windows(*[{A: tracked(10, MS), B: tracked(10, MS)}, {}] * 5)
    found = estimated(sums)
    of_rows = sum(row.count_variance for row in found.rows)
    assert found.deviations["block"].count_variance == pytest.approx(2 * of_rows, rel=0.05)


def test_each_kind_with_rows_has_errors() -> None:
    waits = watched(tracked(10, MS), 1, US)
    sums = eighth({LOCK: waits, RELEASE: StackSums(80, 80 * MS)})
    sums.add_eighth({LOCK._replace(kind="wakers", waker=NO_WAKER): StackSums(80, 80 * MS)})
    assert estimated(sums).deviations.keys() == {"block", "mutex", "wakers", "runqueue"}


counts = st.integers(0, 1000)


@given(
    counts,
    counts,
    st.integers(0, 10**10),
    st.booleans(),
    st.floats(0, 5000),
    st.tuples(counts, counts, counts),
    st.integers(0, 10**10),
    st.booleans(),
)
def test_rows_are_finite_and_not_negative(
    waits: int,
    unknown: int,
    mean_ns: int,
    probed: bool,
    hit_ns: float,
    numbers: tuple[int, int, int],
    seen_ns: int,
    in_windows: bool,
) -> None:
    sums = tracked(waits, mean_ns, probed=probed, unknown=unknown)
    recorded = (windows if in_windows else eighth)({LOCK: sums}, {LOCK: sums, A: sums})
    hits, ended, long = sorted(numbers, reverse=True)
    seen = SampledStack(float(seen_ns), hits, ended, seen_ns / 2 if long else 0.0, long, 1.0)
    found = estimated(recorded, {key(LOCK): seen, key(B): seen}, hit_ns)
    for row in found.rows:
        values = row.count, row.delay_ns, row.count_variance, row.delay_variance
        assert all(math.isfinite(value) and value >= 0 for value in values)
    for each in found.deviations.values():
        assert each.count_variance >= 0
        assert each.delay_variance >= 0
    # All that was waited for locks is charged to releases, or is uncharged.
    waited = sum(
        row.delay_ns for row in found.rows if row.kind == "block" and row.return_pcs == LOCK_PCS
    )
    charged = sum(row.delay_ns for row in found.rows if row.kind == "mutex")
    assert charged == pytest.approx(waited, abs=1)


def test_95_percent_of_intervals_contain_the_actual_delay_of_one_wait_in_eight() -> None:
    """Waits of random length, of which the longer ones are left to samples."""
    chance = np.random.default_rng(43)
    inside = []
    for _ in range(2000):
        delays_ns = chance.exponential(5 * MS, chance.poisson(800))
        is_long = delays_ns > 20 * MS
        short_ns = delays_ns[~is_long]
        tracked_ns = short_ns[chance.random(len(short_ns)) < 1 / 8]
        sums = StackSums(
            8 * len(tracked_ns),
            8 * tracked_ns.sum(),
            len(tracked_ns),
            len(tracked_ns),
            squares=float(tracked_ns @ tracked_ns),
        )
        long_ns, long = float(delays_ns[is_long].sum()), int(is_long.sum())
        seen = {key(A): SampledStack(long_ns, 3 * long, long, long_ns, long)}
        row = block_row(eighth({A: sums}), seen)
        inside.append(abs(row.delay_ns - delays_ns.sum()) <= 1.96 * math.sqrt(row.delay_variance))
    assert 0.93 <= np.mean(inside) <= 0.97


def test_phases_are_no_turns_where_samples_saw_the_same_time() -> None:
    """A goroutine that waits at A for long and later at B has long rows at both."""
    long_rows = replace(tracked(100, MS), row_squares=100.0**2)
    sums = eighth({A: long_rows, B: long_rows})
    unknown = block_row(sums)
    same_ns = SampledStack(ns=800.0 * MS, hits=80, ended=80, variance=(8.0 * MS) ** 2)
    known = block_row(sums, {key(A): same_ns})
    assert math.sqrt(unknown.count_variance) > 400  # half of them, or more
    of_samples = same_ns.as_uncertain().variance / MS**2
    assert known.count_variance == pytest.approx(CHANCE + of_samples)
    twice_ns = replace(same_ns, ns=400.0 * MS)
    assert math.sqrt(block_row(sums, {key(A): twice_ns}).count_variance) > 400


def test_of_waits_of_100_us_samples_that_lack_a_third_change_little() -> None:
    """As those of a server on a busy machine did."""
    sums = windows(*[{A: tracked(10, 100 * US)}] * 10)
    by_probes = block_row(sums)
    most_ns = by_probes.delay_ns * 2 / 3
    seen = SampledStack(ns=most_ns, hits=70, ended=70, variance=(most_ns / 10) ** 2)
    row = block_row(sums, {key(A): seen})
    assert most_ns < row.delay_ns < by_probes.delay_ns
    assert row.delay_ns + 2 * math.sqrt(row.delay_variance) > by_probes.delay_ns


def test_how_many_events_the_parks_of_a_semaphore_were_is_unknown_if_none_was_seen_to_run() -> None:
    stack = KnownStack(0, "block", 0, SEMAPHORE_PCS, ())
    for runs, is_known in ((0, False), (25, True)):
        sums = eighth({stack: replace(tracked(100, MS), runs=runs)})
        row = rows(estimated(sums))["block", SEMAPHORE_PCS, 0]
        assert is_ranked(row.count, row.count_variance) == is_known
