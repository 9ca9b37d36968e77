"""Estimates from windows: unbiased, with the right standard error."""

from __future__ import annotations

import math
import random
from statistics import mean, stdev

import pytest

from ebpfprof.overhead.estimator import Estimate

WATCHED_NS = 10
TURN_NS = 100


def test_the_sums_of_a_window_are_scaled_to_its_turn() -> None:
    estimate = Estimate[str]()
    estimate.add({"a": (2, 30)}, WATCHED_NS, TURN_NS)
    estimate.add({"a": (1, 5), "b": (4, 4)}, WATCHED_NS, 3 * TURN_NS)

    sums = estimate.sums
    assert (sums["a"].count, sums["a"].delay_ns) == (20 + 30, 300 + 150)
    assert (sums["b"].count, sums["b"].delay_ns) == (120, 120)
    assert (estimate.recorded_ns, estimate.stood_for_ns) == (20, 400)
    assert estimate.windows == 2


def test_sums_of_whole_turns_are_not_scaled_and_have_no_error() -> None:
    estimate = Estimate[str]()
    for count in (3, 40, 5):
        estimate.add({"a": (count, 10 * count)}, TURN_NS, TURN_NS)

    assert (estimate.sums["a"].count, estimate.sums["a"].delay_ns) == (48, 480)
    assert estimate.errors("a") == (0, 0)
    assert (estimate.recorded_ns, estimate.windows) == (estimate.stood_for_ns, 0)


def test_with_a_single_window_the_error_is_infinite() -> None:
    estimate = Estimate[str]()
    estimate.add({"a": (1, 1)}, WATCHED_NS, TURN_NS)

    assert estimate.errors("a") == (math.inf, math.inf)


def test_the_last_window_stands_for_the_time_after_it() -> None:
    estimate = Estimate[str]()
    found = {"a": (2.0, 30.0)}
    estimate.add(found, WATCHED_NS, TURN_NS)
    estimate.stretch(found, WATCHED_NS, 50)

    assert (estimate.sums["a"].count, estimate.sums["a"].delay_ns) == (30, 450)
    assert estimate.recorded_ns / estimate.stood_for_ns == pytest.approx(10 / 150)


def test_later_adjustments_change_the_sums() -> None:
    estimate = Estimate[str]()
    estimate.add({"a": (1, 100)}, WATCHED_NS, WATCHED_NS)
    estimate.adjust("a", -60)
    estimate.adjust("b", 7)

    assert estimate.sums["a"].delay_ns == 40
    assert estimate.sums["b"].delay_ns == 7


@pytest.mark.parametrize("rare", [False, True])
def test_estimates_are_unbiased_and_vary_by_their_error(rare: bool) -> None:
    """Many recordings of the same load: a steady stream, or bursts that most windows miss."""
    draw = random.Random(1)
    estimates, errors = [], []
    for _ in range(400):
        estimate = Estimate[str]()
        for _ in range(100):
            count = draw.choice([0] * 9 + [10]) if rare else draw.choice([4, 5, 6])
            estimate.add({"a": (count, 0)} if count else {}, WATCHED_NS, TURN_NS)
        estimates.append(estimate.sums["a"].count)
        errors.append(estimate.errors("a")[0])
    truth = 100 * 10 * (1 if rare else 5)

    assert mean(estimates) == pytest.approx(truth, rel=0.05)
    # A turn's own window is known: what is not, is the rest of it, nine tenths here.
    assert mean(errors) == pytest.approx(0.9 * stdev(estimates), rel=0.15)
