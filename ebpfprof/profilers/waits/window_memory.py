"""What we keep from one window of a process to the next, besides the sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ebpfprof.goruntime.parked import Wait
from ebpfprof.profilers.waits.rows import Hold
from ebpfprof.profilers.waits.window_sums import OngoingWait


class WindowMemory:
    """How long locks were held, and since when waits that outlived a window last."""

    def __init__(self) -> None:
        self.holds: dict[int, Hold] = {}
        """The holds of all ended windows, by semaphore."""
        self._since: dict[Wait, int] = {}

    def holds_with(self, seen: Mapping[int, Hold]) -> dict[int, Hold]:
        """The holds, including those of one more window."""
        found = dict(self.holds)
        for sema, more in seen.items():
            hold = found.get(sema, Hold())
            found[sema] = Hold(hold.count + more.count, hold.held_ns + more.held_ns)
        return found

    def remember(self, ongoing: Sequence[OngoingWait], begin_ns: int, end_ns: int) -> None:
        """Note when ongoing waits began, or when a window first had them."""
        known = self._since
        self._since = {
            each.wait: min(known.get(each.wait, end_ns), max(begin_ns, end_ns - each.ns))
            for each in ongoing
            if each.wait
        }

    def since(self, wait: Wait, *, otherwise_ns: int) -> int:
        """When a wait began or a window first had it (CLOCK_MONOTONIC, ns); or `otherwise_ns`."""
        return self._since.get(wait, otherwise_ns)
