"""Sums of a recording that was watched in windows only: what they hold, scaled to all of its time.

A recording is a row of turns, each of them a pause and, at its end, a window. What a window holds
stands for its turn. Pauses are drawn at random and don't depend on what happens in the window that
follows, so on average the sums are those of the whole recording.

The error comes from how much windows differ from the ones before them: if their rates have the
variance v, that of a difference is 2v. A turn that was watched as a whole adds none.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class Sums:
    """Counts and nanoseconds, as estimated, and the variances of both."""

    count: float = 0.0
    delay_ns: float = 0.0
    variances: tuple[float, float] = (0.0, 0.0)
    rates: tuple[float, float] = (0.0, 0.0)
    """Per nanosecond, in the window where it was last."""
    turn: int = -1
    """The number of that window."""


@dataclass(slots=True)
class Estimate(Generic[Key]):
    """Adds up turns. What has no entry in a window had no event there."""

    sums: dict[Key, Sums] = field(default_factory=dict)
    windows: int = 0
    """How many turns were watched in part only."""
    recorded_ns: int = 0
    stood_for_ns: int = 0
    _turns_ns: list[int] = field(default_factory=list)

    def add(
        self, found: Mapping[Key, tuple[float, float]], recorded_ns: int, stood_for_ns: int
    ) -> None:
        """Add a turn: what was counted and delayed (ns) in `recorded_ns` of its `stood_for_ns`."""
        self.recorded_ns += recorded_ns
        self.stood_for_ns += stood_for_ns
        weight = stood_for_ns / recorded_ns
        for key, (count, delay_ns) in found.items():
            sums = self.sums.setdefault(key, Sums())
            sums.count += weight * count
            sums.delay_ns += weight * delay_ns
        if stood_for_ns > recorded_ns:
            self._turns_ns.append(stood_for_ns - recorded_ns)
            for key, (count, delay_ns) in found.items():
                rates = count / recorded_ns, delay_ns / recorded_ns
                self._vary(self.sums[key], rates, self.windows)
            self.windows += 1

    def adjust(self, key: Key, delay_ns: float) -> None:
        """Add, or below 0 take out, what is not known to belong here until later."""
        self.sums.setdefault(key, Sums()).delay_ns += delay_ns

    def stretch(
        self, found: Mapping[Key, tuple[float, float]], recorded_ns: int, more_ns: int
    ) -> None:
        """Let the turn that was added last stand for more time, in which there was no window."""
        self.stood_for_ns += more_ns
        for key, (count, delay_ns) in found.items():
            self.sums[key].count += count * more_ns / recorded_ns
            self.sums[key].delay_ns += delay_ns * more_ns / recorded_ns

    def errors(self, key: Key) -> tuple[float, float]:
        """The standard errors of count and delay_ns of one sum; infinite with a single window."""
        if self.windows == 0:
            return 0.0, 0.0
        if self.windows == 1:
            return math.inf, math.inf
        counts, delays = self.variances(key)
        factor = of_differences(self.windows)
        return math.sqrt(factor * counts), math.sqrt(factor * delays)

    def variances(self, key: Key) -> tuple[float, float]:
        """The variances of count and delay_ns of one sum, before of_differences(); they only grow.

        What they have grown by is the variance of what has come meanwhile.
        """
        sums = self.sums[key]
        if 0 <= sums.turn < self.windows - 1:  # it was not in the last ones
            self._vary(sums, (0.0, 0.0), sums.turn + 1)
        return sums.variances

    def _vary(self, sums: Sums, rates: tuple[float, float], turn: int) -> None:
        """Take note of the rates (per ns) of one stack in the window of this turn."""
        steps = [(turn, rates)]
        if sums.turn < turn - 1:  # it was not in those between
            steps.insert(0, (sums.turn + 1, (0.0, 0.0)))
        for number, now in steps:
            if number > 0:
                length_ns = self._turns_ns[number]
                changes = (a - b for a, b in zip(now, sums.rates, strict=True))
                more = [(length_ns * change) ** 2 / 2 for change in changes]
                sums.variances = sums.variances[0] + more[0], sums.variances[1] + more[1]
            sums.rates = now
        sums.turn = turn


def of_differences(windows: int) -> float:
    """What variances are multiplied with: of n windows (2 at least) there are n - 1 differences."""
    return windows / (windows - 1)
