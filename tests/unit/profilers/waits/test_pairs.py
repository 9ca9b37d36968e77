"""Who woke whom: the estimated block profile, split as recorded waits were."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.profile.model import Label
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.waits.pairs import pairs_of
from ebpfprof.profilers.waits.rows import NO_WAKER, KnownStack, StackSums, StackTotal, Waker
from ebpfprof.profilers.waits.sampled_sums import BlockEstimate, StackEstimate

MS = 1_000_000
A, B = (1, 2), (3, 4)
X, Y = Waker("wakers", (10,)), Waker("thread", (11,))
ANNA = (Label("user", "anna"),)
NONE = StackSums()


def block(
    pcs: tuple[int, ...],
    count: float,
    delay_ns: int,
    *,
    variance: float = 0.0,
    every: StackSums = NONE,
    sema: int = 0,
    labels: tuple[Label, ...] = (),
) -> BlockEstimate:
    return BlockEstimate(
        StackTotal("block", sema, pcs, count, delay_ns, labels, variance), every, NONE
    )


def pair(
    pcs: tuple[int, ...], waker: Waker, *, sema: int = 0, labels: tuple[Label, ...] = ()
) -> KnownStack:
    return KnownStack(0, "wakers", sema, pcs, labels, waker)


def seen(
    count: float, delay_ns: float, *, variance: float = 0.0, every: StackSums = NONE
) -> StackEstimate:
    return StackEstimate(every, StackSums(count, delay_ns), 0.0, variance)


def sums(pairs: list[StackTotal]) -> dict[tuple[tuple[int, ...], Waker | None], tuple[float, int]]:
    return {(each.return_pcs, each.waker): (each.count, each.delay_ns) for each in pairs}


def test_without_recorded_pairs_there_are_none() -> None:
    assert pairs_of([block(A, 5, MS)], {}) == []


def test_what_is_beyond_the_exact_time_is_split_as_recorded_waits_were() -> None:
    """10 ms are exact, all woken by X. Of the 90 ms since, Y made 3 of 4 parts."""
    exact = StackSums(4, 10 * MS)
    pairs = {pair(A, X): seen(1, MS, every=exact), pair(A, Y): seen(9, 3 * MS)}
    found = pairs_of([block(A, 24, 100 * MS, every=exact)], pairs)
    assert sums(found) == {
        (A, X): (4 + 20 * 1 / 10, 10 * MS + 90 * MS // 4),
        (A, Y): (18, 90 * MS * 3 // 4),
    }
    assert {each.kind for each in found} == {"wakers"}


def test_wakers_of_a_stack_that_only_samples_saw_are_not_known() -> None:
    found = pairs_of([block(B, 3, 7 * MS, variance=9.0)], {pair(A, X): seen(1, MS)})
    assert sums(found) == {(B, NO_WAKER): (3, 7 * MS)}
    assert (found[0].kind, found[0].delay_variance) == ("wakers", 9.0)


def test_lengths_of_the_pairs_of_a_stack_make_up_its_own() -> None:
    """Of four waits since the exact time X ended three; goroutine samples saw two long ones."""
    exact = StackSums(2, 2 * MS, lengths=WaitHistogram.of([MS, MS]))
    short = WaitHistogram.of([2 * MS] * 8)
    long = WaitHistogram.of([500 * MS] * 2)
    row = block(A, 12, 1000 * MS, every=exact)
    row.row.lengths = exact.lengths + short + long
    of_x, of_y = WaitHistogram.of([2 * MS] * 3), WaitHistogram.of([2 * MS])
    pairs = {
        pair(A, X): StackEstimate(exact, StackSums(3, 6 * MS, lengths=of_x), 0.0, 0.0),
        pair(A, Y): StackEstimate(NONE, StackSums(1, 2 * MS, lengths=of_y), 0.0, 0.0),
    }
    found = {each.waker: each.lengths for each in pairs_of([row._replace(long=long)], pairs)}
    assert found == {
        X: exact.lengths + 0.75 * (short + long),
        Y: 0.25 * (short + long),
    }


def test_lengths_of_a_stack_without_recorded_pairs_are_those_of_an_unknown_waker() -> None:
    row = block(B, 2, MS)
    row.row.lengths = WaitHistogram.of([MS, MS])
    (found,) = pairs_of([row], {pair(A, X): seen(1, MS)})
    assert (found.waker, found.lengths) == (NO_WAKER, row.row.lengths)


def test_stacks_with_other_labels_or_locks_are_other_stacks() -> None:
    rows = [block(A, 2, 2 * MS, labels=ANNA), block(A, 3, 3 * MS, sema=8)]
    pairs = {pair(A, X, labels=ANNA): seen(1, MS), pair(A, Y, sema=8): seen(1, MS)}
    assert [(each.labels, each.sema, each.waker, each.count) for each in pairs_of(rows, pairs)] == [
        (ANNA, 0, X, 2),
        ((), 8, Y, 3),
    ]


def test_a_pairs_error_has_that_of_its_stack_and_its_own() -> None:
    """10 % of the whole, 30 % of X's part of it; variances add up."""
    pairs = {
        pair(A, X): seen(1, MS, variance=(0.3 * MS) ** 2),
        pair(A, Y): seen(1, MS),
    }
    found = pairs_of([block(A, 2, 20 * MS, variance=(2.0 * MS) ** 2)], pairs)
    by_waker = {each.waker: math.sqrt(each.delay_variance) / each.delay_ns for each in found}
    assert math.isclose(by_waker[X], math.hypot(0.1, 0.3))
    assert math.isclose(by_waker[Y], 0.1)


