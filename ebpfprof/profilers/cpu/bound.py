"""Keeps the cost of samples within --max-overhead: of N samples, the kernel takes a random one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ebpfprof.overhead.budget import samples_to_take
from ebpfprof.overhead.cost import Runs

_LEAST_USED_NS: Final = 100_000_000  # CPU time of a process between two checks of the cost


class SampleBound:
    """The N of one process."""

    def __init__(self) -> None:
        self.one_in = 1
        """The kernel takes one sample in that many."""
        self._last: tuple[float, int] | None = None  # ours and the process's CPU time, ns

    def update(self, runs: Callable[[], Runs], used_ns: int | None, share: float) -> bool:
        """Check the cost of samples since the last check against the CPU time of the process.

        They may take this `share` of it, 0 to 1; else N grows. Returns whether it did. `used_ns` is
        None if the process has ended. `runs` returns what samples cost, which takes a system call:
        it is not called while a process uses little.
        """
        if used_ns is None:
            return False
        if self._last is None:
            self._last = runs().ns, used_ns
        spent_before_ns, used_before_ns = self._last
        if used_ns - used_before_ns < _LEAST_USED_NS:
            return False
        spent_ns = runs().ns
        self._last = spent_ns, used_ns
        spent_ns, used_ns = spent_ns - spent_before_ns, used_ns - used_before_ns
        before = self.one_in
        self.one_in = samples_to_take(before, spent_ns, used_ns, share)
        return self.one_in > before
