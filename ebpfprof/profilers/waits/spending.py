"""What recording the waits of one process has cost it, held against its budget."""

from __future__ import annotations

from collections.abc import Callable

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.budget import Budget
from ebpfprof.profilers.waits.collector import WaitsCollector


class Spending:
    """The budget of one process, from the moment that it is made."""

    def __init__(
        self,
        waits: WaitsCollector,
        index: int,
        go: GoTarget,
        share: float,
        others_ns: Callable[[], float],
    ) -> None:
        """`share` is what may be taken of the process's CPU time, `index` its number in `waits`.

        `others_ns` tells what else takes of that, in all until now.
        """
        self.budget = Budget(share)
        self._waits, self._index, self._process = waits, index, go.target
        self._others_ns = others_ns
        self._spent_before_ns = self.spent_ns()
        self._used_before_ns = self.used_ns()
        self.started_ns = kernel_now_ns()
        """When the recording began, CLOCK_MONOTONIC."""

    def spent_ns(self) -> float:
        """What the process has lost, also to what was recorded of it before."""
        runs = self._waits.runs(self._index)
        return runs.ns + runs.count * (self._waits.hit_ns or 0.0) + self._others_ns()

    def used_ns(self) -> int:
        """The CPU time of the process; 0 if it has ended."""
        return self._process.cpu_ns() or 0

    def look(self) -> None:
        """Take note of what was spent and used so far. Raises TargetGone."""
        used_ns = self._process.cpu_ns()
        if used_ns is None:
            raise TargetGone(f"Process {self._process.pid} has ended.")
        self.budget.look(
            self.spent_ns() - self._spent_before_ns,
            used_ns - self._used_before_ns,
            kernel_now_ns() - self.started_ns,
        )
