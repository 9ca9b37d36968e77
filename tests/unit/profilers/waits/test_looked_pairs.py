"""Who woke whom within a bound: the block profile's estimate, split as windows saw it."""

from __future__ import annotations

import math

from ebpfprof.profile.model import Label
from ebpfprof.profilers.waits.looked_pairs import pairs_of
from ebpfprof.profilers.waits.rows import NO_WAKER, KnownStack, StackTotal, Waker

MS = 1_000_000
A, B = (1, 2), (3, 4)
X, Y = Waker("wakers", (10,)), Waker("wakers", (11,))
ANNA = (Label("user", "anna"),)


def block(pcs: tuple[int, ...], count: float, delay_ns: int, variance: float = 0.0) -> StackTotal:
    return StackTotal("block", 0, pcs, count, delay_ns, (), variance)


def pair(
    pcs: tuple[int, ...], waker: Waker, count: float, delay_ns: int, variance: float = 0.0
) -> StackTotal:
    return StackTotal("wakers", 0, pcs, count, delay_ns, (), variance, waker)


def known(pcs: tuple[int, ...], waker: Waker | None) -> KnownStack:
    return KnownStack(0, "wakers" if waker else "block", 0, pcs, (), waker)


def sums(pairs: list[StackTotal]) -> dict[tuple[tuple[int, ...], Waker | None], tuple[float, int]]:
    return {(each.return_pcs, each.waker): (each.count, each.delay_ns) for each in pairs}


def test_what_is_beyond_the_exact_time_is_split_as_windows_saw_it() -> None:
    """10 ms are exact, all woken by X; of the 90 ms since, windows saw 3 of 4 parts by Y."""
    exact = {known(A, None): (4.0, 10.0 * MS), known(A, X): (4.0, 10.0 * MS)}
    seen = [pair(A, X, 5, 11 * MS), pair(A, Y, 9, 3 * MS)]
    found = pairs_of([block(A, 24, 100 * MS)], seen, exact, factor=1.0)
    assert sums(found) == {
        (A, X): (4 + 20 * 1 / 10, 10 * MS + 90 * MS // 4),
        (A, Y): (18, 90 * MS * 3 // 4),
    }
    assert sum(each.delay_ns for each in found) == 100 * MS
    assert all(each.kind == "wakers" for each in found)


def test_wakers_of_a_stack_that_only_looks_saw_are_not_known() -> None:
    found = pairs_of([block(B, 3, 7 * MS, variance=9.0)], [pair(A, X, 1, MS)], {}, factor=1.0)
    assert sums(found) == {(B, NO_WAKER): (3, 7 * MS)}
    assert found[0].delay_variance == 9.0


def test_stacks_with_other_labels_or_locks_are_other_stacks() -> None:
    labelled = StackTotal("block", 0, A, 2, 2 * MS, ANNA)
    locked = StackTotal("block", 8, A, 3, 3 * MS)
    seen = [
        StackTotal("wakers", 0, A, 1, MS, ANNA, waker=X),
        StackTotal("wakers", 8, A, 1, MS, waker=Y),
    ]
    found = pairs_of([labelled, locked], seen, {}, factor=1.0)
    assert [(each.labels, each.sema, each.waker, each.count) for each in found] == [
        (ANNA, 0, X, 2),
        ((), 8, Y, 3),
    ]


def test_a_pairs_error_has_that_of_its_stack_and_that_of_windows() -> None:
    """10 % of the whole, 30 % of X's part of it; variances add up."""
    seen = [pair(A, X, 1, MS, (0.3 * MS) ** 2), pair(A, Y, 1, MS)]
    found = pairs_of([block(A, 2, 20 * MS, (2 * MS) ** 2)], seen, {}, factor=4.0)
    by_waker = {each.waker: math.sqrt(each.delay_variance) / each.delay_ns for each in found}
    assert math.isclose(by_waker[X], math.hypot(0.1, math.sqrt(4) * 0.3))
    assert math.isclose(by_waker[Y], 0.1)


def test_an_estimate_below_what_is_exact_leaves_the_exact_pairs() -> None:
    exact = {known(A, X): (4.0, 10.0 * MS)}
    found = pairs_of([block(A, 3, 9 * MS)], [pair(A, X, 4, 10 * MS)], exact, factor=1.0)
    assert sums(found) == {(A, X): (4, 10 * MS)}
