"""How much more often goroutines wait outside of a window than in it.

Work comes in bursts: the CPU time that the target used shows how much of it there was outside and
inside. And probes slow a program that waits and wakes all the time: for the same CPU time it waits
less often in a window. Two things bound by how much. Go's scheduler counts how often goroutines
leave the run queue, in windows and pauses; but it counts other reasons than waits, too, which the
probes may have changed: an HTTP server waits as often in windows, and leaves the queue a third as
often. And a program can lose no more time than the probes take. So the slowdown is the ratio of the
scheduler's counts, limited to what the cost of the probes can explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

_LEAST_TIMES_RUN: Final = 50  # counted in windows: fewer say nothing
_MARGIN: Final = 2.0  # the cost of probes is an estimate, without the cache misses they cause
_MOST: Final = 0.95  # of a processor's time
# So much CPU time we add on both sides: a little says little, and none says nothing.
_PRIOR_NS: Final = 200_000.0


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
class ActivityEstimator:
    """Compares the activity of one target in its windows and outside of them."""

    _pauses: ActivityCounters = _NOTHING
    _windows: ActivityCounters = _NOTHING
    _last: ActivityCounters = _NOTHING
    _end: ActivityCounters = _NOTHING

    def add(
        self, before: ActivityCounters, begin: ActivityCounters, end: ActivityCounters
    ) -> float:
        """Add a pause and its window; return how much more often goroutines wait in this pause."""
        pause, self._last, self._end = begin.since(before), end.since(begin), end
        if before.times_run and begin.times_run and end.times_run:
            self._pauses = self._pauses.plus(pause)
            self._windows = self._windows.plus(self._last)
        return self._relative(pause.at_ns, pause.used_ns)

    def outside(self, now_ns: float, used_ns: float) -> float:
        """How much more often goroutines wait since the last window than in it.

        `used_ns` is the CPU time of the target at `now_ns`, as in ActivityCounters.
        """
        return self._relative(now_ns - self._end.at_ns, used_ns - self._end.used_ns)

    def _relative(self, length_ns: float, used_ns: float) -> float:
        inside = self._last
        if min(inside.at_ns, length_ns) <= 0 or min(inside.used_ns, used_ns) < 0:
            return 1.0
        both_ns = inside.used_ns + used_ns
        if both_ns <= 0:
            return 1.0
        prior_ns = _PRIOR_NS * (inside.at_ns + length_ns) / both_ns
        outside = (used_ns + _PRIOR_NS) / (length_ns + prior_ns)
        within = (inside.used_ns + _PRIOR_NS) / (inside.at_ns + prior_ns)
        return self._slowdown() * outside / within

    def _slowdown(self) -> float:
        pauses, windows = self._pauses, self._windows
        if windows.times_run < _LEAST_TIMES_RUN or pauses.used_ns <= 0:
            return 1.0
        seen = pauses.times_run / pauses.used_ns * windows.used_ns / windows.times_run
        taken = _MARGIN * windows.spent_ns / max(windows.used_ns, 1.0)
        return min(max(1.0, seen), 1 / (1 - min(taken, _MOST)))
