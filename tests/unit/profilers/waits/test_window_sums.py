"""Sums of windows: waits that continue beyond them, locks that are released outside of them."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime.goroutines.parked import Wait
from ebpfprof.profilers.waits.rows import KnownStack, QueueRow, StackTotal
from ebpfprof.profilers.waits.window_sums import OngoingWait, WindowSums

A = KnownStack(0, "block", 0, (1, 2), ())
B = KnownStack(0, "block", 0, (3,), ())
RELEASE = KnownStack(0, "mutex", 0, (4,), ())
WAIT = Wait(0xC000, 7, 3)
OTHER = Wait(0xD000, 8, 1)


def begun() -> WindowSums:
    sums = WindowSums()
    sums.begin(1000)
    return sums


def totals(sums: WindowSums) -> dict[tuple[int, ...], StackTotal]:
    return {total.return_pcs: total for total in sums.totals()}


def test_a_window_stands_for_the_pause_before_it() -> None:
    sums = begun()
    sums.add({A: (2, 30)}, 1090, 1100)
    sums.add({A: (1, 10)}, 1180, 1200)

    assert totals(sums)[A.return_pcs].count == 2 * 10 + 1 * 5
    assert totals(sums)[A.return_pcs].delay_ns == 30 * 10 + 10 * 5
    assert sums.coverage().windows == 2
    assert sums.coverage().share == pytest.approx(0.15)


def test_parts_of_an_ongoing_window_are_not_scaled() -> None:
    sums = begun()
    for end_ns in (1100, 1150, 1300):
        sums.add({A: (1, 10)}, 1000, end_ns)

    assert totals(sums)[A.return_pcs].count == 3
    assert sums.coverage().share == 1
    assert sums.coverage().windows == 0


def test_an_ongoing_wait_counts_once_settled() -> None:
    sums = begun()
    sums.add({}, 1090, 1100, [OngoingWait(WAIT, A, 10), OngoingWait(OTHER, B, 5)])
    sums.settle({WAIT, OTHER})
    assert totals(sums) == {}

    sums.add({}, 1190, 1200, [OngoingWait(WAIT, A, 10)])
    sums.settle({WAIT})
    assert {pcs: total.delay_ns for pcs, total in totals(sums).items()} == {B.return_pcs: 50}

    sums.settle(set())
    assert totals(sums)[A.return_pcs].delay_ns == 100 + 100
    assert totals(sums)[A.return_pcs].count == 0


def test_a_wait_that_ended_behind_the_window_counts_at_once() -> None:
    sums = begun()
    sums.add({}, 1090, 1100, [OngoingWait(None, A, 10)])

    assert totals(sums)[A.return_pcs].delay_ns == 100


def test_a_later_wait_of_the_goroutine_does_not_keep_the_first_open() -> None:
    sums = begun()
    sums.add({}, 1090, 1100, [OngoingWait(WAIT, A, 10)])
    sums.settle({WAIT._replace(sequence=4)})

    assert totals(sums)[A.return_pcs].delay_ns == 100


def test_waiting_until_the_end_of_a_window_is_charged_to_no_release() -> None:
    """The release that ended it came later, and may be unlike those that were recorded."""
    sums = begun()
    sums.add({RELEASE: (1, 20)}, 1090, 1100, queues=[QueueRow(0xA0, 5), QueueRow(0xB0, 1)])

    assert totals(sums)[RELEASE.return_pcs].delay_ns == 200
    assert totals(sums)[RELEASE.return_pcs].count == 10
    assert sums.uncharged() == {0xA0: 50, 0xB0: 10}
    sums.add({RELEASE: (1, 20)}, 1190, 1200, queues=[QueueRow(0xA0, 1)])
    assert sums.uncharged() == {0xA0: 60, 0xB0: 10}
    assert sums.coverage().uncharged_ns == 70


def test_the_last_window_stands_for_the_time_after_it() -> None:
    sums = begun()
    sums.add({A: (1, 4)}, 1090, 1100, [OngoingWait(WAIT, B, 10)])
    sums.stretch(1200)
    sums.settle(set())

    assert totals(sums)[A.return_pcs].count == 20
    assert totals(sums)[A.return_pcs].delay_ns == 80
    assert totals(sums)[B.return_pcs].delay_ns == 200


def test_a_window_that_ended_early_stands_for_less() -> None:
    sums = begun()
    sums.add({A: (1, 10)}, 1090, 1100, planned_ns=10)
    sums.add({B: (1, 2)}, 1198, 1200, planned_ns=10)

    # Of the second 100 ns a fifth; the rest is the first window's.
    assert totals(sums)[A.return_pcs].count == 10 + 8
    assert totals(sums)[B.return_pcs].count == 10


def test_the_slowdown_scales_counts_but_no_delays() -> None:
    sums = begun()
    sums.add({A: (2, 30)}, 1090, 1100, slowdown=1.5)

    assert totals(sums)[A.return_pcs].count == 2 * (1 + 9 * 1.5)
    assert totals(sums)[A.return_pcs].delay_ns == 30 * 10


def test_without_a_pause_sums_are_not_scaled() -> None:
    sums = begun()
    sums.add({A: (2, 30)}, 1000, 1100, slowdown=1.5)

    assert totals(sums)[A.return_pcs].count == 2


def test_a_second_begin_does_not_stand_for_earlier_time() -> None:
    sums = begun()
    sums.add({A: (1, 10)}, 1000, 1100)
    sums.begin(5000)
    sums.add({A: (1, 10)}, 5090, 5100)

    assert totals(sums)[A.return_pcs].count == 1 + 10


def test_during_a_pause_totals_are_extrapolated() -> None:
    sums = begun()
    sums.add({A: (1, 10)}, 1090, 1100, [OngoingWait(WAIT, B, 10)])
    seen = [
        {each.return_pcs: (each.count, each.delay_ns) for each in sums.totals(now_ns)}
        for now_ns in (1100, 1150, 1200)
    ]
    assert seen == [{A.return_pcs: (count, 10 * count)} for count in (10, 15, 20)]

    # The next one has less; what was reported is not taken back, and made up for later.
    sums.add({A: (0.5, 5)}, 1190, 1200)
    assert totals(sums)[A.return_pcs].count == 20
    assert sums.totals(1250)[0].count == 20
    assert sums.totals(1350)[0].count == 15 + 0.5 * 15


def test_coverage_is_that_of_the_windows_so_far() -> None:
    sums = begun()
    sums.add({A: (2, 30)}, 1090, 1100)
    assert sums.coverage().stood_for_ns == 100
    sums.add({A: (1, 10)}, 1180, 1200)
    assert [(total.count, total.delay_ns) for total in sums.totals()] == [(20 + 5, 300 + 50)]
    assert sums.coverage().stood_for_ns == 200


def test_the_standard_error_is_shown_in_words() -> None:
    sums = begun()
    assert sums.coverage().error("block") == ""
    sums.add({A: (1, 10)}, 1090, 1100)
    assert "not known" in sums.coverage().error("block")
    sums.add({A: (3, 30)}, 1190, 1200)
    # Two windows: a difference of 2 in 10 ns, for 90 ns that were not watched; three times as much,
    # since a single difference tells little.
    assert sums.coverage().error("block") == (
        "+-135 % on counts, +-135 % on delays (one standard error)"
    )
    assert sums.coverage().error("mutex") == ""
    assert "10 % of the time, in 2 windows" in str(sums.coverage())


def test_a_pause_without_a_window_is_scaled_with_an_unknown_error() -> None:
    """The budget ran out at the beginning, and allowed no window until the end."""
    sums = begun()
    sums.add({A: (2, 30)}, 1000, 1100)
    assert not sums.coverage().is_scaled
    assert sums.coverage(1200).is_scaled  # totals are extrapolated then

    sums.stretch(2000)
    coverage = sums.coverage()
    assert coverage.is_scaled
    assert totals(sums)[A.return_pcs].count == 20
    assert coverage.error("block") == "standard error not known, without a window"
    assert str(coverage) == "sampled 10 % of the time, all of it at the beginning, and scaled"
