"""The error of counts where goroutines wait in regular turns, which tracked waits don't show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from ebpfprof.profile.model import Label
from ebpfprof.profilers.waits.alternation import alternation_variances
from ebpfprof.profilers.waits.estimates import StackFacts, estimates
from ebpfprof.profilers.waits.rows import KnownStack, StackSums
from ebpfprof.profilers.waits.sampled_sums import SampledSums
from tests.builds import in_full

FIRST = 9
A, B, C = (KnownStack(0, "block", 0, (pc, FIRST), ()) for pc in (1, 2, 3))
STACKS = A, B, C
OTHER = KnownStack(0, "block", 0, (4, 10), ())
RELEASE = KnownStack(0, "mutex", 0, (5, FIRST), ())
RECORDINGS = 300
Stops = npt.NDArray[np.int64]


def begun_with(return_pcs: tuple[int, ...]) -> int:
    return return_pcs[-1]


FACTS = StackFacts(lambda _: False, lambda _: False, lambda _: False, begun_with)


def tracked(parks: float, row_squares: float) -> StackSums:
    return StackSums(8 * parks, 80 * parks, parks, row_squares=row_squares)


def eighth(more: dict[KnownStack, StackSums]) -> dict[KnownStack, float]:
    sums = SampledSums()
    sums.add_eighth(more)
    return alternation_variances(sums, begun_with)


def test_nothing_was_recorded() -> None:
    assert alternation_variances(SampledSums(), begun_with) == {}


def test_a_goroutine_that_was_tracked_at_one_stack_alone_has_no_turns() -> None:
    assert eighth({A: tracked(100, 100**2), OTHER: tracked(50, 50**2)}) == {A: 0, OTHER: 0}


@pytest.mark.parametrize(("waits", "error"), [(30, 400.0), (9, 0.0)])
def test_turns_that_hide_a_stack_show_in_the_time_when_every_wait_was_recorded(
    waits: int, error: float
) -> None:
    """Then A and B had as many waits. Now A was tracked 100 times, and B never."""
    sums = SampledSums()
    sums.add_every({A: StackSums(waits, waits), B: StackSums(waits, waits)})
    sums.add_eighth({A: tracked(100, 100**2)})
    assert math.sqrt(alternation_variances(sums, begun_with)[A]) == pytest.approx(error, rel=0.02)


def test_waits_that_were_never_in_a_row_add_nothing() -> None:
    assert eighth({A: tracked(100, 100), B: tracked(50, 50)}) == {A: 0, B: 0}


def test_waits_in_a_row_may_all_have_been_counted_twice_or_not_at_all() -> None:
    """100 in a row of A and of B: of 800 stops each time, half may have been at the other."""
    found = eighth({A: tracked(100, 100**2), B: tracked(100, 100**2)})
    assert math.sqrt(found[A]) == pytest.approx(math.sqrt(found[B]))
    assert 395 < math.sqrt(found[A]) < 1.42 * 400


def test_stacks_of_other_goroutines_and_releases_don_t_matter() -> None:
    pair = {A: tracked(100, 100**2), B: tracked(100, 100**2)}
    more = {OTHER: tracked(500, 500**2), RELEASE: tracked(700, 700**2)}
    found = eighth(pair | more)
    assert found == eighth(pair) | {OTHER: 0}


def test_goroutines_with_other_labels_are_others() -> None:
    """Each of some users has a goroutine with labels of its own, which waits at one stack only."""
    anna, bert = (A._replace(labels=(Label("user", name),)) for name in ("anna", "bert"))
    assert eighth({anna: tracked(100, 100**2), bert: tracked(100, 100**2)}) == {anna: 0, bert: 0}


def test_windows_are_scaled() -> None:
    sums = SampledSums()
    sums.add_pause(90)
    sums.add_window({A: tracked(100, 100**2), B: tracked(100, 100**2)}, 1, 10)
    found = alternation_variances(sums, begun_with)
    alone = eighth({A: tracked(100, 100**2), B: tracked(100, 100**2)})
    assert found[A] == pytest.approx(100 * alone[A])


def in_turns(shifts: float) -> Callable[[np.random.Generator, int, int], Stops]:
    """Stops at A, B, A, B and so on; this part of the stops is another one between two of them."""

    def stops(chance: np.random.Generator, goroutines: int, count: int) -> Stops:
        is_shift = chance.random((goroutines, count)) < shifts
        turns = np.cumsum(~is_shift, axis=1) + chance.integers(2, size=(goroutines, 1))
        return np.where(is_shift, -1, turns % 2)

    return stops


def in_random_order(*shares: float) -> Callable[[np.random.Generator, int, int], Stops]:
    """Stops at A, B, C with these probabilities."""

    def stops(chance: np.random.Generator, goroutines: int, count: int) -> Stops:
        return chance.choice(len(shares), (goroutines, count), p=shares)

    return stops


def recorded(stops: Stops, phases: Sequence[int]) -> SampledSums:
    """What one stop in eight of each goroutine adds up to; -1 is not recorded."""
    parks, row_squares = np.zeros(len(STACKS)), np.zeros(len(STACKS))
    for own, phase in zip(stops, phases, strict=True):
        seen = own[phase::8]
        seen = seen[seen >= 0]
        begins = np.flatnonzero(np.diff(seen, prepend=-1))
        lengths = np.diff(begins, append=len(seen))
        parks += np.bincount(seen, minlength=len(STACKS))
        row_squares += np.bincount(seen[begins], lengths**2, len(STACKS))
    sums = SampledSums()
    sums.add_eighth(
        {
            stack: tracked(count, squares)
            for stack, count, squares in zip(STACKS, parks, row_squares, strict=True)
            if count
        }
    )
    return sums


def inside(
    stops: Callable[[np.random.Generator, int, int], Stops], goroutines: int, count: int
) -> float:
    """The part of the 95 % intervals of A's count that has the actual one."""
    chance = np.random.default_rng(43)
    found = []
    for _ in range(RECORDINGS):
        made = stops(chance, goroutines, count)
        sums = recorded(made, chance.integers(8, size=goroutines).tolist())
        rows = estimates(sums, {}, FACTS, hit_ns=0.0).rows
        row = next((each for each in rows if each.return_pcs == A.return_pcs), None)
        actual = np.count_nonzero(made == 0)
        is_inside = row and abs(row.count - actual) <= 1.96 * math.sqrt(row.count_variance)
        found.append(bool(is_inside))
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("goroutines", "count", "shifts", "least"),
    [
        (1, 16_000, 0.001, 0.93),
        *in_full((1, 16_000, 0.01, 0.93)),
        (8, 4_000, 0.0, 0.9),
        *in_full((8, 4_000, 0.001, 0.93), (8, 4_000, 0.01, 0.93)),
        *in_full((64, 1_000, 0.0, 0.9), (64, 1_000, 0.001, 0.93)),
        (64, 1_000, 0.01, 0.93),
    ],
)
def test_the_error_of_goroutines_that_wait_in_turns_is_honest(
    goroutines: int, count: int, shifts: float, least: float
) -> None:
    assert inside(in_turns(shifts), goroutines, count) >= least


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.1, 0.9), (0.02, 0.98), (0.3, 0.3, 0.4)])
@pytest.mark.parametrize(("goroutines", "count"), [(1, 16_000), (8, 4_000), (64, 250)])
def test_the_error_of_goroutines_that_wait_in_random_order_is_honest(
    goroutines: int, count: int, shares: tuple[float, ...]
) -> None:
    assert inside(in_random_order(*shares), goroutines, count) >= 0.92
