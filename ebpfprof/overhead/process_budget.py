"""The bound of --max-overhead for one process, and how those that spend CPU time share it.

Each recording that costs the process CPU time takes a lease. All together may take the bound. CPU
samples, of which one in N can be left out at any time, take half of it at most where others need
the rest; others take what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ebpfprof.overhead.cost import Cost

HALF: Final = 0.5


def beside_a_trace(max_overhead: float) -> float:
    """The bound (percent) of profiles and of a trace, each, that are recorded at the same time."""
    return max_overhead * HALF


class ProcessBudget:
    """The part of the CPU time of one process that all its leases may take together."""

    def __init__(self, max_overhead: float) -> None:
        """`max_overhead` is the bound in percent of the process's CPU time; 0: no bound."""
        self.share = max_overhead / 100
        """The bound, 0 to 1; 0: none."""
        self._leases: list[Lease] = []

    def lease(self, cost: Callable[[], Cost], *, most: float = 1.0) -> Lease:
        """A lease of one that spends; `cost` returns what it spent until now.

        If there are others, it takes the part `most` of the bound (0 to 1) at most.
        """
        lease = Lease(self, cost, most)
        self._leases.append(lease)
        return lease

    def others_than(self, lease: Lease) -> list[Lease]:
        """All other leases."""
        return [other for other in self._leases if other is not lease]

    def close(self) -> None:
        """End all leases: nobody spends any more."""
        self._leases.clear()


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """What one recording may take of the CPU time of a process."""

    budget: ProcessBudget
    cost: Callable[[], Cost]
    most: float

    @property
    def share(self) -> float:
        """The part of the process's CPU time, 0 to 1, that it may take; 0: no bound."""
        is_shared = bool(self.budget.others_than(self))
        return self.budget.share * (self.most if is_shared else 1.0)

    def others_ns(self) -> float:
        """The CPU time (ns) that all others took of the process until now."""
        return sum(lease.cost().ns for lease in self.budget.others_than(self))
