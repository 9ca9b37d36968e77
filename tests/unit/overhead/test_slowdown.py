"""How much more often goroutines wait outside of windows than in them."""

from __future__ import annotations

import pytest

from ebpfprof.overhead.slowdown import ActivityCounters, ActivityEstimator

MS = 1_000_000


def at(ms: float, times: float, used_ms: float, spent_ms: float = 0) -> ActivityCounters:
    return ActivityCounters(ms * MS, times, used_ms * MS, spent_ms * MS)


def test_a_program_that_runs_as_often_in_windows_is_not_scaled() -> None:
    estimator = ActivityEstimator()
    found = estimator.add(at(0, 1000, 10), at(100, 11_000, 110), at(110, 12_000, 120, 5))
    assert found == pytest.approx(1.0)
    assert estimator.outside(310 * MS, 320 * MS) == pytest.approx(1.0, rel=0.05)


def test_a_program_slowed_down_by_probes_is_scaled() -> None:
    estimator = ActivityEstimator()
    found = estimator.add(at(0, 10_000, 10), at(100, 30_000, 110), at(110, 30_500, 120, 8))
    assert found == pytest.approx(4.0, rel=0.05)


def test_the_slowdown_is_limited_by_the_cost_of_probes() -> None:
    """What the scheduler counts may be no waits."""
    estimator = ActivityEstimator()
    found = estimator.add(at(0, 10_000, 10), at(100, 30_000, 110), at(110, 30_500, 120, 0.5))
    assert found == pytest.approx(1 / (1 - 2 * 0.05), rel=0.05)


def test_a_burst_outside_of_a_quiet_window_counts() -> None:
    estimator = ActivityEstimator()
    found = estimator.add(at(0, 10_000, 10), at(100, 30_000, 110), at(120, 30_100, 111))
    assert found == pytest.approx(1 / 0.05, rel=0.2)
    assert estimator.outside(140 * MS, 112 * MS) == pytest.approx(1.0, rel=0.01)


def test_a_quiet_time_outside_of_a_busy_window_counts() -> None:
    estimator = ActivityEstimator()
    found = estimator.add(at(0, 10_000, 10), at(1000, 30_000, 11), at(1010, 31_000, 21))
    assert found == pytest.approx(0.001, abs=0.003)


def test_little_cpu_time_says_little() -> None:
    estimator = ActivityEstimator()
    found = estimator.add(at(0, 7, 10), at(100, 8, 10.02), at(110, 8, 10.02))
    assert 1.0 <= found < 1.2


def test_unknown_or_few_runs_give_no_slowdown() -> None:
    estimator = ActivityEstimator()
    found = estimator.add(at(0, 0, 10), at(100, 30_000, 110), at(110, 30_500, 120, 8))
    assert found == pytest.approx(1.0)
    found = estimator.add(at(110, 30_500, 120), at(210, 40_000, 220), at(220, 40_040, 230, 8))
    assert found == pytest.approx(1.0)


def test_counters_that_went_back_say_nothing() -> None:
    estimator = ActivityEstimator()
    estimator.add(at(0, 10, 10), at(100, 20, 110), at(110, 30, 120))
    assert estimator.outside(200 * MS, 0 * MS) == 1.0
