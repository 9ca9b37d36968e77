"""Sums of a recording in windows, scaled to all of its time.

A recording is a sequence of turns: a turn is a pause and the window behind it. What a window holds
stands for its turn. Lengths of pauses are random and don't depend on what happens in the next
window. So the expected value of each estimated sum is the sum of the whole recording.

The variance comes from how much each window differs from the one before: if rates have the variance
v, their differences have the variance 2v. A turn without a pause adds none.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class Sums:
    """An estimated count and delay (ns), and the variances of both."""

    count: float = 0.0
    delay_ns: float = 0.0
    variances: tuple[float, float] = (0.0, 0.0)
    rates: tuple[float, float] = (0.0, 0.0)
    """Both per nanosecond, in the last window that had events of this key."""
    turn: int = -1
    """The number of that window."""


@dataclass(slots=True)
class Estimate(Generic[Key]):
    """Adds up turns. A key without an entry in a window had no event there."""

    sums: dict[Key, Sums] = field(default_factory=dict)
    windows: int = 0
    """How many turns had a pause."""
    recorded_ns: int = 0
    stood_for_ns: int = 0
    _turns_ns: list[int] = field(default_factory=list)

    def add(
        self, found: Mapping[Key, tuple[float, float]], recorded_ns: int, stood_for_ns: int
    ) -> None:
        """Add a turn: counts and delays (ns) of `recorded_ns`, the window of `stood_for_ns`."""
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
        """Add a delay that became known later; a negative one is subtracted."""
        self.sums.setdefault(key, Sums()).delay_ns += delay_ns

    def stretch(
        self, found: Mapping[Key, tuple[float, float]], recorded_ns: int, more_ns: int
    ) -> None:
        """Let the last turn stand for `more_ns` of time without a window, too."""
        self.stood_for_ns += more_ns
        for key, (count, delay_ns) in found.items():
            self.sums[key].count += count * more_ns / recorded_ns
            self.sums[key].delay_ns += delay_ns * more_ns / recorded_ns

    def errors(self, key: Key) -> tuple[float, float]:
        """The standard errors of count and delay_ns of a key; infinite after a single window."""
        if self.windows == 0:
            return 0.0, 0.0
        if self.windows == 1:
            return math.inf, math.inf
        counts, delays = self.variances(key)
        factor = of_differences(self.windows)
        return math.sqrt(factor * counts), math.sqrt(factor * delays)

    def variances(self, key: Key) -> tuple[float, float]:
        """The variances of count and delay_ns of a key, before of_differences(). They never fall.

        The growth between two calls is the variance of the growth of the sums.
        """
        sums = self.sums[key]
        if 0 <= sums.turn < self.windows - 1:  # the last windows had no event of it
            self._vary(sums, (0.0, 0.0), sums.turn + 1)
        return sums.variances

    def _vary(self, sums: Sums, rates: tuple[float, float], turn: int) -> None:
        """Add the variance from the rates (per ns) of a key in the window of this turn."""
        steps = [(turn, rates)]
        if sums.turn < turn - 1:  # the windows between had no event of it
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
    """The factor for variances: n windows (at least 2) have n - 1 differences.

    The variance of few differences is itself uncertain: we widen it as Student's distribution
    does for intervals of 95 %, within a tenth.
    """
    return windows / (windows - 1) * ((windows + 1) / (windows - 1)) ** 2
