"""Samples of all goroutines of a target: what they do, where, which have not moved, since when."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest

from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.parked import parked_goroutines
from ebpfprof.goruntime.samples.sampler import GoroutineSampler
from ebpfprof.goruntime.samples.sampling_thread import SamplingRate, SamplingThread
from ebpfprof.goruntime.samples.shared_sampler import SharedSampler
from ebpfprof.goruntime.waits.standing import OPEN_WAIT, Threshold
from ebpfprof.kernel.clock import kernel_now_ns
from tests.builds import NEWEST, builds, versions
from tests.kernel.parked_program import running

LOOKS = 5
TWICE = Threshold(2)
ENOUGH = OPEN_WAIT._replace(ns=1)


@pytest.mark.parametrize("version", versions())
def test_a_goroutine_that_moved_stands_only_from_the_next_sample_on(version: str) -> None:
    with running(version, "plain") as run:
        sampler = GoroutineSampler(run.go, has_labels=False)
        (moving,) = run.reports["turnLeft"]["goids"]
        before_ns = kernel_now_ns()
        sampler.sample()
        first_ns = kernel_now_ns()
        run.target.ask("turn", "turned")
        sampler.sample()
        parked = parked_goroutines(run.go).goroutines
        (moved,) = [each for each in parked if each.goid == moving]
        others = {each.address for each in parked} - {moved.address}

        standing = sampler.standing(parked, TWICE)
        assert standing.keys() == others
        assert all(before_ns <= since_ns <= first_ns for since_ns in standing.values())

        sampler.sample()
        standing = sampler.standing(parked, TWICE)
        assert standing.keys() == {*others, moved.address}
        assert standing[moved.address] > first_ns
        assert sampler.standing(parked, Threshold(2, 1 << 62)) == {}
        run.target.kill()


def test_few_samples_do_not_show_that_a_goroutine_stands() -> None:
    """One that moves regularly passes a sample once in 20 times."""
    with running(NEWEST, "plain") as run:
        sampler = GoroutineSampler(run.go, has_labels=False)
        parked = parked_goroutines(run.go).goroutines
        for _ in range(ENOUGH.samples - 1):
            sampler.sample()
            assert sampler.standing(parked, ENOUGH) == {}
            assert sampler.standing_states(ENOUGH) == {}
        sampler.sample()
        assert sampler.standing(parked, ENOUGH).keys() == {each.address for each in parked}
        found = sampler.standing_states(ENOUGH)
        assert sum(count for count, _, _ in found.values()) >= len(parked)  # sleepers, too
        (moving,) = run.reports["turnLeft"]["goids"]
        run.target.ask("turn", "turned")
        for _ in range(ENOUGH.samples - 1):
            sampler.sample()
        parked = parked_goroutines(run.go).goroutines
        standing = sampler.standing(parked, ENOUGH)
        assert standing.keys() == {each.address for each in parked if each.goid != moving}
        run.target.kill()


def test_goroutines_stand_from_the_end_of_a_sample_to_the_begin_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At least: they may have moved during a sample."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(ticks))
    with running(NEWEST, "plain") as run:
        sampler = GoroutineSampler(run.go, has_labels=False)
        sampler.sample()
        first_ns = next(ticks)
        sampler.sample()
        parked = parked_goroutines(run.go).goroutines
        stood = set(sampler.standing(parked, TWICE).values())
        least = [bool(sampler.standing(parked, Threshold(2, each))) for each in (2, 3)]
        run.target.kill()
    assert stood == {first_ns - 1}
    assert least == [True, False]


@pytest.mark.parametrize(("version", "mode"), builds())
def test_goroutines_at_rest_are_found_as_by_a_scan(version: str, mode: str) -> None:
    with running(version, mode) as run:
        scanner = GoroutineScanner(run.go)
        scanned = scanner.scan().goroutines
        sampler = GoroutineSampler(run.go, has_labels=True)
        for _ in range(LOOKS):
            sampler.sample()
        totals = sampler.totals()
        run.target.kill()
    expected = Counter((each.state, each.pcs, each.start_pc, each.labels) for each in scanned)
    found = {state[:4]: total for state, total in totals.states.items()}
    assert {state: total.hits for state, total in found.items()} == {
        state: LOOKS * count for state, count in expected.items()
    }
    assert (
        sampler.states.torn,
        sampler.states.unknown,
        sampler.states.unlabelled,
        sampler.beyond,
    ) == (
        0,
        0,
        0,
        0,
    )
    # Each look stands for the time around it, so together they stand for all time.
    assert {state: total.ns for state, total in found.items()} == {
        state: totals.length_ns * count for state, count in expected.items()
    }
    # What was there at the first sample may have begun long before, and has not ended. Of system
    # calls nothing shows whether one is the same.
    assert {s[0] for s, each in found.items() if each.ended} <= {"syscall"}


def test_a_wait_that_begins_and_ends_between_samples_has_its_time() -> None:
    with running(NEWEST, "plain") as run:
        sampler = GoroutineSampler(run.go, has_labels=False)
        sampler.sample()
        run.target.ask("turn", "turned")  # its second wait begins
        times = []
        for _ in range(3):
            sampler.sample()
            times.append(sampler.totals().length_ns)
        run.target.ask("turn", "turned")  # and ends
        sampler.sample()
        times.append(sampler.totals().length_ns)
        states = sampler.totals().states.items()
        # The goroutine that answers is in system calls meanwhile.
        ended = [each for state, each in states if each.ended and state.word != "syscall"]
        run.target.kill()
    (total,) = ended
    assert total.ended == 1
    first_to_last = (times[2] + times[3]) / 2 - times[0] / 2
    assert total.ended_ns == pytest.approx(first_to_last, abs=2)


def test_samples_continue_while_there_are_users_and_begin_again() -> None:
    with (
        running(NEWEST, "plain") as run,
        SharedSampler(
            run.go, rate=SamplingRate(500, 500), has_labels=False, thread=SamplingThread(1.0)
        ) as sampler,
    ):
        assert not sampler.has_begun
        sampler.start()
        sampler.start()
        sampler.stop()
        before = sampler.totals().samples
        while sampler.totals().samples < before + 3:
            pass
        sampler.stop()
        ended = sampler.totals()
        run.target.ask("turn", "turned")
        assert sampler.totals() == ended
        sampler.start()
        sampler.stop()
        again = sampler.totals()
        assert again.samples >= ended.samples + 2
        assert again.length_ns > ended.length_ns
        assert sampler.failure is None
        run.target.kill()


def test_there_is_a_last_sample_for_each_user() -> None:
    """What has just ended is in the sums of the one that stops, though others continue."""
    with (
        running(NEWEST, "plain") as run,
        SharedSampler(
            run.go, rate=SamplingRate(0.001, 0.001), has_labels=False, thread=SamplingThread(1.0)
        ) as sampler,
    ):
        sampler.start()
        sampler.start()
        run.target.ask("turn", "turned")  # its second wait begins
        sampler.sampler.sample()
        run.target.ask("turn", "turned")  # and ends
        sampler.stop()
        ended = [total.ended for total in sampler.totals().states.values() if total.ended]
        run.target.kill()
    assert 1 in ended
