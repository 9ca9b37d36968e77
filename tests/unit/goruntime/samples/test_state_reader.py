"""Which stacks are believed of goroutines that continue while we read them."""

from __future__ import annotations

from ebpfprof.goruntime.goroutines.fields import wait_of
from ebpfprof.goruntime.goroutines.stack_reader import ReadStack
from ebpfprof.goruntime.goroutines.stack_walk import Walk
from ebpfprof.goruntime.goroutines.states import PARKED
from ebpfprof.goruntime.samples.state_reader import Alike, BelievedStacks

SELECT = 9
ANSWER = (100, 110, 120, 900)  # select, roundTrip, handle, goexit
SLEEPING = (200, 130, 900)
MIXED = (100, 110, 555, 130, 900)  # of both, and of a call that has returned


def stack(pcs: tuple[int, ...], *, is_exact: bool) -> ReadStack:
    return ReadStack(Walk(pcs, is_whole=True), is_exact=is_exact, is_there=True)


def at(sequence: int) -> int:
    return wait_of(PARKED[0], SELECT, sequence, 7)


def test_frames_of_two_moments_are_not_stack() -> None:
    """A torn stack with a known outermost function may have frames of calls that returned."""
    believed, alike = BelievedStacks(), Alike(512, SELECT, 1)
    assert believed.of(alike, at(1), at(1), stack(ANSWER, is_exact=True)) == ANSWER
    other = Alike(640, SELECT, 1)
    assert believed.of(other, at(2), at(3), stack(MIXED, is_exact=False)) == ()
    assert (believed.torn, believed.unknown) == (1, 1)


def test_a_torn_stack_that_was_seen_whole_is_believed() -> None:
    believed = BelievedStacks()
    believed.of(Alike(512, SELECT, 1), at(1), at(1), stack(ANSWER, is_exact=True))
    found = believed.of(Alike(640, SELECT, 1), at(2), at(3), stack(ANSWER, is_exact=False))
    assert found == ANSWER
    assert (believed.torn, believed.unknown) == (1, 0)


def test_in_place_of_a_torn_stack_comes_that_of_a_goroutine_that_waits_alike() -> None:
    believed, alike = BelievedStacks(), Alike(512, SELECT, 1)
    believed.of(alike, at(1), at(1), stack(SLEEPING, is_exact=True))
    assert believed.of(alike, at(2), at(3), stack(MIXED, is_exact=False)) == SLEEPING
