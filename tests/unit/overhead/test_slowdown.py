"""How counts of windows are corrected; tests/kernel/test_window_profiles.py has real programs."""

from __future__ import annotations

import pytest

from ebpfprof.overhead.slowdown import ActivityCounters, SlowdownEstimator

MS = 1_000_000


def counters(
    at_ms: int, times_run: int, used_ms: float = 0, spent_ms: float = 0
) -> ActivityCounters:
    return ActivityCounters(at_ms * MS, times_run, used_ms * MS, spent_ms * MS)


def turn(
    runs_in_pause: int, runs_in_window: int, spent_ms: float
) -> tuple[ActivityCounters, ActivityCounters, ActivityCounters]:
    """90 ms of pause, 10 ms of window, with one processor all the time."""
    begin = 1000 + runs_in_pause
    end = counters(100, begin + runs_in_window, 100, spent_ms)
    return counters(0, 1000), counters(90, begin, 90), end


def test_a_program_slowed_down_by_probes_is_scaled() -> None:
    """Ping-pong: probes take eight tenths of the window, and it runs a fifth as often."""
    assert SlowdownEstimator().add(*turn(9000, 200, spent_ms=8)) == pytest.approx(
        9000 / 90 / (200 / 10)
    )


def test_the_slowdown_is_limited_by_the_cost_of_probes() -> None:
    """An HTTP server, whose goroutines often run without a wait in the block profile."""
    slowdown = SlowdownEstimator().add(*turn(9000, 500, spent_ms=1))
    assert 1 / (1 - 0.1) < slowdown < 1.3


def test_a_program_that_runs_as_often_in_windows_is_not_scaled() -> None:
    """Such as one that waits for timers, however much of its processor the probes take."""
    assert SlowdownEstimator().add(*turn(900, 100, spent_ms=5)) == pytest.approx(1)
    assert SlowdownEstimator().add(*turn(900, 300, spent_ms=5)) == 1  # by chance


def test_the_slowdown_adds_up_windows() -> None:
    """One turn has ten times as many runs as the other: each window by itself would mislead."""
    slowdown = SlowdownEstimator()
    slowdown.add(*turn(900, 1000, spent_ms=8))
    assert slowdown.add(*turn(9000, 100, spent_ms=8)) == pytest.approx(9900 / 180 / (1100 / 20))


def test_unknown_or_few_runs_give_no_slowdown() -> None:
    before, begin, end = turn(9000, 200, spent_ms=8)
    assert SlowdownEstimator().add(before._replace(times_run=0), begin, end) == 1
    assert SlowdownEstimator().add(*turn(9000, 49, spent_ms=8)) == 1
