"""Estimated sums that never fall."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.profile.model import Label
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.waits.growing import GrowingTotals
from ebpfprof.profilers.waits.rows import NO_WAKER, StackTotal

A = StackTotal("block", 0, (1, 2), 10, 100, (), 9.0, None, 4.0)


def test_a_smaller_estimate_keeps_what_was_returned() -> None:
    growing = GrowingTotals()
    assert growing.grown([A]) == [A]
    assert growing.grown([replace(A, count=8, delay_ns=120)]) == [replace(A, delay_ns=120)]
    assert growing.grown([replace(A, count=11, delay_ns=90)]) == [
        replace(A, count=11, delay_ns=120)
    ]


def test_errors_are_those_of_the_present_estimate() -> None:
    growing = GrowingTotals()
    growing.grown([A])
    (found,) = growing.grown([replace(A, count=8, delay_variance=1.0, count_variance=2.0)])
    assert (found.delay_variance, found.count_variance) == (1.0, 2.0)


def test_each_stack_grows_by_itself() -> None:
    others = [
        replace(A, kind="mutex"),
        replace(A, sema=8),
        replace(A, return_pcs=(1,)),
        replace(A, labels=(Label("user", "anna"),)),
        replace(A, kind="wakers", waker=NO_WAKER),
        replace(A, kind="wakers"),
    ]
    growing = GrowingTotals()
    growing.grown([A])
    smaller = [replace(each, count=1, delay_ns=1) for each in others]
    assert growing.grown(smaller) == smaller


def test_the_totals_given_are_not_changed() -> None:
    growing = GrowingTotals()
    growing.grown([A])
    smaller = replace(A, count=1)
    growing.grown([smaller])
    assert smaller.count == 1


def test_a_stack_that_is_missing_for_a_while_does_not_fall() -> None:
    growing = GrowingTotals()
    growing.grown([A])
    assert growing.grown([]) == []
    assert growing.grown([replace(A, count=2)]) == [A]


def test_no_bucket_of_lengths_has_fewer_waits_than_before() -> None:
    first, then = WaitHistogram.of([100, 100, 9000]), WaitHistogram.of([100, 500])
    growing = GrowingTotals()
    growing.grown([replace(A, lengths=first)])
    (found,) = growing.grown([replace(A, lengths=then)])
    assert found.lengths == WaitHistogram.of([100, 100, 500, 9000])
