"""How much of a target's CPU time a recording may take, and when to record within that budget.

The bound is a share of the CPU time that the target uses. A target that uses less than a tenth of a
processor counts as if it used that much: probes in a target that hardly runs disturb little. A new
recording gets an initial credit, since its cost is unknown before it begins: what the bound allows
in half a second, and 10 ms at most. A window may exceed the budget by as much, or by a fifth of
what the bound has allowed so far, also 10 ms at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import percent

if TYPE_CHECKING:
    from ebpfprof.overhead.cost import Overhead

MOST_CREDIT_NS: Final = 10_000_000
CREDIT_FOR_NS: Final = 500_000_000
WINDOW_CREDIT: Final = 0.2  # of what the bound has allowed until then
IDLE_SHARE: Final = 0.1  # of a processor: the least that a target counts as using
TURN_NS: Final = 500_000_000  # a pause and its window, unless earning the window takes longer
SETTLED_NS: Final = 20_000_000_000
SETTLED_TURNS: Final = 2  # times as long after SETTLED_NS: each window costs us a few milliseconds
SHORTEST_NS: Final = 5_000_000
LONGEST_SHARE: Final = 0.85  # of a turn: attaching and detaching probes takes a tenth of a second
_CAREFUL: Final = 0.8


def why_exceeded(overhead: Overhead, bound: float, elapsed_ns: int) -> str:
    """Why a recording of `elapsed_ns` cost more than its bound (0 to 1; 0: none), a sentence.

    "" if it did not, or if neither the least use nor a short recording explains it.
    """
    if not bound or elapsed_ns <= 0 or overhead.share <= bound:
        return ""
    used_share = overhead.cpu_ns / elapsed_ns
    if used_share < IDLE_SHARE:
        return (
            f"The process used {percent(used_share)} of a CPU. The bound counts that as "
            f"{percent(IDLE_SHARE)}."
        )
    if elapsed_ns < SETTLED_NS:
        return "The bound holds on average. A short recording can exceed it."
    return ""


def samples_to_take(one_in: int, spent_ns: float, used_ns: float, share: float) -> int:
    """The N for which the budget allows one CPU sample in N; until now it was `one_in`.

    Samples cost `spent_ns` while the target used `used_ns` of CPU time. They may cost `share` of
    that.
    """
    return math.ceil(one_in * max(1.0, spent_ns / (share * used_ns))) if used_ns > 0 else one_in


@dataclass(frozen=True, slots=True)
class NextWindow:
    """What comes next: a pause of this mean length, then a window (None: without an end yet)."""

    pause_ns: float
    window_ns: int | None


@dataclass(slots=True)
class Budget:
    """The budget of one target. `share` is the part of its CPU time that we may take, 0 to 1."""

    share: float
    spent_ns: float = 0.0
    used_ns: float = 0.0
    elapsed_ns: int = 0
    rate: float = 0.0
    """What a nanosecond with probes attached last cost the target, in ns of CPU time."""
    around_ns: float = 0.0
    """For how long probes were attached around the last window."""

    def update(self, spent_ns: float, used_ns: float, elapsed_ns: int) -> None:
        """Set what was spent and used since the recording began."""
        self.spent_ns, self.used_ns, self.elapsed_ns = spent_ns, used_ns, elapsed_ns

    def note_window(self, spent_ns: float, window_ns: float, around_ns: float) -> None:
        """Note what a window cost; probes were attached for `around_ns` around it."""
        rate = spent_ns / (window_ns + around_ns)
        self.rate = max(rate, (self.rate + rate) / 2)
        self.around_ns = around_ns

    @property
    def is_overdrawn(self) -> bool:
        """Whether we spent more than the bound allows."""
        return self.left_ns < 0

    def lasts_ns(self, spent_before_ns: float, recorded_ns: float) -> float:
        """How long the budget lasts at the rate of the last `recorded_ns`, in ns; inf: for ever.

        Before them `spent_before_ns` had been spent.
        """
        rate = (self.spent_ns - spent_before_ns) / recorded_ns
        income = self.allowance_rate if self._earned_ns > self._initial_ns else 0.0
        return self.left_ns / (rate - income) if rate > income else math.inf

    @property
    def left_ns(self) -> float:
        """How much may be spent until the budget is overdrawn; negative afterwards."""
        return self._allowed_ns - self.spent_ns

    @property
    def credit_ns(self) -> float:
        """The same within a window, which may exceed the budget by a part of it."""
        credit_ns = max(self._initial_ns, WINDOW_CREDIT * self._earned_ns)
        return self._earned_ns + min(MOST_CREDIT_NS, credit_ns) - self.spent_ns

    def price_ns(self, window_ns: float) -> float:
        """What a window of that length costs, by what the last ones cost."""
        return self.rate * (window_ns + self.around_ns)

    def next_window(self, least_ns: float = 0.0) -> NextWindow:
        """The next pause and window that the budget allows, together so long at least."""
        income = self.allowance_rate
        if self.rate < _CAREFUL * income:
            return NextWindow(max(0.0, self.spent_ns - self._earned_ns) / income, None)
        usual_ns = TURN_NS if self.elapsed_ns < SETTLED_NS else SETTLED_TURNS * TURN_NS
        turn_ns = max(usual_ns, least_ns)
        window_ns = min(turn_ns * income / self.rate, LONGEST_SHARE * turn_ns) - self.around_ns
        window_ns = max(window_ns, SHORTEST_NS, 2 * self.around_ns)
        missing_ns = self.spent_ns + self.price_ns(window_ns) - self._earned_ns
        return NextWindow(max(0.0, missing_ns) / income - window_ns, int(window_ns))

    @property
    def allowance_rate(self) -> float:
        """What we may spend per nanosecond, by the CPU time that the target used so far."""
        used_share = self.used_ns / self.elapsed_ns if self.elapsed_ns else 0.0
        return self.share * max(used_share, IDLE_SHARE)

    @property
    def _initial_ns(self) -> float:
        """The initial credit, by the CPU time that the target used so far."""
        return min(MOST_CREDIT_NS, CREDIT_FOR_NS * self.allowance_rate)

    @property
    def _allowed_ns(self) -> float:
        return max(self._initial_ns, self._earned_ns)

    @property
    def _earned_ns(self) -> float:
        return self.elapsed_ns * self.allowance_rate
