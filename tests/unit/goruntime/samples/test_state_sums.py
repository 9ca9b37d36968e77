"""Sums of samples of goroutines: their times, and how much can be known of them."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from ebpfprof.goruntime.samples.state_sums import ENDED, GoroutineState, StateSums
from ebpfprof.profile.model import Label
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram
from tests.builds import in_full

WAITS = GoroutineState("select", (1, 2), 2, ())
RUNS = GoroutineState("running", (), 2, ())


def add(sums: StateSums, now_ns: int, *changes: tuple[int, GoroutineState | None]) -> None:
    states = [ENDED if state is None else sums.number_of(state) for _, state in changes]
    goroutines = np.array([goroutine for goroutine, _ in changes], np.int64)
    sums.add(now_ns, goroutines, np.array(states, np.int64))


def test_a_sample_stands_for_the_time_around_it() -> None:
    added = StateSums()
    add(added, 1000, (1, WAITS), (2, RUNS))
    add(added, 1100)
    add(added, 1300, (1, RUNS))
    add(added, 1400, (2, None))
    found = added.totals()
    assert (found.samples, found.length_ns) == (4, 400)
    waits, runs = found.states[WAITS], found.states[RUNS]
    assert (waits.ns, waits.hits) == (200, 2)  # until the middle between 1100 and 1300
    assert (runs.ns, runs.hits) == ((1350 - 1000) + (1400 - 1200), 3 + 2)


def test_only_what_began_and_ended_between_samples_has_ended() -> None:
    added = StateSums()
    add(added, 0, (1, WAITS))  # it may have begun before
    add(added, 100, (1, RUNS))
    add(added, 200, (1, WAITS))
    add(added, 300, (1, None), (2, WAITS))
    add(added, 400)  # 2 continues
    waits = added.totals().states[WAITS]
    assert (waits.ended, waits.ended_ns) == (1, 100)
    assert waits.ns == 50 + 100 + 150


def test_waits_that_two_samples_hit_are_counted_by_how_long_they_were() -> None:
    added = StateSums()
    add(added, 0, (1, RUNS), (2, RUNS), (3, RUNS))
    add(added, 1000, (1, WAITS), (2, WAITS), (3, WAITS))
    add(added, 2000, (3, RUNS))  # one sample hit it
    add(added, 3000, (1, RUNS))
    add(added, 4000)
    add(added, 5000, (2, RUNS))
    found = added.totals()
    buckets = {SCALE.bucket_of(2000): 1, SCALE.bucket_of(4000): 1}
    assert found.lengths == {WAITS: WaitHistogram.counted(buckets, apart_ns=1000)}


def test_lengths_are_as_uncertain_as_the_samples_around_them_were_apart() -> None:
    added = StateSums()
    add(added, 0, (1, RUNS))
    add(added, 1000, (1, WAITS))
    add(added, 2000)
    add(added, 9000, (1, RUNS))
    assert added.totals().lengths[WAITS].apart_ns == (1000 + 7000) / 2


def test_a_goroutine_that_was_not_there_had_no_wait() -> None:
    """The runtime uses the structs of ended goroutines again, for others."""
    added = StateSums()
    add(added, 0, (1, RUNS), (2, WAITS))
    add(added, 1000, (1, None))
    add(added, 2000)
    add(added, 9000, (1, RUNS))
    assert added.totals().lengths == {}


def test_waits_that_two_samples_hit_are_counted_one_by_one() -> None:
    added = StateSums()
    add(added, 0, (1, WAITS), (2, RUNS), (3, RUNS), (4, RUNS))  # 1 may have begun before
    add(added, 100, (2, WAITS), (3, WAITS))
    add(added, 200, (1, RUNS), (3, RUNS), (4, WAITS))
    add(added, 300, (2, RUNS))
    waits = added.totals().states[WAITS]
    assert (waits.ended, waits.ended_ns) == (2, 200 + 100)  # those of 2 and 3
    assert (waits.twice, waits.twice_ns) == (1, 200)  # that of 2
    add(added, 400, (4, RUNS))
    waits = added.totals().states[WAITS]
    assert (waits.ended, waits.ended_ns) == (3, 500)
    assert (waits.twice, waits.twice_ns) == (2, 400)
    assert waits.twice <= waits.ended <= waits.hits


def test_a_goroutine_that_waits_again_in_the_next_sample_has_not_waited_twice_as_long() -> None:
    added = StateSums()
    add(added, 0, (1, RUNS))
    for now_ns in (100, 200, 300):
        add(added, now_ns, (1, WAITS))
    add(added, 400, (1, None))
    waits = added.totals().states[WAITS]
    assert (waits.ended, waits.hits) == (3, 3)
    assert (waits.twice, waits.twice_ns) == (0, 0)


def test_a_wait_that_a_pause_cuts_off_is_none_of_those_that_two_samples_hit() -> None:
    added = StateSums()
    add(added, 0, (1, RUNS), (2, RUNS))
    add(added, 100, (1, WAITS), (2, WAITS))
    add(added, 200)
    add(added, 300, (2, RUNS))
    added.pause()
    add(added, 5000, (1, WAITS))
    add(added, 5100)
    add(added, 5200, (1, RUNS))
    waits = added.totals().states[WAITS]
    assert (waits.twice, waits.twice_ns) == (1, 200)


def test_waits_before_a_recording_are_not_counted_as_hit_by_two_samples() -> None:
    added = StateSums()
    add(added, 0, (1, RUNS))
    add(added, 100, (1, WAITS))
    add(added, 200)
    add(added, 300, (1, RUNS))
    added.count_from(350)
    add(added, 400, (1, WAITS))
    add(added, 500)
    add(added, 600, (1, RUNS))
    assert added.totals().states[WAITS].twice == 2
    counted = added.counted().states[WAITS]
    assert (counted.twice, counted.twice_ns) == (1, 175)  # from the middle between 350 and 400 on


def test_a_pause_ends_nothing_and_its_time_is_left_out() -> None:
    added = StateSums()
    add(added, 0, (1, WAITS))
    add(added, 100, (2, WAITS))
    added.pause()
    add(added, 5000, (1, WAITS), (2, WAITS))
    add(added, 5100, (1, None), (2, None))
    found = added.totals()
    assert found.length_ns == 200
    assert found.states[WAITS].ns == 100 + 50 + 2 * 50
    assert found.states[WAITS].ended == 0


def test_the_number_of_states_is_bounded() -> None:
    added = StateSums(3)
    states = [GoroutineState("select", (pc,), 1, ()) for pc in range(1, 11)]
    add(added, 0, *enumerate(states))
    add(added, 10)
    found = added.totals().states
    assert found.keys() == {*states[:3], GoroutineState("select", (), 0, ())}
    assert sum(each.ns for each in found.values()) == 10 * len(states)


@pytest.mark.parametrize("length_ns", [*in_full(20_000, 30_000_000), 2_000_000])
def test_the_reported_error_is_honest(length_ns: int) -> None:
    """Of goroutines that wait and run in turn, 95 % of intervals hold the time that they waited."""
    chance = random.Random(23)
    inside = 0
    rounds = 400
    for _ in range(rounds):
        truth, estimate, error = one_run(chance, length_ns)
        inside += abs(estimate - truth) <= 1.96 * error
    # Six standard deviations of a binomial number below what it should be.
    least = 0.95 * rounds - 6 * math.sqrt(0.95 * 0.05 * rounds)
    assert inside >= least


def one_run(chance: random.Random, length_ns: int) -> tuple[float, float, float]:
    """The time that four goroutines waited, what samples make of it, and its standard error.

    Waits and the time between them have random lengths, on average `length_ns` and three of it.
    """
    end_ns, mean_ns = 1_000_000_000, 10_000_000
    looks = [0.0]
    while looks[-1] < end_ns:
        looks.append(looks[-1] + mean_ns * chance.uniform(0.5, 1.5))
    added, truth = StateSums(), 0.0
    found: list[list[tuple[int, GoroutineState]]] = [[] for _ in looks]
    for number in range(4):
        now, is_waiting, at = 0.0, True, 0
        while at < len(looks):
            until = now + chance.expovariate(1 / (length_ns if is_waiting else 3 * length_ns))
            if is_waiting:
                truth += min(until, looks[-1]) - min(now, looks[-1])
            is_new = True
            while at < len(looks) and looks[at] < until:
                if is_new:
                    found[at].append((number, WAITS if is_waiting else RUNS))
                is_new = False
                at += 1
            now, is_waiting = until, not is_waiting
    for now, changes in zip(looks, found, strict=True):
        add(added, round(now), *changes)
    total = added.totals()
    waits = total.states[WAITS]
    return truth, waits.ns, math.sqrt(waits.variance)


def times(sums: StateSums) -> dict[str, int]:
    return {state.word: each.ns for state, each in sums.counted().states.items()}


def test_times_of_a_recording_are_those_between_its_begin_and_its_end() -> None:
    added = StateSums()
    add(added, 1000, (1, WAITS), (2, RUNS))
    add(added, 1100, (2, WAITS))
    added.count_from(1500)
    assert times(added) == {"select": 0, "running": 0}
    add(added, 1700, (1, RUNS))
    added.end_at(2000)
    add(added, 2600, (1, WAITS))  # reading that many goroutines took long
    add(added, 2700, (1, RUNS))
    found = added.counted()
    assert times(added) == {"select": 100 + 500 + 150, "running": 250}
    assert sum(times(added).values()) == 2 * (2000 - 1500)
    assert (found.samples, found.length_ns) == (3, 2000 - 1500)
    waits, runs = found.states[WAITS], found.states[RUNS]
    assert (waits.hits, runs.hits) == (2 + 1 + 2, 1)


def test_a_recording_without_a_last_sample_continues_as_its_last_sample_found() -> None:
    added = StateSums()
    add(added, 1000, (1, WAITS), (2, RUNS))
    added.count_from(1100)
    added.end_at(1400)
    added.pause()
    assert times(added) == {"select": 300, "running": 300}


def test_the_time_between_two_recordings_does_not_count() -> None:
    added = StateSums()
    for begun_ns in (1000, 9000):
        add(added, begun_ns, (1, WAITS), (2, RUNS))
        add(added, begun_ns + 50)
        added.count_from(begun_ns + 100)
        add(added, begun_ns + 300)
        added.end_at(begun_ns + 400)
        added.pause()
    assert times(added) == {"select": 600, "running": 600}
    assert added.counted().samples == 2 * 2


def test_a_recording_begins_when_it_began_though_a_sample_came_since() -> None:
    added = StateSums()
    add(added, 1000, (1, WAITS))
    add(added, 1200)
    added.count_from(1150)  # the thread that looks was faster
    added.end_at(1300)
    added.pause()
    assert times(added) == {"select": 150}


def test_the_error_of_goroutines_that_begin_together_is_honest_whatever_their_labels() -> None:
    def error(labelled: bool) -> float:
        added = StateSums()
        add(added, 0)
        states = [
            WAITS._replace(labels=(Label("number", str(n)),)) if labelled else WAITS
            for n in range(16)
        ]
        add(added, 1000, *enumerate(states))
        return math.sqrt(sum(state.variance for state in added.totals().states.values()))

    # All began at one moment between the two samples: none of the errors is less than all others.
    assert error(labelled=True) == pytest.approx(error(labelled=False))
    assert error(labelled=True) == pytest.approx(16 * 1000 / math.sqrt(2))


def test_goroutines_that_take_turns_are_as_uncertain_as_one_of_them() -> None:
    added = StateSums()
    first, second = (WAITS._replace(labels=(Label("number", n),)) for n in "12")
    add(added, 0, (1, first), (2, RUNS))
    add(added, 1000, (1, RUNS), (2, second))
    found = added.totals().states
    assert found[first].variance == found[second].variance == 1000**2 / 2
