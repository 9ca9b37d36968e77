"""How much of a target's time a recording may take, and when that allows to watch it.

The promise is a share of the CPU time that the target uses, or of a tenth of one processor if it
uses less: what is hardly there can't be much in the way. Some milliseconds are lent, since nobody
knows what a recording costs before it has begun.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

LENT_NS: Final = 10_000_000
IDLE_SHARE: Final = 0.1  # of a processor: a target is taken to use that much
TURN_NS: Final = 500_000_000  # how often there is a window, unless it takes longer to afford one
SETTLED_NS: Final = 20_000_000_000
SETTLED_TURNS: Final = 2  # times as long after that: each window takes us some milliseconds
SHORTEST_NS: Final = 5_000_000
LONGEST_SHARE: Final = 0.85  # of a turn; probes take a tenth of a second to go in and out
_CAREFUL: Final = 0.8


def samples_to_take(one_in: int, spent_ns: float, used_ns: float, share: float) -> int:
    """Of how many CPU samples one can be afforded, when one of `one_in` was taken until now.

    That cost `spent_ns` while the target used `used_ns` of CPU time, of which it may be `share`.
    """
    return math.ceil(one_in * max(1.0, spent_ns / (share * used_ns))) if used_ns > 0 else one_in


@dataclass(frozen=True, slots=True)
class Turn:
    """What comes next: a pause on average so long, then a window (None: as long as it can be)."""

    pause_ns: float
    window_ns: int | None


@dataclass(slots=True)
class Budget:
    """The account of one target. `share` is what may be taken of its CPU time, 0 to 1."""

    share: float
    spent_ns: float = 0.0
    used_ns: float = 0.0
    elapsed_ns: int = 0
    rate: float = 0.0
    """What a nanosecond with the probes in takes of the target, as it was last."""
    around_ns: float = 0.0
    """For how long they are in around a window, as it was last."""

    def look(self, spent_ns: float, used_ns: float, elapsed_ns: int) -> None:
        """Take note of all that was spent and used since the recording began."""
        self.spent_ns, self.used_ns, self.elapsed_ns = spent_ns, used_ns, elapsed_ns

    def note_window(self, spent_ns: float, window_ns: float, around_ns: float) -> None:
        """Take note of what a window cost, with the time that the probes were in around it."""
        rate = spent_ns / (window_ns + around_ns)
        self.rate = max(rate, (self.rate + rate) / 2)
        self.around_ns = around_ns

    @property
    def is_overdrawn(self) -> bool:
        """Whether more was spent than the promise allows."""
        return self.spent_ns > self._allowed_ns

    def lasts_ns(self, spent_before_ns: float, recorded_ns: float) -> float:
        """How long it lasts at the rate at which it was spent in the time that was watched."""
        rate = (self.spent_ns - spent_before_ns) / recorded_ns
        left_ns = self._allowed_ns - self.spent_ns
        income = self._allowance_rate if self._earned_ns > LENT_NS else 0.0
        return left_ns / (rate - income) if rate > income else math.inf

    def next_turn(self) -> Turn:
        """What can be afforded from now on."""
        income = self._allowance_rate
        if self.rate < _CAREFUL * income:
            return Turn(max(0.0, self.spent_ns - self._earned_ns) / income, None)
        turn_ns = TURN_NS if self.elapsed_ns < SETTLED_NS else SETTLED_TURNS * TURN_NS
        window_ns = min(turn_ns * income / self.rate, LONGEST_SHARE * turn_ns) - self.around_ns
        window_ns = max(window_ns, SHORTEST_NS, 2 * self.around_ns)
        price_ns = self.rate * (window_ns + self.around_ns)
        missing_ns = self.spent_ns + price_ns - self._earned_ns
        return Turn(max(0.0, missing_ns) / income - window_ns, int(window_ns))

    @property
    def _allowance_rate(self) -> float:
        """What may be spent per nanosecond, going by how much the target used so far."""
        used_share = self.used_ns / self.elapsed_ns if self.elapsed_ns else 0.0
        return self.share * max(used_share, IDLE_SHARE)

    @property
    def _allowed_ns(self) -> float:
        return max(LENT_NS, self._earned_ns)

    @property
    def _earned_ns(self) -> float:
        return self.elapsed_ns * self._allowance_rate