def test_an_estimate_below_what_is_exact_leaves_the_exact_pairs() -> None:
    exact = StackSums(4, 10 * MS)
    pairs = {pair(A, X): seen(8, MS, every=exact)}
    found = pairs_of([block(A, 3, 9 * MS, every=exact)], pairs)
    assert sums(found) == {(A, X): (4, 10 * MS)}
    assert found[0].delay_variance == 0


def test_pairs_that_were_all_exact_say_nothing_of_later_waits() -> None:
    exact = StackSums(4, 10 * MS)
    found = pairs_of(
        [block(A, 7, 30 * MS, variance=5.0, every=exact)], {pair(A, X): seen(0, 0, every=exact)}
    )
    assert sums(found) == {(A, X): (4, 10 * MS), (A, NO_WAKER): (3, 20 * MS)}
    assert {each.waker: each.delay_variance for each in found} == {X: 0, NO_WAKER: 5.0}


def test_a_part_of_one_wait_or_nanosecond_has_no_unknown_waker() -> None:
    exact = StackSums(4, 10)
    found = pairs_of([block(A, 4.9, 10, every=exact)], {pair(A, X): seen(0, 0, every=exact)})
    assert sums(found) == {(A, X): (4, 10)}


def test_a_wait_that_parked_again_has_a_delay_without_a_count() -> None:
    found = pairs_of([block(A, 3, 7 * MS, variance=9.0)], {pair(A, X): seen(0, MS)})
    assert sums(found) == {(A, X): (0, 7 * MS), (A, NO_WAKER): (3, 0)}
    assert {each.waker: each.delay_variance for each in found}[NO_WAKER] == 0


parts = st.tuples(st.integers(0, 1000), st.integers(0, 10**12))


@given(st.lists(parts, min_size=1, max_size=5), parts)
def test_all_pairs_of_a_stack_make_up_its_row(
    found: list[tuple[int, int]], whole: tuple[int, int]
) -> None:
    pairs = {pair(A, Waker("wakers", (n,))): seen(*each) for n, each in enumerate(found, 1)}
    rows = pairs_of([block(A, *whole)], pairs)
    assert math.isclose(sum(each.count for each in rows), whole[0], abs_tol=1e-6)
    assert math.isclose(sum(each.delay_ns for each in rows), whole[1], abs_tol=len(rows))
