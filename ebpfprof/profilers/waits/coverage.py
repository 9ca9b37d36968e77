"""What the comments say of a profile of waits of which not every one was recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ebpfprof.console.text import duration, percent
from ebpfprof.profile.evidence import FEW_RELEASES, MAX_ERROR, MAX_UNKNOWN
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD

ONE_IN_EIGHT: Final = "one wait in eight"


@dataclass(frozen=True, slots=True)
class Deviation:
    """The totals of a profile, and the variances of both."""

    count: float = 0.0
    delay_ns: float = 0.0
    count_variance: float = 0.0
    delay_variance: float = 0.0

    def __sub__(self, earlier: Deviation) -> Deviation:
        return Deviation(
            self.count - earlier.count,
            self.delay_ns - earlier.delay_ns,
            max(0.0, self.count_variance - earlier.count_variance),
            max(0.0, self.delay_variance - earlier.delay_variance),
        )

    def __add__(self, later: Deviation) -> Deviation:
        return Deviation(
            self.count + later.count,
            self.delay_ns + later.delay_ns,
            self.count_variance + later.count_variance,
            self.delay_variance + later.delay_variance,
        )


def _error(part: float) -> str:
    """In words: a larger error than tables show says no more than that."""
    return f"+-{percent(part)}" if part <= MAX_ERROR else f"above {percent(MAX_ERROR)}"


@dataclass(frozen=True, slots=True)
class WaitsCoverage:
    """For how long which waits of one target were recorded. Times in ns.

    Every wait for `every_ns`, then one in eight for `eighth_ns`. In the rest of `length_ns` it was
    one in eight in `windows`, for `windows_ns` of the time. `deviations` has a key for each kind.
    `uncharged_ns` is waiting time for locks whose release was not recorded.
    """

    length_ns: int
    every_ns: int
    eighth_ns: int
    windows_ns: int
    windows: int
    deviations: Mapping[str, Deviation] = field(default_factory=dict)
    uncharged_ns: float = 0.0

    def __sub__(self, earlier: WaitsCoverage) -> WaitsCoverage:
        none = Deviation()
        return WaitsCoverage(
            self.length_ns - earlier.length_ns,
            self.every_ns - earlier.every_ns,
            self.eighth_ns - earlier.eighth_ns,
            self.windows_ns - earlier.windows_ns,
            self.windows - earlier.windows,
            {
                k: deviation - earlier.deviations.get(k, none)
                for k, deviation in self.deviations.items()
            },
            self.uncharged_ns - earlier.uncharged_ns,
        )

    def __add__(self, later: WaitsCoverage) -> WaitsCoverage:
        none, one, other = Deviation(), self.deviations, later.deviations
        return WaitsCoverage(
            self.length_ns + later.length_ns,
            self.every_ns + later.every_ns,
            self.eighth_ns + later.eighth_ns,
            self.windows_ns + later.windows_ns,
            self.windows + later.windows,
            {kind: one.get(kind, none) + other.get(kind, none) for kind in {**one, **other}},
            self.uncharged_ns + later.uncharged_ns,
        )

    def __str__(self) -> str:
        return f"sampled {self.how}, and scaled"

    @property
    def how(self) -> str:
        """Which waits were recorded: "one wait in eight, 6.5 % of the time"."""
        if not self.windows and self.eighth_ns:
            return ONE_IN_EIGHT
        return f"{ONE_IN_EIGHT}, {percent(self.recorded_share)} of the time"

    def sampling(self, whole: str) -> str:
        """Which events were recorded; `whole` says which ones if nothing is left out."""
        if self.every_ns:
            return f"{whole} at first, then {ONE_IN_EIGHT}"
        return whole if whole.endswith(ONE_IN_EIGHT) else ONE_IN_EIGHT  # with --one-in-eight

    @property
    def recorded_share(self) -> float:
        """The part of the time in which waits were recorded, all or one in eight, 0 to 1."""
        recorded_ns = self.every_ns + self.eighth_ns + self.windows_ns
        return min(1.0, recorded_ns / self.length_ns) if self.length_ns > 0 else 1.0

    @property
    def share(self) -> float:
        """The part of the waits that was recorded, 0 to 1, by the time."""
        sampled_ns = self.eighth_ns + self.windows_ns
        if self.length_ns <= 0:
            return 1.0
        return min(1.0, (self.every_ns + sampled_ns / TRACKING_PERIOD) / self.length_ns)

    @property
    def is_scaled(self) -> bool:
        """Whether not every wait was recorded."""
        return self.every_ns < self.length_ns

    @property
    def knows_errors(self) -> bool:
        """Whether the errors of delays are known."""
        return self.windows > 1 or (self.windows == 0 and self.eighth_ns > 0)

    def error(self, kind: str) -> str:
        """In words, the standard errors of the totals of a kind's profile; "" if it has none."""
        deviation = self.deviations.get(kind)
        if deviation is None or not self.is_scaled:
            return ""
        if not self.knows_errors:
            which = "from a single window" if self.windows else "without a window"
            return f"standard error not known, {which}"
        on_count = math.sqrt(deviation.count_variance) / max(deviation.count, 1.0)
        on_delay = math.sqrt(deviation.delay_variance) / max(deviation.delay_ns, 1.0)
        return f"{_error(on_count)} on counts, {_error(on_delay)} on delays (one standard error)"

    def missing(self, kind: str) -> list[str]:
        """In words, what the mutex profile lacks: waits that no release was charged for."""
        if kind != "mutex" or self.uncharged_ns <= 0:
            return []
        delay_ns = self.deviations.get(kind, Deviation()).delay_ns
        if self.uncharged_ns <= MAX_UNKNOWN * delay_ns:
            return [f"not recorded: the releases of {duration(self.uncharged_ns)} of waiting"]
        share = percent(min(1.0, self.uncharged_ns / delay_ns)) if delay_ns else "all"
        return [f"{FEW_RELEASES}: those of {share} of the delay are not known"]
