"""What programs with probes in targets have in common: what they cost, for a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.overhead.cost import Runs, runs
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    from ebpfprof.kernel.program import BpfProgram
    from ebpfprof.profilers.alarms import BudgetAlarms


class BoundedProbes(Closing):
    """A BPF program with probes in targets, each with a number."""

    _program: BpfProgram
    alarms: BudgetAlarms | None = None
    """Once it is loaded, if it records in windows."""

    @property
    def hit_ns(self) -> float | None:
        """What a probe hit costs a thread, in ns, without our program; None if unknown."""
        return self._program.hit_ns

    def runs(self, index: int) -> Runs:
        """What the probes of a target cost so far; nothing until the program is loaded."""
        if not self._program.is_loaded:
            return Runs()
        cost = self._program.maps["costs"].sum_at(index)
        return runs(cost["runs"], cost["timed"], cost["timed_ns"])

    @property
    def failure(self) -> Exception | None:
        """The error that ended the recording early; None without one."""
        return self._program.failure
