"""How much more often goroutines wait while no probes are attached than in a window.

Probes slow a program that waits and wakes all the time: in a window it waits less often. Two things
bound by how much. Go's scheduler counts how often goroutines leave the run queue, in windows and
pauses; but it counts other reasons than waits, too, which the probes may have changed. And a
program can lose no more time than the probes take. So the estimate is the ratio of the scheduler's
counts, limited to what the cost of the probes can explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

_LEAST_TIMES_RUN: Final = 50  # counted in windows: fewer say nothing
_MARGIN: Final = 2.0  # the cost of probes is an estimate, without the cache misses they cause
_MOST: Final = 0.95  # of a processor's time


class ActivityCounters(NamedTuple):
    """Counters at a moment `at_ns` (CLOCK_MONOTONIC); or what they counted in a time.

    `times_run`: how often goroutines left the run queue, 0 if unknown. `used_ns`: the CPU time of
    the target. `spent_ns`: what probes took of it.
    """

    at_ns: float
    times_run: float
    used_ns: float
    spent_ns: float

    def since(self, earlier: ActivityCounters) -> ActivityCounters:
        """The time since then, and what was counted in it."""
        return ActivityCounters(*(b - a for a, b in zip(earlier, self, strict=True)))

    def plus(self, other: ActivityCounters) -> ActivityCounters:
        """The sum of two times and their counts."""
        return ActivityCounters(*map(sum, zip(self, other, strict=True)))


_NOTHING: Final = ActivityCounters(0, 0, 0, 0)


@dataclass(slots=True)
class SlowdownEstimator:
    """Estimates the slowdown of one target from all its windows."""

    _pauses: ActivityCounters = _NOTHING
    _windows: ActivityCounters = _NOTHING

    def add(
        self, before: ActivityCounters, begin: ActivityCounters, end: ActivityCounters
    ) -> float:
        """Add a pause and its window; return how much more often goroutines wait in pauses."""
        if before.times_run and begin.times_run and end.times_run:
            self._pauses = self._pauses.plus(begin.since(before))
            self._windows = self._windows.plus(end.since(begin))
        return self._factor()

    def _factor(self) -> float:
        pauses, windows = self._pauses, self._windows
        if windows.times_run < _LEAST_TIMES_RUN:
            return 1.0
        seen = pauses.times_run / pauses.at_ns * windows.at_ns / windows.times_run
        taken = _MARGIN * windows.spent_ns / max(windows.used_ns, 1.0)
        return min(max(1.0, seen), 1 / (1 - min(taken, _MOST)))
