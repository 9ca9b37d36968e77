"""Keeps the cost of samples within --max-overhead: of N samples, the kernel takes a random one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ebpfprof.overhead.budget import samples_to_take
from ebpfprof.overhead.cost import Runs

_LEAST_USED_NS: Final = 100_000_000  # CPU time of a target between two checks of the cost


class SampleBound:
    """The N of each target, by number: the kernel takes one sample in N."""

    def __init__(self, max_share: float) -> None:
        """`max_share` is the part of a target's CPU time that we may take, 0 to 1; 0: no bound."""
        self._max_share = max_share
        self._costs: dict[int, tuple[float, int]] = {}  # ours and the target's CPU time, ns
        self._one_in: dict[int, int] = {}

    @property
    def is_set(self) -> bool:
        """Whether there is a bound."""
        return self._max_share > 0

    def one_in(self, index: int) -> int:
        """The N of a target: the kernel takes one sample in N."""
        return self._one_in.get(index, 1)

    def look(self, index: int, runs: Callable[[], Runs], used_ns: int | None) -> bool:
        """Check the cost of samples so far against the CPU time of the target; adjust its N.

        Returns whether N grew. `used_ns` is None if the target has ended. `runs` tells what samples
        cost, which takes a system call: it is not called while a target uses little.
        """
        if used_ns is None:
            return False
        if index not in self._costs:
            self._costs[index] = runs().ns, used_ns
        spent_before_ns, used_before_ns = self._costs[index]
        if used_ns - used_before_ns < _LEAST_USED_NS:
            return False
        spent_ns = runs().ns
        self._costs[index] = spent_ns, used_ns
        spent_ns, used_ns = spent_ns - spent_before_ns, used_ns - used_before_ns
        before = self.one_in(index)
        self._one_in[index] = samples_to_take(before, spent_ns, used_ns, self._max_share)
        return self._one_in[index] > before

    def forget(self, index: int) -> None:
        """Forget a target."""
        self._costs.pop(index, None)
        self._one_in.pop(index, None)
