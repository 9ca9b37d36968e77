"""Which goroutines stand still, by samples that may miss what happens in between."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ebpfprof.goruntime.goroutines.fields import wait_of
from ebpfprof.goruntime.goroutines.states import CountedWaits
from ebpfprof.goruntime.waits import standing
from ebpfprof.goruntime.waits.standing import StandingJudge, Threshold

WAITING, RUNNABLE, LEAKED = 4, 1, 10
REASON, COROUTINE = 14, 33
EVERY_NS, TOOK_NS = 1_000_000, 1_000
ENOUGH = Threshold(5, 1)
THRESHOLDS = {name: each for name, each in vars(standing).items() if isinstance(each, Threshold)}
LAYOUT: Any = SimpleNamespace(wait_reasons={"ChanReceive": REASON, "Coroutine": COROUTINE})


def wait(goid: int, sequence: int, reason: int = REASON, status: int = WAITING) -> int:
    return wait_of(status, reason, sequence, goid)


def judged(samples: Iterable[list[int]], counted: CountedWaits | None = None) -> StandingJudge:
    """A judge of these samples, each of which saw these numbers, by slot."""
    judge = StandingJudge(counted)
    for numbers in samples:
        began_ns = judge.began_ns + EVERY_NS
        judge.add(np.array(numbers, np.uint64), began_ns, began_ns + TOOK_NS)
    return judge


def waits(judge: StandingJudge, threshold: Threshold = ENOUGH) -> list[int]:
    return sorted(judge.standing(threshold).by_wait())


def test_a_goroutine_stands_from_the_end_of_the_first_sample_to_the_begin_of_the_last() -> None:
    one, other = wait(7, 3), wait(8, 3)
    judge = judged([[one]] * 3 + [[one, other]] * 10)
    stood_ns = 12 * EVERY_NS - TOOK_NS
    assert judge.began_ns - judge.standing(ENOUGH).by_wait()[one] == stood_ns
    assert waits(judge, Threshold(5, stood_ns)) == [one]
    assert waits(judge, Threshold(5, stood_ns + 1)) == []
    assert waits(judge, Threshold(5, 9 * EVERY_NS - TOOK_NS)) == [one, other]


def test_the_next_wait_of_a_goroutine_is_another() -> None:
    """Also where g.trackingSeq begins again at 0."""
    judge = judged([wait(7, number % 256)] for number in range(300))
    assert waits(judge, Threshold(2)) == []


def test_one_sample_in_between_that_saw_something_else_counts() -> None:
    one = wait(7, 3)
    judge = judged([[one]] * 10 + [[0]] + [[one]] * 5)
    assert judge.began_ns - judge.standing(ENOUGH).by_wait()[one] == 4 * EVERY_NS - TOOK_NS


def test_few_samples_prove_nothing() -> None:
    one = wait(7, 3)
    assert waits(judged([[one]] * 4)) == []
    assert waits(judged([[one]] * 5)) == [one]


@pytest.mark.parametrize("threshold", THRESHOLDS.values(), ids=THRESHOLDS)
def test_each_threshold_can_be_reached(threshold: Threshold) -> None:
    one = wait(7, 3)
    samples = threshold.samples + -(-threshold.ns // EVERY_NS)
    assert waits(judged([[one]] * (samples + 1)), threshold) == [one]


def test_only_waits_that_go_counts_are_judged() -> None:
    numbers = [
        wait(7, 3),
        wait(8, 3, COROUTINE),
        wait(9, 3, status=RUNNABLE),
        wait(10, 3, status=LEAKED),
        0,
    ]
    assert waits(judged([numbers] * 5, CountedWaits(LAYOUT))) == [numbers[0], numbers[3]]
    assert waits(judged([numbers] * 5)) == sorted(numbers[:4])
    assert sorted(judged([numbers], CountedWaits(LAYOUT)).seen().by_wait()) == [
        *sorted([numbers[0], numbers[3]])
    ]


def test_the_last_sample_shows_since_when_each_goroutine_was_seen_in_its_wait() -> None:
    one, other = wait(7, 3), wait(8, 3)
    judge = judged([[one, wait(8, 2)], [one, other]])
    assert judge.seen().by_wait() == {
        one: judge.ended_ns - EVERY_NS,
        other: judge.ended_ns,
    }


def test_moves_are_those_since_the_last_sample() -> None:
    judge = judged([[wait(7, 3), wait(8, 3)]])
    now = np.array([wait(7, 3), wait(8, 4), wait(9, 1)], np.uint64)
    assert judge.moved(now).tolist() == [False, True, True]
