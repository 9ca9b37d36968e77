"""Waits that goroutine samples see: by stack, since not every wait is recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.limits import MAX_DEPTH
from ebpfprof.goruntime.samples.state_sums import GoroutineState, StateTotal, StateTotals
from ebpfprof.goruntime.waits.standing import HANGING, Threshold
from ebpfprof.profile.model import Label
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.waits.long_waits import LongWaits, SampledStack

MS = 1_000_000
GOPARK, PARK, A, B = 6, 7, (8, 9), (11, 12)
SEMA = 0xA0
ANNA = (Label("user", "anna"),)


@dataclass
class Samples:
    """Samples that found what a test says. Operations park at PARK."""

    states: dict[GoroutineState, StateTotal] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    standing: dict[GoroutineState, tuple[int, int, int]] = field(default_factory=dict)
    announce: Callable[[int], None] = lambda _: None
    ends: bool = False
    """Whether the target has ended."""
    next_states: dict[GoroutineState, StateTotal] = field(default_factory=dict)
    """What the next sample adds."""
    lengths: dict[GoroutineState, WaitHistogram] = field(default_factory=dict)

    @property
    def sampler(self) -> Samples:
        return self

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")
        self.standing = {}
        self._take()

    def sample(self) -> None:
        self.calls.append("sample")
        self.announce(41)
        if self.ends:
            raise TargetGone(1, "it")
        self._take()

    def _take(self) -> None:
        self.states |= self.next_states
        self.next_states = {}

    def standing_states(self, threshold: Threshold) -> dict[GoroutineState, tuple[int, int, int]]:
        assert threshold is HANGING
        return self.standing

    def park_at(self, pcs: tuple[int, ...]) -> int | None:
        return pcs.index(PARK) if PARK in pcs else None

    def totals(self) -> StateTotals:
        return StateTotals(dict(self.states), 101, 1000 * MS, dict(self.lengths))


def state(
    pcs: tuple[int, ...],
    *,
    word: str = "select",
    sema: int = 0,
    labels: tuple[Label, ...] | None = (),
    start_pc: int = 1,
) -> GoroutineState:
    return GoroutineState(word, (GOPARK, PARK, *pcs), start_pc, labels, sema)


def total(hits: int, ended: int = 0, twice: int = 0, *, variance: float = 0.0) -> StateTotal:
    """Each hit is one of 10 ms; waits that have ended lasted for 20 ms, long ones for 100."""
    return StateTotal(
        10 * MS * hits, hits, 20 * MS * ended, ended, 100 * MS * twice, twice, variance
    )


def seen(hits: int, ended: int = 0, long: int = 0, *, variance: float = 0.0) -> SampledStack:
    return SampledStack(20.0 * MS * ended, hits, ended, 100.0 * MS * long, long, variance)


def begun(samples: Samples, announce: Callable[[int], None] = lambda _: None) -> LongWaits:
    waits = LongWaits(cast("Any", samples))
    waits.start()
    waits.begin(announce)
    return waits


def place(pcs: tuple[int, ...]) -> tuple[int, tuple[int, ...], tuple[Label, ...]]:
    return 0, (PARK, *pcs), ()


def test_before_the_begin_nothing_counts() -> None:
    samples = Samples({state(A): total(5, 5)})
    waits = LongWaits(cast("Any", samples))
    waits.start()
    assert waits.found() == {}


def test_stacks_begin_at_the_park() -> None:
    samples = Samples()
    waits = begun(samples)
    samples.states[state(A)] = total(8, 4, 2, variance=9.0)
    assert waits.found() == {place(A): seen(8, 4, 2, variance=9.0)}


def test_lengths_are_those_since_the_begin() -> None:
    early, later = WaitHistogram.of([90 * MS]), WaitHistogram.of([70 * MS, 200 * MS])
    samples = Samples({state(A): total(8, 4, 2)}, lengths={state(A): early})
    waits = begun(samples)
    samples.lengths = {state(A): early + later, state(A, start_pc=2): later}
    samples.states[state(A, start_pc=2)] = total(1)
    assert waits.found()[place(A)].lengths == later + later


def test_what_was_seen_before_the_begin_does_not_count() -> None:
    samples = Samples({state(A): total(8, 4, 2, variance=9.0)})
    waits = begun(samples)
    assert waits.found() == {place(A): SampledStack()}
    samples.states[state(A)] = total(13, 6, 3, variance=10.0)
    samples.states[state(B)] = total(1, 1)
    assert waits.found() == {
        place(A): seen(5, 2, 1, variance=1.0),
        place(B): seen(1, 1),
    }


def test_the_sample_of_the_begin_has_what_ended_before() -> None:
    samples = Samples(next_states={state(A): total(8, 4, 2)})
    waits = begun(samples)
    assert samples.calls == ["start", "sample"]
    assert waits.found()[place(A)] == SampledStack()


def test_samples_are_announced_from_the_first_on() -> None:
    announced: list[int] = []
    samples = Samples()
    waits = begun(samples, announced.append)
    assert announced == [41]
    samples.announce(50)
    assert announced == [41, 50]
    waits.stop()
    samples.announce(60)
    assert announced == [41, 50]


def test_a_target_that_ends_at_the_begin_keeps_its_waits() -> None:
    samples = Samples({state(A): total(1)}, ends=True)
    waits = begun(samples)
    samples.states[state(A)] = total(2, 1)
    assert waits.found() == {place(A): seen(1, 1)}


def test_stacks_that_do_not_wait_or_not_in_such_an_operation_are_left_out() -> None:
    samples = Samples()
    waits = begun(samples)
    for word in ("running", "runnable", "syscall"):
        samples.states[state(A, word=word)] = total(5, 5)
    samples.states[GoroutineState("sleep", (GOPARK, 70, *A), 1, ())] = total(5, 5)
    samples.states[GoroutineState("select", (), 1, ())] = total(5, 5)
    assert waits.found() == {}


def test_states_that_the_profile_does_not_tell_apart_add_up() -> None:
    samples = Samples()
    waits = begun(samples)
    samples.states = {
        state(A): total(8, 4, 2, variance=9.0),
        state(A, word="chan receive", start_pc=2): total(1, 1, 1, variance=2.0),
        state(A, labels=None): total(2, 0),
        state(A, labels=ANNA): total(3, 3),
        state(A, sema=SEMA): total(4, 1),
    }
    assert waits.found() == {
        place(A): seen(11, 5, 3, variance=11.0),
        (0, (PARK, *A), ANNA): seen(3, 3),
        (SEMA, (PARK, *A), ()): seen(4, 1),
    }


def test_stacks_are_as_deep_as_those_of_probes() -> None:
    samples = Samples()
    waits = begun(samples)
    deep = tuple(range(100, 101 + MAX_DEPTH))
    samples.states[state(deep)] = total(1, 1)
    samples.states[state((*deep, 5))] = total(2, 1)
    assert waits.found() == {(0, (PARK, *deep)[:MAX_DEPTH], ()): seen(3, 2)}


def test_waits_stay_when_samples_end_and_begin_again() -> None:
    samples = Samples()
    waits = begun(samples)
    samples.states[state(A)] = total(4, 2, 1, variance=5.0)
    samples.next_states = {state(B): total(1, 1)}
    waits.stop()  # with a last sample
    expected = {place(A): seen(4, 2, 1, variance=5.0), place(B): seen(1, 1)}
    assert waits.found() == expected
    samples.states[state(A)] = total(9, 9, 9)  # meanwhile others sampled
    assert waits.found() == expected
    waits.start()
    assert waits.found() == expected
    waits.begin(lambda _: None)
    samples.states[state(A)] = total(10, 10, 9)
    assert waits.found() == {
        place(A): seen(5, 3, 1, variance=5.0),
        place(B): seen(1, 1),
    }
    waits.stop()
    assert waits.found()[place(A)] == seen(5, 3, 1, variance=5.0)


def test_found_waits_may_be_changed() -> None:
    samples = Samples()
    waits = begun(samples)
    samples.states[state(A)] = total(4, 2)
    waits.stop()
    waits.found()[place(A)].add(seen(100, 100))
    assert waits.found() == {place(A): seen(4, 2)}


def test_samples_that_have_not_begun_are_not_ended() -> None:
    samples = Samples()
    waits = LongWaits(cast("Any", samples))
    waits.stop()
    assert samples.calls == []
    waits.start()
    waits.stop()
    waits.stop()
    assert samples.calls == ["start", "stop"]


def test_without_a_begin_samples_can_be_ended() -> None:
    """They begin with the recording, for the report of goroutines that hang."""
    samples = Samples({state(A): total(8, 8)})
    waits = LongWaits(cast("Any", samples))
    waits.start()
    waits.stop()
    assert waits.found() == {}


def test_what_hangs_is_known_after_the_end() -> None:
    samples = Samples()
    waits = begun(samples)
    samples.standing = {state(A): (2, 9 * MS, 8 * MS)}
    assert waits.hanging() == {state(A): (2, 9 * MS, 8 * MS)}
    waits.stop()
    assert samples.standing == {}
    assert waits.hanging() == {state(A): (2, 9 * MS, 8 * MS)}


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        (SampledStack(), 0.0),
        (SampledStack(ended=10, long=0, variance=30.0), 0.0),
        (SampledStack(ended=10, long=5, variance=30.0), 15.0),
        (SampledStack(ended=10, long=10, variance=30.0), 30.0),
    ],
)
def test_long_waits_have_their_part_of_the_variance(waits: SampledStack, expected: float) -> None:
    assert waits.long_variance == expected


@pytest.mark.parametrize("mean", [3, 8, 25, 400])
def test_intervals_of_what_few_samples_saw_contain_the_actual_time(mean: int) -> None:
    """Each of the hits, a random number, stands for 50 ms; their own variance is that number."""
    chance = np.random.default_rng(44)
    inside = []
    for hits in chance.poisson(mean, 4000).tolist():
        seen = SampledStack(50.0 * MS * hits, hits, hits, variance=hits * (50.0 * MS) ** 2)
        apart_ns = abs(seen.ns - 50 * MS * mean)
        inside.append(apart_ns <= 1.96 * math.sqrt(seen.as_uncertain().variance))
    assert 0.945 <= np.mean(inside) <= (0.99 if mean > 3 else 1)


def test_hits_that_were_as_many_in_each_sample_may_be_one_more_or_less() -> None:
    seen = SampledStack(200.0 * MS, hits=4, ended=4).as_uncertain()
    assert 50 * MS < math.sqrt(seen.variance) < 100 * MS
    assert SampledStack().as_uncertain() == SampledStack()
