"""When to record within a bound of overhead: in slices, each whole, with pauses in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.overhead.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ebpfprof.timeline.events import Known

NEVER_NS: Final = 1 << 63
SHORTEST_NS: Final = 20_000_000


class Slice(NamedTuple):
    """A time in which all was recorded (CLOCK_MONOTONIC), and a sample of all goroutines in it."""

    begin_ns: int
    end_ns: int
    known: Mapping[int, Known]


class SliceBudget:
    """Says when a slice ends, and how long the pause behind it is. `share` is 0 for no bound."""

    def __init__(
        self,
        share: float,
        spent_ns: Callable[[], float],
        used_ns: Callable[[], float],
        free_ns: float = 0.0,
    ) -> None:
        """`spent_ns` and `used_ns` return what recording cost the target, and what it used in all.

        `free_ns` of the cost do not count for the bound, once in a recording.
        """
        self._budget = Budget(share) if share else None
        self._spent_ns, self._used_ns, self._free_ns = spent_ns, used_ns, free_ns
        self._began_ns = self._slice_ns = 0
        self._spent_before_ns = self._used_before_ns = 0.0
        self._spent_in_slices_ns = self._used_in_slices_ns = 0.0
        self._ends_ns = NEVER_NS

    def begin(self, now_ns: int) -> None:
        """A slice begins; the first begins the recording."""
        self._began_ns = self._began_ns or now_ns
        self._slice_ns = now_ns
        self._spent_before_ns, self._used_before_ns = self._spent_ns(), self._used_ns()

    def is_over(self, now_ns: int) -> bool:
        """Whether the slice must end now."""
        if self._budget is None:
            return False
        self._check(now_ns)
        lasts_ns = now_ns - self._slice_ns
        return now_ns >= self._ends_ns or (self._budget.is_overdrawn and lasts_ns >= SHORTEST_NS)

    def end(self, now_ns: int) -> int:
        """The slice has ended, with its probes detached; returns how long to pause, in ns."""
        if self._budget is None:
            return 0
        self._check(now_ns)
        spent_ns = self._spent_ns() - self._spent_before_ns
        self._spent_in_slices_ns += spent_ns
        self._used_in_slices_ns += self._used_ns() - self._used_before_ns
        self._budget.note_window(spent_ns, now_ns - self._slice_ns, 0)
        following = self._budget.next_window()
        self._ends_ns = NEVER_NS
        if following.window_ns is not None:
            self._ends_ns = now_ns + int(following.pause_ns) + max(following.window_ns, SHORTEST_NS)
        return max(0, int(following.pause_ns))

    @property
    def share_of_slices(self) -> float | None:
        """The cost of the slices so far as a part of the CPU time that the target used in them.

        So much of its CPU time it costs to record all. None as long as no slice has ended.
        """
        if self._used_in_slices_ns <= 0:
            return None
        return self._spent_in_slices_ns / self._used_in_slices_ns

    def _check(self, now_ns: int) -> None:
        assert self._budget
        spent_ns = max(0.0, self._spent_ns() - self._free_ns)
        self._budget.update(spent_ns, self._used_ns(), now_ns - self._began_ns)
