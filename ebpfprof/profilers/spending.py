"""Compares what probes in a process have cost it with its budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.budget import Budget
from ebpfprof.overhead.process_budget import Lease
from ebpfprof.profilers.bounded_probes import BoundedProbes
from ebpfprof.profilers.recording_end import RecordingEnd

SHORTEST_TICK_S: Final = 0.002
"""The least time between two updates of what was spent, in seconds."""
# An alarm reports a burst. A wake-up takes us a tenth of a millisecond, for each process.
_LONGEST_TICKS_S: Final = (0.1, 30.0)
_OF_ELAPSED: Final = 0.05
_USUAL_RUN_NS: Final = 500.0


class Spending:
    """The budget of one process, and what was spent of it since the constructor."""

    def __init__(self, probes: BoundedProbes, index: int, go: GoTarget, lease: Lease) -> None:
        """`lease` says how much of the process's CPU time they may take.

        `index` is its number in `probes`.
        """
        self.budget = Budget(lease.share)
        self._probes, self._index, self._process = probes, index, go.target
        self._lease = lease
        self._spent_before_ns = self.spent_ns()
        self._used_before_ns = self.used_ns()
        self.started_ns = kernel_now_ns()
        """The start of the recording, CLOCK_MONOTONIC."""

    def spent_ns(self) -> float:
        """The CPU time that the process has spent so far, to earlier recordings, too."""
        runs = self._probes.runs(self._index)
        return runs.ns + runs.count * (self._probes.hit_ns or 0.0) + self._lease.others_ns()

    def used_ns(self) -> int:
        """The CPU time of the process; 0 if it has ended."""
        return self._process.cpu_ns() or 0

    def tick_s(self, begin_ns: int, spent_before_ns: float) -> float:
        """The time until the next update: half of the time that the budget lasts, in seconds.

        The longer a recording lasts, the longer that may be. Every event is recorded since
        `begin_ns`, and `spent_before_ns` was spent before.
        """
        recorded_ns = max(1, kernel_now_ns() - begin_ns)
        lasts_ns = self.budget.lasts_ns(spent_before_ns, recorded_ns)
        first_s, last_s = _LONGEST_TICKS_S
        longest_s = min(last_s, max(first_s, _OF_ELAPSED * self.budget.elapsed_ns / 1e9))
        return min(longest_s, max(SHORTEST_TICK_S, lasts_ns / 2e9))

    def wait(self, ending: RecordingEnd, seconds: float) -> bool:
        """Wait, for the end, or until the budget may be used up; returns whether it is the end."""
        self._arm(self.budget.left_ns, ending.wake)
        return ending.wait(seconds)

    def wait_for_end(self, ending: RecordingEnd, end_ns: int, *, more_ns: float = 0.0) -> None:
        """Wait for the end of a window, of all, or until it overdraws the budget too much.

        It may spend `more_ns` besides: a window that ends as soon as there is a burst has what
        begins a burst, and lacks what follows.
        """
        most_ns = self.budget.spent_ns + self.budget.credit_ns + more_ns
        while (left_ns := end_ns - kernel_now_ns()) > 0 and self.budget.spent_ns < most_ns:
            self._arm(most_ns - self.budget.spent_ns, ending.wake)
            if ending.wait(left_ns / 1e9):
                return
            self.update()

    def _arm(self, left_ns: float, wake: Callable[[], None]) -> None:
        """Call `wake` when hits of the probes may have cost `left_ns` more."""
        runs, alarms = self._probes.runs(self._index), self._probes.alarms
        each_ns = (runs.each_ns or _USUAL_RUN_NS) + (self._probes.hit_ns or 0.0)
        if alarms:
            alarms.arm(self._index, left_ns / each_ns, wake)

    def update(self) -> None:
        """Update the budget with what was spent and used so far. Raises TargetGone."""
        used_ns = self._process.cpu_ns()
        if used_ns is None:
            raise TargetGone(f"Process {self._process.pid} has ended.")
        self.budget.update(
            self.spent_ns() - self._spent_before_ns,
            used_ns - self._used_before_ns,
            kernel_now_ns() - self.started_ns,
        )
