"""How much more often goroutines wait when no probes are in than they do in a window.

What waits and is woken all the time comes to it less often while each time costs a probe. Two
things are known. Go's scheduler counts how often goroutines come to run, for whatever reason, also
in pauses; but what else they ran for may have changed with the probes, too. And a program can't
be slower than it would be if all that the probes took was missing to it. So the truth is taken to
be what the first tells, up to what the second allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

_LEAST_TIMES_RUN: Final = 50  # counted in windows, to tell anything
_MARGIN: Final = 2.0  # what probes take is an estimate; they also cool down caches
_MOST: Final = 0.95  # of a processor's time


class ActivityCounters(NamedTuple):
    """A moment (CLOCK_MONOTONIC), and what was counted until then: 0 where it is not known.

    How often goroutines had come to run, the CPU time that the target had used, and what probes had
    taken of it.
    """

    at_ns: float
    times_run: float
    used_ns: float
    spent_ns: float

    def since(self, earlier: ActivityCounters) -> ActivityCounters:
        """What passed and was counted since then."""
        return ActivityCounters(*(b - a for a, b in zip(earlier, self, strict=True)))

    def plus(self, other: ActivityCounters) -> ActivityCounters:
        """The sum of two spans."""
        return ActivityCounters(*map(sum, zip(self, other, strict=True)))


_NOTHING: Final = ActivityCounters(0, 0, 0, 0)


@dataclass(slots=True)
class SlowdownEstimator:
    """Of one target, from all its windows."""

    _pauses: ActivityCounters = _NOTHING
    _windows: ActivityCounters = _NOTHING

    def add(
        self, before: ActivityCounters, begin: ActivityCounters, end: ActivityCounters
    ) -> float:
        """Take note of a pause and its window; how much more often goroutines wait in pauses."""
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
